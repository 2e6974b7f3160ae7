"""Runs: their names, and which of them answers when none is named."""

import dataclasses
import hashlib
import json
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import forecaster as fc
from forecaster.errors import ModelError, UsageError
from forecaster.files import Home, run_name, run_time
from forecaster.ingest import Store
from forecaster.ingest.store.corrections import Corrections
from forecaster.storage import choose_run, remove_run, rename_run, runs_of, save_run
from forecaster.storage.prices import under_new_names
from forecaster.storage.run import SCHEMA, read_index
from tests.ingest.older import written
from tests.messages import refuses


@pytest.fixture
def home(tmp_path) -> Home:
    return Home(tmp_path)


@pytest.fixture
def saved(model, home):
    """Saves a run of a source, with networks for some of the tickers."""

    def save(name: str, source: str, ids: list[str]) -> Path:
        provenance = {**model.provenance, "source": source}
        return save_run(home, dataclasses.replace(model.only(ids), provenance=provenance), name)

    return save


def chosen(home: Home, *tickers: str) -> tuple[str, list[str]]:
    """The name of the run that is taken, and what is said of it."""
    said: list[str] = []
    return choose_run(home, None, tickers or None, said.append).name, said


REAL = {"real": "files:p.csv AAPL", "demo": "simulated AAPL KO"}
TWO = {"old": "yahoo AAPL KO", "new": "yahoo AAPL IBM"}
SOURCES = {"a1": "files:a.csv AAPL KO", "b": "files:b.csv AAPL", "a2": "files:a.csv KO"}


@pytest.mark.parametrize(
    ("runs", "tickers", "expected", "newer"),
    [
        ({"a": "yahoo AAPL KO"}, "ko", "a", None),  # one run is taken without a word
        ({"a": "yahoo AAPL KO"}, "", "a", None),
        (REAL, "AAPL", "real", "demo"),  # a simulated one never answers for what a real one knows
        (REAL, "AAPL KO", "real", "demo"),
        (REAL, "", "real", "demo"),
        (REAL, "KO", "demo", None),  # no other knows it
        (TWO, "AAPL", "new", ""),  # the latest of those that know the ticker
        (TWO, "KO IBM AAPL", "new", ""),  # of equals the latest
        (TWO, "KO AAPL", "old", "new"),
        (SOURCES, "AAPL", "a1", "a2, b"),  # of the source that was fitted last
    ],
)
def test_the_run_that_fits_the_tickers_best_answers(home, saved, runs, tickers, expected, newer):
    for name, made in runs.items():
        source, *ids = made.split()
        saved(name, source, ids)
    taken, said = chosen(home, *tickers.split())
    assert taken == expected
    notices = [] if newer is None else [f"Run: {choose_run(home, expected)}"]
    if newer:
        why = "of simulated data or another source, or without some of the tickers"
        notices.append(f"  newer, but not taken ({why}): {newer}; --run NAME takes one")
    assert said == notices


def test_no_run_that_knows_the_ticker_is_an_error(home, saved):
    with refuses(ModelError):
        choose_run(home)
    saved("a", "yahoo", ["AAPL"])
    saved("demo", "simulated", ["KO"])
    with refuses(ModelError):
        choose_run(home, None, ["AAPX"])


def test_a_later_run_of_another_source_and_version_is_passed_over(home, saved):
    saved("sound", "yahoo", ["AAPL"])
    later = saved("later", "files:x.csv", ["IBM"])
    rest = json.loads((later / "model.json").read_text())
    (later / "model.json").write_text(json.dumps(rest | {"schema": 1}))
    assert chosen(home, "AAPL")[0] == "sound"


@pytest.mark.parametrize("others", [["sound", "other"], []])
def test_a_damaged_latest_run_is_an_error_that_names_another(home, saved, others):
    for name in others:
        saved(name, "yahoo", ["AAPL"])
    saved("demo", "simulated", ["AAPL"])
    bad = saved("bad", "yahoo", ["AAPL"])
    assert chosen(home, "AAPL")[0] == "bad"
    (bad / "model.json").write_text("{")
    for source in (None, "yahoo"):
        with refuses(ModelError):
            choose_run(home, None, ["AAPL"], source=source)
    assert choose_run(home, "demo").name == "demo"
    sound, damaged = runs_of(home)
    assert [run.name for run in sound] == [*others, "demo"] and list(damaged) == [bad]
    assert remove_run(home, "bad") not in home.runs()
    assert chosen(home, "AAPL")[0] == (others or ["demo"])[-1]


