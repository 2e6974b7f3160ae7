"""Files are written whole or not at all."""

import os
import sys
import time
from pathlib import Path
from unittest.mock import Mock

import pytest

from forecaster.errors import WriteError
from forecaster.files import atomic
from tests.messages import refuses


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def test_a_write_that_fails_leaves_the_old_file(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")

    def half(to):
        to.write_text("ne")
        raise OSError(28, "No space left on device")

    with refuses(WriteError):
        atomic.write_file(path, half)
    assert path.read_text() == "old" and names(tmp_path) == ["file"]


@pytest.fixture
def path(tmp_path) -> Path:
    """A folder with a file ``old``."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "old").touch()
    return tmp_path / "folder"


@pytest.mark.parametrize("replace", [False, True])
def test_a_block_that_fails_leaves_the_old_folder(tmp_path, path, replace):
    with pytest.raises(KeyboardInterrupt), atomic.write_folder(path, replace=replace):
        raise KeyboardInterrupt
    assert names(path) == ["old"] and names(tmp_path) == ["folder"]


def test_a_folder_is_replaced_only_when_asked_to(tmp_path, path):
    with pytest.raises(WriteError), atomic.write_folder(path) as temporary:
        (temporary / "new").touch()
    assert names(path) == ["old"]
    with atomic.write_folder(path, replace=True) as temporary:
        (temporary / "new").touch()
    assert names(path) == ["new"] and names(tmp_path) == ["folder"]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="renameat2 is Linux's")
def test_a_folder_is_replaced_in_one_step(tmp_path, path, monkeypatch):
    """With two renames, a process killed between them would leave neither."""
    monkeypatch.setattr(Path, "rename", Mock(side_effect=AssertionError("it was moved away")))
    with atomic.write_folder(path, replace=True) as temporary:
        (temporary / "new").touch()
    assert names(path) == ["new"] and names(tmp_path) == ["folder"]


@pytest.mark.parametrize("fails", [False, True])
def test_where_a_system_cannot_exchange_folders_two_steps_do_it(tmp_path, path, monkeypatch, fails):
    rename = Path.rename

    def broken(self, target):
        if self.name.startswith(atomic.PREFIX) and not self.name.endswith("-old-folder"):
            raise OSError(5, "Input/output error")
        return rename(self, target)

    monkeypatch.setattr(atomic, "_exchange", lambda one, other: False)
    if fails:
        monkeypatch.setattr(Path, "rename", broken)
        with pytest.raises(WriteError), atomic.write_folder(path, replace=True):
            pass
    else:
        with atomic.write_folder(path, replace=True) as temporary:
            (temporary / "new").touch()
    assert names(path) == (["old"] if fails else ["new"]) and names(tmp_path) == ["folder"]


def test_what_killed_processes_left_is_swept_and_nothing_else(tmp_path):
    long_ago = time.time() - 8 * 86_400
    for name in (".tmp-1-folder", "folder", ".tmp-3-new"):
        (tmp_path / name).mkdir()
    (tmp_path / ".tmp-2-file").touch()
    for name in (".tmp-1-folder", "folder", ".tmp-2-file"):
        os.utime(tmp_path / name, (long_ago, long_ago))
    atomic.sweep(tmp_path)
    assert sorted(names(tmp_path)) == [".tmp-3-new", "folder"]


def test_a_folder_that_cannot_be_made_is_one_error(tmp_path):
    (tmp_path / "file").touch()
    with refuses(WriteError):
        atomic.make_folder(tmp_path / "file" / "folder")
    atomic.make_folder(tmp_path / "a" / "b")
    assert names(tmp_path / "a" / "b") == []


def test_a_file_that_cannot_be_removed_is_named(tmp_path):
    atomic.remove_file(tmp_path / "none")  # no error
    with refuses(WriteError):
        atomic.remove_file(tmp_path)  # a folder
