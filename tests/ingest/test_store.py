"""The price store: what was written is what is read, or an error; and its export."""

import functools
import os

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from forecaster.errors import DataError, Kind, Skipped, StoreError, UsageError, WriteError
from forecaster.files import Home, file_name
from forecaster.ingest import Store, ingest, open_source, panel_from_store
from forecaster.ingest.sources.source import Fetched
from forecaster.ingest.store.index import Index
from forecaster.ingest.store.store import export_prices
from tests.conftest import prices
from tests.ingest.older import changing, written
from tests.messages import refuses


@pytest.fixture
def store(tmp_path) -> Store:
    return ingest(Home(tmp_path), open_source("simulated"), ["AAPL", "KO"]).store


def test_what_was_stored_is_read(tmp_path, store):
    again = Store.open(Home(tmp_path), "simulated")
    assert again.ids == ["AAPL", "KO"] and again.index == store.index
    frame = again.read(["KO"])
    fetched = next(open_source("simulated").fetch(["KO"])).frame
    assert fetched is not None
    pd.testing.assert_frame_equal(frame, fetched)
    assert panel_from_store(again, ["KO", "AAPL"]).ids == ("KO", "AAPL")
    assert [s.source for s in Store.all_of(Home(tmp_path))] == ["simulated"]


def test_every_flipped_bit_is_found(tmp_path, store):
    path = store.folder / store.index.series["KO"].file
    good = path.read_bytes()
    random = np.random.default_rng(0)
    for place, bit in zip(
        random.integers(0, len(good), 100), random.integers(0, 8, 100), strict=True
    ):
        bad = bytearray(good)
        bad[place] ^= 1 << bit
        path.write_bytes(bad)
        with refuses(StoreError):
            store.read(["KO"])
    path.write_bytes(good[:-1])
    with refuses(StoreError):
        store.read(["KO"])
    path.unlink()
    with refuses(StoreError):
        store.read(["KO"])


def test_a_lost_index_is_made_anew_with_series_of_any_name(tmp_path):
    names = ["flags.x", "flags", "flags.0123456789ab", "FLAGS.X", ".tmp-a", "manifest.json", "a~b"]
    table = pd.concat([prices(name, 30) for name in names])
    table.to_csv(tmp_path / "p.csv", index=False)
    home, source = Home(tmp_path / "home"), open_source(f"files:{tmp_path / 'p.csv'}")
    stored = ingest(home, source, None).store
    (stored.folder / "manifest.json").unlink()
    anew = Store(stored.folder, Index(source.name))
    with anew.locked():
        series = anew.index.series
        assert set(series) == set(names) and not anew.index.quarantine
        assert {name: entry.file for name, entry in series.items()} == {
            name: entry.file for name, entry in stored.index.series.items()
        }
        flags = list(anew.folder.glob("flags.????????????.parquet"))
        assert flags
        for path in anew.folder.glob("*.parquet"):
            os.utime(path, (0, 0))
        anew.sweep()  # only the flags, which nothing names any more
        assert not anew.damages() and not any(path.exists() for path in flags)


@pytest.mark.parametrize("file", ["../out", "/etc/passwd", "..", ""])
def test_files_outside_of_the_store_are_left_alone(tmp_path, store, file):
    """Whatever an index says: its checksum tells damage, not forgery."""
    (store.folder.parent / "out").write_text("kept")
    entry = store.index.series["KO"]
    with changing(store.folder / "manifest.json") as index:
        index.series["KO"] = replace(entry, file=file)
    forged = Store.open(Home(tmp_path), "simulated")
    with refuses(StoreError):
        forged.read(["KO"])
    with refuses(StoreError):
        ingest(Home(tmp_path), Failing(None), ["KO"])
    assert (store.folder.parent / "out").read_text() == "kept"


class Failing:
    name = "simulated"

    def __init__(self, fail_at: str | None):
        self.fail_at = fail_at

    def tickers(self):
        return ["AAPL", "KO", "GE"]

    def fingerprint(self):
        return None

    def fetch(self, tickers, start=None, known=None):
        for item in open_source("simulated").fetch(tickers):
            assert item.frame is not None
            item = item._replace(frame=item.frame.tail(100).reset_index(drop=True))
            if item.unique_id == self.fail_at:
                raise KeyboardInterrupt
            yield item if item.unique_id != "GE" else Fetched("GE", None, "no such company")


def test_what_arrived_before_an_interruption_is_kept(tmp_path, store):
    before = store.read(["KO"])
    with pytest.raises(KeyboardInterrupt):
        ingest(Home(tmp_path), Failing("KO"), None)
    again = Store.open(Home(tmp_path), "simulated")
    assert len(again.read(["AAPL"])) < len(store.read(["KO"]))  # the new, shorter one
    pd.testing.assert_frame_equal(again.read(["KO"]), before)
    assert not [p for p in again.folder.iterdir() if p.name.startswith(".tmp")]


def test_series_that_fail_are_named(tmp_path):
    arrived = ingest(Home(tmp_path), Failing(None), None)
    assert arrived.ids == ["AAPL", "KO"]
    assert arrived.skipped == {"GE": Skipped(Kind.NOT_LOADED, detail="no such company")}
    with refuses(DataError):
        ingest(Home(tmp_path), Failing(None), ["GE"])