def test_a_run_is_named_renamed_and_removed(home, saved):
    first, second = saved("a", "yahoo", ["AAPL"]), saved("b", "yahoo", ["KO"])
    assert run_name(first) == "a" and run_time(first) is not None
    moved = rename_run(home, "A", "weekly.1")  # letter case does not count
    assert home.runs() == [moved, second] and run_name(moved) == "weekly.1"
    assert run_time(moved) == run_time(first) and fc.load(moved).ids == ("AAPL",)
    assert choose_run(home, "Weekly.1").folder == moved
    with refuses(UsageError):
        remove_run(home, "a")
    assert remove_run(home, "weekly.1") == moved
    assert list(home.models.iterdir()) == [second]


def test_of_a_run_that_is_a_link_only_the_link_is_removed(home, saved, tmp_path):
    kept = saved("a", "yahoo", ["AAPL"]).rename(tmp_path / "elsewhere")
    link = home.models / "linked"
    link.symlink_to(kept, target_is_directory=True)
    assert remove_run(home, "linked") == link
    assert list(home.models.iterdir()) == [] and fc.load(kept).ids == ("AAPL",)


def test_an_index_that_swells_is_refused_unread(tmp_path, monkeypatch):
    rows = 5_000_000
    table = pa.table({"unique_id": pa.array(["a"] * rows), "shard": np.zeros(rows, np.int32)})
    pq.write_table(table, tmp_path / "index.parquet")
    raw = (tmp_path / "index.parquet").read_bytes()
    monkeypatch.setattr(pq.ParquetFile, "read_row_group", lambda *_, **__: pytest.fail("read"))
    rest = {"schema": SCHEMA, "shards": 1, "index_sha256": hashlib.sha256(raw).hexdigest()}
    with refuses(ModelError):
        read_index(tmp_path, rest)


@pytest.mark.parametrize(
    "name", ["", "a b", "../a", "-a", ".a", "a/b", "con", "x" * 61, "20260101-000000-000-lstm", "ä"]
)
def test_what_cannot_be_a_name_is_refused(home, name):
    with refuses(UsageError):
        home.check_new_name(name)


def test_a_name_is_given_once(home, saved):
    saved("a", "yahoo", ["AAPL"])
    for name in ("a", "A"):
        with refuses(UsageError):
            home.check_new_name(name)
        with refuses(UsageError):
            rename_run(home, "a", name)
    # A name that was taken while the fit trained: nothing is lost, and nothing replaced.
    assert run_name(saved("a", "yahoo", ["KO"])).endswith("-lstm") and len(home.runs()) == 2


def test_a_folder_that_is_no_run_of_the_home_can_be_named(home, model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fc.save(model, tmp_path / "elsewhere" / "mine")
    for named in ("elsewhere/mine", Path("elsewhere/mine")):
        assert choose_run(home, named).folder == Path("elsewhere/mine")


def test_a_run_is_renamed_unless_it_learned_from_the_company_that_was_given_the_name(tmp_path):
    home, source = Home(tmp_path), "files:p.csv"
    store = Store.open(home, source)
    rows = pd.DataFrame({"ds": pd.bdate_range("2024-06-03", periods=5), "close": 7.0})
    with store.locked():
        written(store, "OLD", rows)
        written(store, "NEW", rows)
        store.commit()
        store.correct("NEW", Corrections(names={"OLD": None}))
        store.commit()
    for until, expected in (("2024-05-31", {"OLD": "NEW"}), ("2024-06-04", None)):
        run = Mock(provenance={"source": source}, fitted_until={"OLD": np.datetime64(until)})
        made = under_new_names(Store.open(home, source), run)
        assert made is run if expected is None else run.renamed.call_args.args == (expected,)
