"""Nothing is lost and nothing half-written taken for whole, whatever command is writing."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WRITING = ["fit", "compress", "predict", "picture", "export", "parquet", "evaluate"]
KINDS = ["kill", "ENOSPC", "EIO"]


@pytest.fixture(scope="session")
def disk(tmp_path_factory) -> Path:
    """The failing disk, compiled."""
    if not sys.platform.startswith("linux"):
        pytest.skip("needs Linux: LD_PRELOAD and /proc")
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    library = tmp_path_factory.mktemp("disk") / "disk.so"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-O1", "-o", library, Path(__file__).with_name("disk.c"),
         "-ldl"],
        check=True,
    )  # fmt: skip
    return library


def faults(disk: Path, folder: Path, command: str, kind: str, first: int, step: int) -> int:
    """How many faults a command was put to, at every ``step``-th operation on the disk."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.cli.faulty", disk, folder, command, kind, f"{first}",
         f"{step}"],
        cwd=ROOT, capture_output=True, text=True,
        env=os.environ | {"LD_PRELOAD": str(disk), "FORECASTER_TEST_TYPES": "off"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return int(done.stdout)


def test_a_fault_at_some_writes_leaves_the_old_state_or_the_new(disk, tmp_path):
    """A short sample; the slow test below takes every write of every command."""
    assert faults(disk, tmp_path, "export", "ENOSPC", 2, 3) >= 2


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("command", WRITING)
def test_a_fault_at_any_write_leaves_the_old_state_or_the_new(disk, tmp_path, command, kind):
    step = 4 if command == "evaluate" else 1  # each of its files is written in the same way
    assert faults(disk, tmp_path, command, kind, 1, step) >= 5
