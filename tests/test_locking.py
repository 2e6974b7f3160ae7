"""Locks of folders on file systems that have none."""

import errno
import subprocess
import sys

import pytest

pytest.importorskip("fcntl")
WITHOUT_LOCKS = """
import errno, fcntl, sys
from pathlib import Path

def flock(file, how):
    raise OSError(int(sys.argv[2]), "as such a file system says")

fcntl.flock = flock
from forecaster.errors import WriteError
from forecaster.files import locked_folder

for each in ("first", "second"):  # the first leaves its file
    try:
        with locked_folder(Path(sys.argv[1])):
            print("locked")
    except WriteError as error:
        print(error)
"""


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EIO])
def test_a_file_system_without_locks_is_said(tmp_path, code):
    (tmp_path / ".lock").touch()
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_LOCKS, tmp_path, str(code)],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    said = done.stdout.splitlines()
    assert len(said) == 2, done.stderr
    assert all("cannot lock files" in line and str(tmp_path) in line for line in said)
