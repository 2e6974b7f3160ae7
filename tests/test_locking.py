"""Locks of folders on file systems that have none."""

import errno

import pytest

from forecaster.errors import WriteError
from forecaster.files import locked_folder

fcntl = pytest.importorskip("fcntl")


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EIO])
def test_a_file_system_without_locks_is_said(tmp_path, monkeypatch, code):
    def flock(file, how):
        raise OSError(code, "as such a file system says")

    (tmp_path / ".lock").touch()
    monkeypatch.setattr(fcntl, "flock", flock)
    for _ in ("first", "second"):  # the first leaves its file
        with (
            pytest.raises(WriteError, match=f"{tmp_path}.*cannot lock files"),
            locked_folder(tmp_path),
        ):
            pass
