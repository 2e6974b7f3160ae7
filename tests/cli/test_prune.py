"""``prune`` removes what nothing needs, when told, and nothing else."""

import os
import shutil
import time

import pandas as pd
import pytest

from forecaster.files import FolderLock, Home
from forecaster.record import read_record
from tests.conftest import run
from tests.record.made import forecast, store, table

RUNS = [f"2024010{day}-000000-000-lstm" for day in range(1, 5)]


@pytest.fixture
def cluttered(home, tmp_path):
    """A home with four runs and one with a name, old programs, an unread store, and a record."""
    copied = Home(tmp_path / "home")
    shutil.copytree(home / "prices", copied.prices)
    (saved,) = (home / "models").iterdir()
    for name in [*RUNS, "20240101-000000-001.weekly"]:
        shutil.copytree(saved, copied.models / name)
    copied.cache.mkdir()
    for name in ("old", "new"):
        (copied.cache / name).write_bytes(b"0" * 1000)
    source = store(copied, table())
    for until in (60, 61, 70):
        forecast(copied, source, until)
    other = tmp_path / "other"
    other.mkdir()
    store(Home(other / "home"), table())
    theirs, ours = other / "home" / "prices", copied.prices
    shutil.copytree(theirs, ours, dirs_exist_ok=True)
    past = time.time() - 40 * 86_400
    for path in [copied.cache / "old", *_files_of_store(copied, str(other))]:
        os.utime(path, (past, past))
    return copied


def _files_of_store(home, source):
    from forecaster.ingest import Store

    (found,) = [one.folder for one in Store.all_of(home) if source in one.source]
    return list(found.glob("*"))


def content(home):
    return sorted(path for path in home.folder.rglob("*") if not path.name.startswith(".lock"))


def test_it_lists_what_it_would_remove_and_removes_that_when_told(cluttered):
    before = content(cluttered)
    shown = run("prune", "--runs", 2, "--home", cluttered)
    assert shown.exit_code == 0 and content(cluttered) == before
    for text in (
        f"run {RUNS[0]} (", f"run {RUNS[1]} (", "1 files of the cache (0.00 MB): not used for 30",
        "store of files:", "Nothing has been removed",
    ):  # fmt: skip
        assert text in shown.stdout
    assert RUNS[2] not in shown.stdout and "weekly" not in shown.stdout
    frames = read_record(cluttered).frames
    for folder in cluttered.stores():
        (cluttered.downloads / folder.name / "files").mkdir(parents=True)
    assert run("prune", "--runs", 2, "--yes", "--home", cluttered).exit_code == 0
    copies = {path.name for path in cluttered.downloads.iterdir()}
    assert copies == {folder.name for folder in cluttered.stores()}
    left = {path.name for path in cluttered.models.iterdir()}
    assert left == {*RUNS[2:], "20240101-000000-001.weekly"}
    assert [path.name for path in cluttered.cache.iterdir()] == ["new"]
    assert len(cluttered.stores()) == 2
    for source, frame in read_record(cluttered).frames.items():
        pd.testing.assert_frame_equal(frame, frames[source], check_categorical=False)
    again = run("prune", "--runs", 2, "--home", cluttered)
    assert "Nothing to remove" in again.stdout


def test_what_is_in_use_stays(cluttered):
    unfinished = cluttered.unfinished / RUNS[0]
    unfinished.mkdir(parents=True)
    (unfinished / "request.json").write_text("{}")
    lock = FolderLock(cluttered.models / RUNS[1])
    assert lock.try_acquire()
    try:
        shown = run("prune", "--runs", 1, "--yes", "--home", cluttered).stdout
    finally:
        lock.release()
    assert {path.name for path in cluttered.models.iterdir()} >= set(RUNS[:2])
    assert RUNS[2] in shown and "store of" not in shown and unfinished.exists()
    cluttered.daily.mkdir()
    lock = FolderLock(cluttered.daily)
    assert lock.try_acquire()
    done = run("prune", "--yes", "--days", 0, "--home", cluttered)
    lock.release()
    assert done.exit_code == 1 and "a daily run" in done.stderr
    assert (cluttered.cache / "new").exists()


def test_a_damaged_run_keeps_the_stores(cluttered):
    (cluttered.models / RUNS[3] / "model.json").write_text("{")
    shown = run("prune", "--runs", 9, "--home", cluttered).stdout
    assert "store of" not in shown and "run " not in shown
