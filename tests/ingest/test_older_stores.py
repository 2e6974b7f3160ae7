"""Stores of older versions: read as they are, and moved over by who may write."""

import contextlib
import json
import sqlite3
import subprocess
import sys
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest

from forecaster.errors import DataError, ForecasterWarning, StoreError
from forecaster.files import INDEX, OLDER_INDEX, Home
from forecaster.ingest import Store, ingest, open_source
from forecaster.ingest.store import store as module
from forecaster.ingest.store.corrections import Adjustment
from forecaster.ingest.store.index import (
    Index,
    NotRebuilt,
)
from forecaster.ingest.store.older import older_files, read_index
from forecaster.ingest.store.series_file import decode, encode
from forecaster.ingest.tables.file_reader import join
from tests.conftest import prices
from tests.ingest.older import as_version, with_corrections, written
from tests.messages import refuses, warns


@pytest.fixture
def store(tmp_path) -> Store:
    store = ingest(Home(tmp_path), open_source("simulated"), ["AAPL", "KO"]).store
    with store.locked():
        store.mark("KO", "suspect", "contradicted")
        store.commit()
        store.quarantine({"AAPL": "damaged"})
    return ingest(Home(tmp_path), open_source("simulated"), ["AAPL", "KO", "GE"]).store


def test_version_1_is_read_and_what_is_newer_or_wrong_is_refused(tmp_path):
    fields = {"file": "f", "rows": 1, "first": "2020-01-02", "last": "2020-01-02", "sha256": "a"}
    old = {"schema": 1, "source": "yahoo", "series": {"AAA": fields}}
    (tmp_path / INDEX).write_text(json.dumps(old))
    assert read_index(tmp_path).series["AAA"].asked_from == "2020-01-02"  # to be asked for anew
    for wrong, error in (
        ({"schema": 3}, "version 3 of the store"),
        ({"series": {"AAA": fields | {"rows": "one"}}}, "cannot be read"),
        ({"series": {"AAA": {"first": "2020-01-02"}}}, "cannot be read .*`rows`"),
    ):
        (tmp_path / INDEX).write_text(json.dumps(old | wrong))
        with pytest.raises(StoreError, match=error):
            read_index(tmp_path)


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_who_locks_an_older_store_moves_it_over(tmp_path, store, version):
    before, frame = store.index, store.read(["AAPL", "KO"])
    as_version(version, store.folder)
    old = Store.open(Home(tmp_path), "simulated")
    pd.testing.assert_frame_equal(old.read(["AAPL", "KO"]), frame)
    if version > 1:
        assert old.index == before
    assert older_files(store.folder)  # opening alone writes nothing
    with old.locked():
        assert not older_files(store.folder)
    assert Index.read(store.folder / INDEX) == old.index
    again = ingest(Home(tmp_path), open_source("simulated"), ["AAPL", "KO", "GE"]).store
    assert again.ids == ["KO", "AAPL", "GE"] and len(again.flags()) >= 0
    pd.testing.assert_frame_equal(again.read(["AAPL", "KO"]), frame)


KILLED = """
import os, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA cache_size = 1")  # pages go to the disk early
connection.execute("BEGIN IMMEDIATE")
row = ("x" * 1000,) * 2
connection.executemany("INSERT INTO failed (name, reason) VALUES (?, ?)", [row] * 5000)
os._exit(9)
"""


def test_what_a_killed_process_of_version_3_has_half_written_is_undone(tmp_path, store):
    """It changed the file in place."""
    as_version(3, store.folder)
    path = store.folder / OLDER_INDEX
    assert subprocess.run([sys.executable, "-c", KILLED, path], check=False).returncode == 9
    assert path.stat().st_size > 1e6
    assert Store.open(Home(tmp_path), "simulated").index == store.index
    with store.locked():
        assert not older_files(store.folder)


@pytest.mark.parametrize("change", [
    "UPDATE series SET rows = 'many'", "DROP TABLE counts",
    "UPDATE series SET corrections = '{\"adjustments\": 1}'", "DELETE FROM store",
])  # fmt: skip
def test_a_database_that_is_not_as_version_4_wrote_it_is_refused(store, change):
    as_version(4, store.folder)
    with contextlib.closing(sqlite3.connect(store.folder / OLDER_INDEX)) as connection:
        connection.execute(change)
        connection.commit()
    with refuses(StoreError):
        read_index(store.folder)


SPLIT = "2020-03-02"


def raw(rows: int = 60) -> pd.DataFrame:
    """A split that the source leaves out of earlier rows, beside a ticker without one."""
    table = prices("NEW", 70).head(rows)
    table.loc[table["date"] >= SPLIT, ["open", "high", "low", "close"]] /= 4
    return pd.concat([table, prices("AAA", 70).head(rows)])


