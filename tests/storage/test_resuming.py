"""A fit under way on disk: what was written is what is found, or a clear error."""

import dataclasses
import json

import pytest

from forecaster.config import Config
from forecaster.errors import ModelError, UsageError
from forecaster.home import Home
from forecaster.ingest import Store, ingest, masked_rows, open_source
from forecaster.storage import FitRequest, UnfinishedFit, data_digest


@pytest.fixture
def home(tmp_path) -> Home:
    return Home(tmp_path)


@pytest.fixture
def store(home) -> Store:
    return ingest(home, open_source("simulated"), ["AAPL", "KO"]).store


@pytest.fixture
def request_(store) -> FitRequest:
    masked = masked_rows(store, store.ids, ("reversed",))
    return FitRequest(
        source="simulated",
        ids=("AAPL", "KO"),
        skipped={"GE": "no rows"},
        data_sha256=data_digest(store, store.ids, masked),
        config=Config(hidden=4),
        seed=3,
        mask=("reversed",),
    )


def test_what_was_begun_is_found(home, request_):
    begun = UnfinishedFit.begin(home, request_)
    again = UnfinishedFit.find(home)
    assert again.request == request_ and again.checkpoint == begun.checkpoint
    assert sorted(json.loads((home.unfinished / "request.json").read_text())) == [
        "config", "data_sha256", "end", "ids", "mask", "schema", "seed", "skipped", "source",
        "start", "tune",
    ]  # fmt: skip


def test_it_has_progress_once_there_is_a_checkpoint(home, request_):
    assert not UnfinishedFit.has_progress(home)
    unfinished = UnfinishedFit.begin(home, request_)
    assert not UnfinishedFit.has_progress(home)
    unfinished.checkpoint.path.touch()
    assert UnfinishedFit.has_progress(home) and UnfinishedFit.find(home).checkpoint.resume
    UnfinishedFit.begin(home, request_)  # in place of the first
    assert not UnfinishedFit.has_progress(home)


def test_discarded_it_is_gone(home, request_):
    UnfinishedFit.begin(home, request_).discard()
    assert not home.unfinished.exists()
    with pytest.raises(UsageError, match="no unfinished fit under"):
        UnfinishedFit.find(home)


@pytest.mark.parametrize("change", [{"schema": 9}, {"seeds": 1}, {"config": {"hiden": 3}}])
def test_a_request_that_cannot_be_read_is_one_clear_error(home, request_, change):
    UnfinishedFit.begin(home, request_)
    path = home.unfinished / "request.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ModelError, match=r"request\.json: .*fit without --resume"):
        UnfinishedFit.find(home)


@pytest.mark.parametrize("change", [{"data_sha256": "0"}, {"ids": ("AAPL", "GONE")}])
def test_other_data_are_refused(home, store, request_, change):
    unfinished = UnfinishedFit.begin(home, request_)
    assert (unfinished.masked_rows(store)["flag"] == "reversed").all()
    other = UnfinishedFit.begin(home, dataclasses.replace(request_, **change))
    with pytest.raises(ModelError, match="prices have changed since the fit was interrupted"):
        other.masked_rows(store)
