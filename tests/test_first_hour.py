"""Run ``scripts/first_hour.sh``: an analyst's first hour, mistakes included."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts" / "first_hour.sh"
BASH = shutil.which("bash")
pytestmark = pytest.mark.skipif(BASH is None, reason="the walk is a script for bash")


def walk(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    known = os.environ | {"PYTHON": sys.executable, "PYTHONPATH": str(SCRIPT.parents[1])}
    return subprocess.run(
        [str(BASH), SCRIPT, folder], env=known | environment, capture_output=True, text=True
    )


def test_the_first_hour_is_as_it_must_be():
    with tempfile.TemporaryDirectory() as folder:  # a short name, which no table breaks
        done = walk(Path(folder) / "hour")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    last = done.stdout.splitlines()[-1]
    counts = re.fullmatch(r"As expected: (\d+) commands, (\d+) of them refused .* in \d+ s", last)
    assert counts and int(counts[1]) > 75 and int(counts[2]) > 32
    assert done.stdout.count("\n$ forecaster ") == int(counts[1])


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("import sys; sys.exit(7)", "exit code 7, expected 0"),
        ("print('Nothing here')", "it does not say: Nothing stored yet"),
        ("print('Traceback (most recent call last)')", "a traceback"),
    ],
)
def test_a_deviation_is_named_and_ends_the_walk(tmp_path, wrong, said):
    (tmp_path / "forecaster.py").write_text(wrong)
    done = walk(tmp_path / "hour", PYTHONPATH=str(tmp_path))
    assert done.returncode == 1 and f"Not as expected, after 1 commands: {said}" in done.stderr
    assert done.stdout.count("\n$ forecaster ") == 1


def test_a_folder_with_something_in_it_is_left_alone(tmp_path):
    (tmp_path / "mine.txt").write_text("keep")
    done = walk(tmp_path)
    assert done.returncode == 1 and "is not empty" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