@pytest.fixture
def version_3(tmp_path) -> Store:
    """NEW was called OLD; its rows before the split were adjusted where they are stored."""
    path = tmp_path / "p.csv"
    raw().to_csv(path, index=False)
    store = ingest(Home(tmp_path / "home"), open_source(f"files:{path}"), None).store
    frame = store.read_one("NEW")
    before = frame["ds"] < SPLIT
    for name in ("open", "high", "low", "close"):
        frame[name] = frame[name].mask(before, frame[name] / 4)
    with store.locked():
        written(store, "NEW", frame)
        store.commit()
    as_version(3, store.folder)
    with_corrections(
        store.folder,
        adjustments={"NEW": [[SPLIT, 0.25, False, "0" * 64], ["2020-01-20", 1.0, False]]},
        renames={"OLD": "NEW", "OLDER": "NEW"},
        renamed_until={"OLD": "2020-02-03T00:00:00"},
        renamed_since={"NEW": "2020-02-03T00:00:00"},
    )
    return Store.open(Home(tmp_path / "home"), store.source)


def closes(store: Store) -> np.ndarray:
    return store.read_one("NEW")["close"].to_numpy()


def check_version_3(store: Store) -> None:
    its = store.corrections_of("NEW")
    assert its.adjustments == (
        Adjustment(SPLIT, 0.25, split=False),
        Adjustment("2020-01-20", 1.0, split=False),
    )
    assert its.names == {"OLD": pd.Timestamp("2020-02-03"), "OLDER": None}
    assert store.index.renames == {"OLD": "NEW", "OLDER": "NEW"}


def test_version_3_keeps_its_adjustments_and_renames(tmp_path, version_3):
    before, home = closes(version_3), Home(tmp_path / "home")
    check_version_3(version_3)
    assert len(older_files(version_3.folder)) == 5  # opening alone writes nothing
    with version_3.locked():
        assert not older_files(version_3.folder)
    for store in (version_3, Store.open(home, version_3.source)):
        check_version_3(store)
        np.testing.assert_array_equal(closes(store), before)
    (version_3.folder / INDEX).unlink()  # they are in the files of the series as well
    anew = Store(version_3.folder, Index(version_3.source))
    with anew.locked():
        check_version_3(anew)
    raw(61).to_csv(tmp_path / "p.csv", index=False)
    with warns(ForecasterWarning):
        store = ingest(home, open_source(version_3.source), None).store
    np.testing.assert_allclose(closes(store)[:-1], before)


@pytest.mark.parametrize("step", ["write", "not read back", "remove_file"])
def test_a_conversion_that_is_killed_or_fails_loses_nothing(version_3, monkeypatch, step):
    before = closes(version_3)
    with monkeypatch.context() as patch:
        if step == "not read back":
            patch.setattr(Index, "read", lambda _: Index("other"))
            with version_3.locked():  # the older files remain valid
                assert len(older_files(version_3.folder)) == 5
        else:
            owner = Index if step == "write" else module.atomic
            patch.setattr(owner, step, Mock(side_effect=KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt), version_3.locked():
                pass
    for _ in range(2):
        store = Store(version_3.folder, module._read_index(version_3.folder))
        check_version_3(store)
        np.testing.assert_array_equal(closes(store), before)
        with store.locked():
            assert not older_files(store.folder)


@pytest.mark.parametrize(
    "files", [{"renaming": ["AAA", "NEW"]}, {"adjustments": []}], ids=["renaming", "adjustments"]
)
def test_what_version_3_left_unfinished_or_damaged_is_named_and_stays(version_3, files):
    with_corrections(version_3.folder, **files)
    with refuses(NotRebuilt), version_3.locked():
        pass
    assert (version_3.folder / OLDER_INDEX).exists()


def test_an_adjustment_whose_rows_version_3_had_not_written_is_finished(version_3):
    before, entry = closes(version_3), version_3.index.series["NEW"]
    with_corrections(version_3.folder, adjustments={"NEW": [[SPLIT, 4, True, entry.sha256]]})
    store = Store(version_3.folder, module._read_index(version_3.folder))
    earlier = (store.read_one("NEW")["ds"] < SPLIT).to_numpy()
    np.testing.assert_allclose(closes(store), np.where(earlier, before * 4, before))


def test_units_are_kept_by_what_they_state_not_by_the_name_of_their_column():
    frame = prices("A", 3).rename(columns={"ticker": "unique_id", "date": "ds"})
    frame["ds"] = pd.to_datetime(frame["ds"])
    parts = [frame.copy(), frame.copy()]
    parts[0].attrs["units"], parts[1].attrs["units"] = {"ccy": "USD"}, {"currency": "EUR"}
    with pytest.raises(DataError, match="the currency of some is 'USD', of others 'EUR'"):
        join([decode(encode("A", part).raw) for part in parts])
