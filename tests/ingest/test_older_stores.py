"""Stores of older versions: read as they are, and moved over by who may write."""

import hashlib
import json
import os
import shutil
import stat
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest

import forecaster as fc
from forecaster.errors import ForecasterWarning, StoreError, WriteError
from forecaster.home import INDEX, MANIFEST, Home
from forecaster.ingest import Store, export_prices, ingest, open_source
from forecaster.ingest.store import index_file
from forecaster.ingest.store import store as module
from forecaster.ingest.store.corrections import Adjustment
from forecaster.ingest.store.index import (
    Index,
    NewerStore,
    Origin,
    Quality,
    Quarantined,
    SeriesEntry,
)
from forecaster.ingest.store.older import older_files, read_manifest
from tests.conftest import prices, run
from tests.ingest.older import as_version, contents, with_corrections

VERSION_2 = """{
 "sha256": "HASH",
 "schema": 2,
 "source": "files:/p.csv",
 "series": {
  "AAA": {"rows": 3, "first": "2020-01-02", "last": "2020-01-06", "sha256": "aa", \
"file": "AAA.aa.parquet", "fingerprint": "f1"},
  "BBB": {"rows": 3, "first": "2020-01-02", "last": "2020-01-06", "sha256": "aa", \
"file": "BBB.bb.parquet", "state": "suspect", "reason": "contradicted"}
 },
 "origin": {"fingerprint": "f1", "tickers": ["AAA", "BAD"], "failed": {"BAD": "no rows"}},
 "quality": {"file": "flags.ff.parquet", "sha256": "ff", "of": "DIGEST", "series": {"AAA": \
{"gaps": 2, "copied": 1}}},
 "quarantine": [{"series": "CCC", "file": null, "reason": "damaged", "asked_from": "2019-01-01"}]
}"""
DIGEST = hashlib.sha256(b"AAA aa\nBBB aa").hexdigest()


def hashed(text: str) -> str:
    blank = text.replace("HASH", "0" * 64)
    return text.replace("HASH", hashlib.sha256(blank.encode()).hexdigest())


@pytest.fixture
def store(tmp_path) -> Store:
    store = ingest(Home(tmp_path), open_source("simulated"), ["AAPL", "KO"]).store
    with store.locked():
        store.suspect("KO", "contradicted")
        store.commit()
        store.quarantine({"AAPL": "damaged"})
    return ingest(Home(tmp_path), open_source("simulated"), ["AAPL", "KO", "GE"]).store


def test_version_2_is_read_with_all_that_it_holds(tmp_path):
    path = tmp_path / MANIFEST
    path.write_text(hashed(VERSION_2.replace("DIGEST", DIGEST)))
    index = read_manifest(path)
    entry = SeriesEntry(3, "2020-01-02", "2020-01-06", "aa", "AAA.aa.parquet", fingerprint="f1")
    other = entry._replace(file="BBB.bb.parquet", fingerprint=None).as_suspect("contradicted")
    assert list(index.series.items()) == [("AAA", entry), ("BBB", other)]
    assert index.source == "files:/p.csv"
    assert index.origin == Origin("f1", ["AAA", "BAD"], {"BAD": "no rows"})
    assert index.quality == Quality("flags.ff.parquet", "ff", DIGEST)
    assert index.counts == {"AAA": {"gaps": 2, "copied": 1}}
    assert index.quarantine == [Quarantined("CCC", None, "damaged", "2019-01-01")]
    path.write_text(hashed(VERSION_2.replace("DIGEST", "of other prices")))
    assert read_manifest(path).quality == Quality("flags.ff.parquet", "ff", None)


def test_the_hash_of_version_2_is_of_all_other_bytes(tmp_path):
    path = tmp_path / MANIFEST
    path.write_text(hashed(VERSION_2).replace("2020-01-06", "2020-01-07"))
    with pytest.raises(StoreError, match="its content is not what was written"):
        read_manifest(path)


def test_version_1_is_read_and_a_newer_one_refused(tmp_path):
    path = tmp_path / MANIFEST
    fields = {"file": "f", "rows": 1, "first": "2020-01-02", "last": "2020-01-02", "sha256": "a"}
    old = {"schema": 1, "source": "yahoo", "series": {"AAA": fields}}
    path.write_text(json.dumps(old))
    series = read_manifest(path).series["AAA"]
    assert series.asked_from == "2020-01-02" and not series.suspect  # to be asked for anew
    path.write_text(json.dumps(old | {"source": "simulated"}))
    assert read_manifest(path).series["AAA"].asked_from is None
    path.write_text(json.dumps(old | {"schema": 3}))
    with pytest.raises(NewerStore, match="version 3 of the store"):
        read_manifest(path)
    for wrong in ({"rows": "one"}, {"rows": 1.5}, {"first": None}, {"file": ["f"]}):
        path.write_text(json.dumps(old | {"series": {"AAA": fields | wrong}}))
        with pytest.raises(StoreError, match="cannot be read"):
            read_manifest(path)
    del fields["rows"]
    path.write_text(json.dumps(old))
    with pytest.raises(StoreError, match=r"cannot be read .no 'rows'"):
        read_manifest(path)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_who_locks_an_older_store_moves_it_over(tmp_path, store, version):
    before, frame = contents(store.index), store.read(["AAPL", "KO"])
    as_version(version, store.folder)
    old = Store.open(Home(tmp_path), "simulated")
    pd.testing.assert_frame_equal(old.read(["AAPL", "KO"]), frame)
    if version > 1:
        assert contents(old.index) == before
    assert old.index.is_older  # opening alone writes nothing
    assert Store.open(Home(tmp_path), "simulated").index.is_older
    export_prices(Home(tmp_path), tmp_path / "out.csv")
    assert not (store.folder / MANIFEST).exists()
    assert not Store.open(Home(tmp_path), "simulated").index.is_older
    moved = Index.read(store.folder / INDEX)
    assert contents(moved) == contents(old.index)
    again = ingest(Home(tmp_path), open_source("simulated"), ["AAPL", "KO", "GE"]).store
    assert again.ids == ["KO", "AAPL", "GE"] and again.is_reviewed
    pd.testing.assert_frame_equal(again.read(["AAPL", "KO"]), frame)