def test_a_full_disk_leaves_the_old_state(tmp_path, store, monkeypatch):
    before = store.read(["KO"])

    def full(descriptor):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        with refuses(WriteError):
            ingest(Home(tmp_path), Failing(None), ["AAPL"])
    again = Store.open(Home(tmp_path), "simulated")
    pd.testing.assert_frame_equal(again.read(["KO"]), before)
    again.read(["AAPL"])
    assert not [p for p in again.folder.iterdir() if p.name.startswith(".tmp")]


@given(st.text(min_size=1, max_size=300))
def test_any_name_is_a_harmless_file_name(name):
    made = file_name(name)
    assert "/" not in made and "\\" not in made and "\0" not in made
    assert made not in ("", ".", "..") and not made.startswith(".") and len(made) <= 130


def test_file_names_do_not_collide():
    names = ["a", "A", "Aa", "aA", "a/b", "a%2Fb", "CON", "con", "..", ".", "é"]
    names += ["x" * 200, "x" * 201]
    assert len({file_name(n).lower() for n in names}) == len(names)
    assert file_name("AAPL") == "AAPL" and file_name("^GSPC") == "^GSPC"


def test_readers_find_the_old_state_until_the_new_one_counts(tmp_path, store):
    """A writer that is killed before it commits has changed nothing for anybody."""
    before = store.read(["KO"])
    writer = Store.open(Home(tmp_path), "simulated")
    with writer.locked():
        written(writer, "KO", before.head(10))
        pd.testing.assert_frame_equal(Store.open(Home(tmp_path), "simulated").read(["KO"]), before)
        writer.commit()
    assert len(Store.open(Home(tmp_path), "simulated").read(["KO"])) == 10
    assert len(list(store.folder.glob("KO.*.parquet"))) == 1  # the old one is gone


def test_two_writers_lose_nothing_of_each_other(tmp_path):
    first, second = (Store.open(Home(tmp_path), "simulated") for _ in range(2))
    frame = next(open_source("simulated").fetch(["KO"])).frame
    assert frame is not None
    for store, name in ((first, "KO"), (second, "GE")):
        with store.locked():
            written(store, name, frame)
            store.commit()
    assert set(Store.open(Home(tmp_path), "simulated").ids) == {"KO", "GE"}


@pytest.fixture
def home(tmp_path):
    ingest(Home(tmp_path / "home"), open_source("simulated"), ["AAPL", "KO"])
    return Home(tmp_path / "home")


READ = {"csv": functools.partial(pd.read_csv, parse_dates=["ds"]), "parquet": pd.read_parquet}


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_what_is_stored_comes_out(home, tmp_path, ending):
    path = tmp_path / f"out.{ending}"
    rows = export_prices(home, path)
    table = READ[ending](path)
    assert len(table) == rows and list(dict.fromkeys(table["unique_id"])) == ["AAPL", "KO"]
    frames = [item.frame for item in open_source("simulated").fetch(["AAPL", "KO"])]
    expected = pd.concat([frame for frame in frames if frame is not None], ignore_index=True)
    pd.testing.assert_frame_equal(table, expected, check_dtype=False)
    # And in again.
    again = ingest(Home(tmp_path / "again"), open_source(f"files:{path}"), None)
    pd.testing.assert_frame_equal(again.store.read(["AAPL", "KO"]), expected, check_dtype=False)


def test_errors_say_what_to_do(home, tmp_path):
    with refuses(UsageError):
        export_prices(home, tmp_path / "out.xyz")
    with refuses(UsageError):
        export_prices(home, tmp_path / "out.csv", ["NOPE"])
    with refuses(UsageError):
        export_prices(Home(tmp_path / "nowhere"), tmp_path / "out.csv")
    (tmp_path / "there.csv").write_text("mine")
    with refuses(UsageError):
        export_prices(home, tmp_path / "there.csv")
    assert (tmp_path / "there.csv").read_text() == "mine"
    export_prices(home, tmp_path / "there.csv", ["KO"], overwrite=True)
    assert (tmp_path / "there.csv").read_text().startswith("unique_id,ds,")


def test_the_first_row_decides_whether_a_series_is_adjusted(tmp_path):
    days = pd.bdate_range("2024-01-01", periods=4)
    bars = {"open": 10.0, "high": 12.0, "low": 9.0, "close": 11.0, "volume": 5}
    adjusted = {"WITH": [5.5, None, 5.5, 5.5], "LATER": [None, 5.5, 5.5, 5.5], "NONE": [None] * 4}
    parts = [
        pd.DataFrame({"ticker": name, "date": days, **bars, "adj_close": values})
        for name, values in adjusted.items()
    ]
    pd.concat(parts).to_csv(tmp_path / "in.csv", index=False)
    ingest(Home(tmp_path / "home"), open_source(f"files:{tmp_path / 'in.csv'}"), None)
    export_prices(Home(tmp_path / "home"), tmp_path / "out.csv", adjusted=True)
    table = pd.read_csv(tmp_path / "out.csv")
    assert "adj_close" not in table
    close = {str(name): part["close"].tolist() for name, part in table.groupby("unique_id")}
    assert close["LATER"] == close["NONE"] == [11.0] * 4
    assert close["WITH"][0] == close["WITH"][2] == close["WITH"][3] == 5.5
    assert np.isnan(close["WITH"][1])  # no jump to 11 and back
    assert table["high"][table["unique_id"] == "WITH"].max() == 6.0
