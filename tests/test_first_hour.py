"""Run ``scripts/first_hour.sh``: an analyst's first hour, mistakes included."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.slow import slow

SCRIPT = Path(__file__).parents[1] / "scripts" / "first_hour.sh"
BASH = shutil.which("bash")


@pytest.mark.skipif(BASH is None, reason="the walk is a script for bash")
@pytest.mark.parametrize(("parts", "commands", "refused"), [(2, 15, 8), slow(9, 76, 33)])
def test_the_first_hour_is_as_it_must_be(parts, commands, refused):
    known = os.environ | {"PYTHON": sys.executable, "PYTHONPATH": str(SCRIPT.parents[1])}
    with tempfile.TemporaryDirectory() as folder:  # a short name, which no table breaks
        done = subprocess.run(
            [str(BASH), SCRIPT, Path(folder) / "hour", str(parts)], env=known,
            capture_output=True, text=True,
        )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    last = done.stdout.splitlines()[-1]
    counts = re.fullmatch(r"As expected: (\d+) commands, (\d+) of them refused .* in \d+ s", last)
    assert counts and int(counts[1]) >= commands and int(counts[2]) >= refused
    assert done.stdout.count("\n$ forecaster ") == int(counts[1])