def test_a_commit_without_a_lock_moves_it_over_too(tmp_path, store):
    as_version(2, store.folder)
    old = Store.open(Home(tmp_path), "simulated")
    old.write("IBM", store.read(["KO"]).assign(unique_id="IBM"))
    old.commit()
    assert not (store.folder / MANIFEST).exists() and old.ids == ["KO", "AAPL", "GE", "IBM"]


def test_a_manifest_beside_an_index_is_the_one_that_counts(tmp_path, store):
    """It is that of a move that was interrupted, or of an older program that wrote it since."""
    index = (store.folder / INDEX).read_bytes()
    as_version(2, store.folder)
    old = Store.open(Home(tmp_path), "simulated")
    (store.folder / INDEX).write_bytes(index[:-100])
    assert contents(Store.open(Home(tmp_path), "simulated").index) == contents(old.index)
    with old.locked():
        assert not (store.folder / MANIFEST).exists()
    assert contents(Store.open(Home(tmp_path), "simulated").index) == contents(old.index)


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write everywhere")
def test_an_older_store_that_may_only_be_read_is_read_and_stays(tmp_path, store):
    as_version(2, store.folder)
    mode = stat.S_IMODE(store.folder.stat().st_mode)
    store.folder.chmod(0o500)
    try:
        assert export_prices(Home(tmp_path), tmp_path / "out.csv") > 0
    finally:
        store.folder.chmod(mode)
    assert (store.folder / MANIFEST).exists() and not (store.folder / INDEX).exists()


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_disk_without_room_for_the_move_is_read_on(tmp_path, store, version, monkeypatch):
    as_version(version, store.folder)
    full = OSError(28, "No space left on device")

    def no_room(self, path, **_):
        raise WriteError("full") from full

    monkeypatch.setattr(Index, "write", no_room)
    assert export_prices(Home(tmp_path), tmp_path / "out.csv") > 0
    assert Store.open(Home(tmp_path), "simulated").index.is_older


@pytest.mark.parametrize("version", [None, 1, 2])
def test_the_folder_of_the_data_may_hold_a_home_of_any_version(tmp_path, version):
    prices("AAA", 60).to_csv(tmp_path / "AAA.csv", index=False)
    assert run("ingest", "--source", f"files:{tmp_path}", "--home", tmp_path / "h").exit_code == 0
    (folder,) = Home(tmp_path / "h").stores()
    if version == 2:
        as_version(2, folder)
    panel = fc.load_panel(f"files:{tmp_path}")
    assert panel.ids == ("AAA",) and not panel.skipped
    shutil.rmtree(folder)


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
    store.write("NEW", frame)
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
    assert len(older_files(version_3.folder)) == 4  # opening alone writes nothing
    with version_3.locked():
        assert not older_files(version_3.folder)
    for store in (version_3, Store.open(home, version_3.source)):
        check_version_3(store)
        np.testing.assert_array_equal(closes(store), before)
    (version_3.folder / INDEX).unlink()  # they are in the files of the series as well
    anew = Store.open_or_recover(home, version_3.source)
    with anew.locked():
        check_version_3(anew)
    raw(61).to_csv(tmp_path / "p.csv", index=False)
    with pytest.warns(ForecasterWarning, match=f"NEW: .. rows before {SPLIT} came unadjusted"):
        store = ingest(home, open_source(version_3.source), None).store
    np.testing.assert_allclose(closes(store)[:-1], before)


@pytest.mark.parametrize("step", ["write", "not read back", "remove_file"])
def test_a_conversion_that_is_killed_or_fails_loses_nothing(version_3, monkeypatch, step):
    before = closes(version_3)
    with monkeypatch.context() as patch:
        if step == "not read back":
            patch.setattr(index_file, "zip_longest", lambda *_: [(1, 2)])
            with version_3.locked():  # the older files remain valid
                assert len(older_files(version_3.folder)) == 4
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


def test_what_version_3_had_begun_is_finished_or_said(version_3):
    """An adjustment whose rows were not written, and a renaming before and after they were."""
    before, entry = closes(version_3), version_3.index.series["NEW"]
    with_corrections(
        version_3.folder,
        adjustments={"GONE": [[SPLIT, 4, True, entry.sha256]]},
        renaming=["GONE", "NEW"],
    )
    store = Store(version_3.folder, module._read_index(version_3.folder))
    assert set(store.index.renames) == {"OLD", "OLDER", "GONE"}
    earlier = (store.read_one("NEW")["ds"] < SPLIT).to_numpy()
    np.testing.assert_allclose(closes(store), np.where(earlier, before * 4, before))
    with_corrections(version_3.folder, renaming=["AAA", "NEW"])
    with pytest.warns(ForecasterWarning, match="rename AAA NEW` again"), version_3.locked():
        assert set(version_3.ids) == {"NEW", "AAA"}


def test_a_damaged_file_of_version_3_is_named_and_nothing_is_rebuilt(tmp_path, version_3):
    (version_3.folder / "adjustments.json").write_text("[]")
    for open_it in (Store.open, Store.open_or_recover):
        with pytest.raises(StoreError, match=r"adjustments\.json: cannot be read.*; remove it"):
            open_it(Home(tmp_path / "home"), version_3.source)
