"""A fit under way on disk: what was written is what is found, or a clear error."""

import dataclasses
import os
import re
from unittest.mock import Mock

import pytest

from forecaster.errors import Kind, ModelError, Skipped, UsageError
from forecaster.files import FolderLock, Home, atomic, is_held
from forecaster.forecasting.config import Config
from forecaster.ingest import CovariateFiles, Store, ingest, open_source
from forecaster.storage import (
    FitRequest,
    UnfinishedFit,
    checkpoint_of,
    discard,
    rows_left_out,
    tell_of_others,
    unfinished_fits,
    versions,
)
from forecaster.storage.unfinished import read_request, write_request
from forecaster.swarm import checkpoints
from tests.messages import refuses


@pytest.fixture
def home(tmp_path) -> Home:
    return Home(tmp_path)


@pytest.fixture
def store(home) -> Store:
    return ingest(home, open_source("simulated"), ["AAPL", "KO"]).store


@pytest.fixture
def request_(store) -> FitRequest:
    return FitRequest(
        source="simulated",
        ids=("AAPL", "KO"),
        skipped={"GE": Skipped(Kind.NOT_LOADED, detail="no rows")},
        data_sha256=rows_left_out(store, store.ids, Config(), ("reversed",), None)[1],
        config=Config(hidden=4),
        seed=3,
        mask=("reversed",),
    )


def find(home, name=None, command="fit"):
    with UnfinishedFit.find(home, name, command=command):
        pass


def touch_checkpoint(unfinished):
    path = checkpoint_of(unfinished.shard(0)).path
    path.parent.mkdir()
    path.touch()


def begin(home, request, *, progress: bool = False) -> UnfinishedFit:
    """An unfinished fit whose process is gone."""
    with UnfinishedFit.begin(home, request) as unfinished:
        if progress:
            touch_checkpoint(unfinished)
    return unfinished


def test_what_was_begun_is_found_until_it_is_discarded(home, request_):
    begun = begin(home, request_)
    with UnfinishedFit.find(home) as again:
        assert again.request == request_ and again.folder == begun.folder and not again.has_progress
        touch_checkpoint(begun)
        assert again.has_progress and checkpoint_of(again.shard(0)).resume
        with UnfinishedFit.begin(home, request_) as other:  # beside the first, which stays
            assert not other.has_progress and again.has_progress
    discard(home, begun.name)
    discard(home, other.name)
    assert not home.unfinished.exists()
    for command in ("fit", "evaluate"):
        with refuses(UsageError):
            find(home, command=command)


@pytest.mark.parametrize("change", [("3,", "9,"), ("6 ", "5 "), ("{", "")])
def test_a_request_that_cannot_be_read_is_one_clear_error(home, request_, change):
    """Edited (the hidden size), of another version, or no JSON."""
    unfinished = begin(home, request_)
    path = unfinished.folder / "request.json"
    path.write_text(path.read_text().replace(*change))
    with refuses(ModelError):
        find(home)
    assert "cannot be read; `forecaster fit --discard" in unfinished_fits(home)[0].what
    discard(home, unfinished.name)
    assert not home.unfinished.exists()


@pytest.mark.parametrize("change", [{"data_sha256": "0"}, {"ids": ("AAPL", "GONE")}])
def test_other_data_are_refused(home, store, request_, change):
    unfinished = begin(home, request_)
    assert (unfinished.masked_rows(store)["flag"] == "reversed").all()
    other = begin(home, dataclasses.replace(request_, **change))
    with refuses(ModelError):
        other.masked_rows(store)


def refused(home, store) -> str:
    """Return why the only unfinished fit is not continued."""
    with pytest.raises(ModelError) as caught, UnfinishedFit.find(home) as again:
        again.masked_rows(store)
    assert not is_held(again.folder)  # it is free for others
    return str(caught.value)


def test_what_has_changed_is_named(home, store, request_, tmp_path, monkeypatch):
    """The bits would differ without a word."""
    file = tmp_path / "s.csv"
    file.write_text("unique_id,size\nAAPL,1\n")
    files = CovariateFiles(static=str(file))
    changed = {
        "versions": versions() | {"jax": "0.1"},
        "covariates": files,
        "covariates_sha256": files.sha256(),
    }
    begin(home, dataclasses.replace(request_, **changed))
    monkeypatch.setattr(checkpoints, "kernel_status", lambda: ("sse9", ""))
    file.write_text("unique_id,size\nAAPL,2\n")
    said = refused(home, store)
    assert said.startswith("the files of covariates, jax 0.1 (now "), said
    assert re.search(r", kernel \w+ \(now sse9\) have changed since the fit was inter", said), said


def test_a_name_that_none_has_is_refused(home, request_):
    begin(home, request_)
    for look in (find, discard):
        with refuses(UsageError):
            look(home, "x")


def test_a_removal_that_is_killed_leaves_nothing_that_looks_like_a_fit(home, request_, monkeypatch):
    begun = begin(home, request_, progress=True)
    with monkeypatch.context() as patch:
        patch.setattr(atomic.shutil, "rmtree", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            discard(home, begun.name)
    (left,) = home.unfinished.iterdir()
    assert left.name.startswith(atomic.PREFIX) and unfinished_fits(home) == []
    os.utime(left, (0, 0))
    begin(home, request_)
    assert not left.exists()


def test_one_that_is_running_is_left_alone_until_its_lock_is_free(home, request_):
    begun = begin(home, request_)
    lock = FolderLock(begun.folder)
    assert lock.try_acquire()
    for name in (None, begun.name):
        with refuses(UsageError):
            find(home, name)
    with refuses(UsageError):
        discard(home, begun.name)
    assert unfinished_fits(home)[0].running
    lock.release()
    assert not unfinished_fits(home)[0].running
    with UnfinishedFit.find(home):
        assert unfinished_fits(home)[0].running


def test_a_later_fit_names_what_it_keeps_and_removes_only_what_has_no_progress(home, request_):
    empty, kept = begin(home, request_), begin(home, request_, progress=True)
    with UnfinishedFit.begin(home, request_) as running:
        notices = []
        tell_of_others(home, notices.append)
        assert len(notices) == 2, notices
        assert f"Removed {empty.name}" in notices[0]
        assert f"fit --resume {kept.name}` continues it" in notices[1]
        assert f"--discard {kept.name}` removes it" in notices[1]
        names = {fit.name for fit in unfinished_fits(home)}
        assert names == {kept.name, running.name}, notices


def test_names_that_are_not_utf8_are_read_as_they_were_written(tmp_path, request_):
    odd = dataclasses.replace(request_, source="files:k\udcf6ln.csv")
    write_request(tmp_path / "request.json", odd)
    assert read_request(tmp_path / "request.json") == odd
