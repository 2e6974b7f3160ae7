"""Writes happen whole or not at all."""

from pathlib import Path

import pytest

from forecaster import atomic
from forecaster.errors import WriteError


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def test_a_file_is_replaced_whole(tmp_path):
    path = tmp_path / "folder" / "file"
    for text in ("old", "new"):
        atomic.write_file(path, lambda to, text=text: to.write_text(text))
        assert path.read_text() == text
    assert names(path.parent) == ["file"]


def test_a_write_that_fails_leaves_the_old_file(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")

    def half(to):
        to.write_text("ne")
        raise OSError(28, "No space left on device")

    with pytest.raises(WriteError, match=r"file: cannot be written: No space left on device"):
        atomic.write_file(path, half)
    assert path.read_text() == "old" and names(tmp_path) == ["file"]


def test_a_folder_appears_when_its_block_ends(tmp_path):
    path = tmp_path / "folder"
    with atomic.write_folder(path) as temporary:
        (temporary / "file").write_text("text")
        assert not path.exists() and temporary.name.startswith(atomic.PREFIX)
    assert (path / "file").read_text() == "text" and names(tmp_path) == ["folder"]


@pytest.mark.parametrize("replace", [False, True])
def test_a_block_that_fails_leaves_the_old_folder(tmp_path, replace):
    path = tmp_path / "folder"
    path.mkdir()
    (path / "old").touch()
    with pytest.raises(KeyboardInterrupt), atomic.write_folder(path, replace=replace):
        raise KeyboardInterrupt
    assert names(path) == ["old"] and names(tmp_path) == ["folder"]


def test_a_folder_is_replaced_only_when_asked_to(tmp_path):
    path = tmp_path / "folder"
    path.mkdir()
    (path / "old").touch()
    with pytest.raises(WriteError), atomic.write_folder(path) as temporary:
        (temporary / "new").touch()
    assert names(path) == ["old"]
    with atomic.write_folder(path, replace=True) as temporary:
        (temporary / "new").touch()
    assert names(path) == ["new"] and names(tmp_path) == ["folder"]


def test_a_folder_that_cannot_be_made_is_one_error(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(WriteError, match="cannot be written"):
        atomic.make_folder(tmp_path / "file" / "folder")
    atomic.make_folder(tmp_path / "a" / "b")
    assert names(tmp_path / "a" / "b") == []
