"""The store's index: what it is asked, what it refuses, and two that use it at once."""

from datetime import datetime
from pathlib import Path

import msgspec
import pytest

from forecaster.errors import StoreError
from forecaster.files import INDEX
from forecaster.ingest.store.corrections import Adjustment, Corrections
from forecaster.ingest.store.index import (
    Index,
    NotRebuilt,
    Origin,
    Quality,
    Quarantined,
    SeriesEntry,
)
from tests.ingest.older import as_bytes
from tests.messages import refuses


def entry(**fields) -> SeriesEntry:
    needed = {"rows": 3, "first": "2020-01-02", "last": "2020-01-06", "sha256": "aa"}
    return SeriesEntry(**{**needed, "file": "AAA.aa.parquet", **fields})


@pytest.fixture
def index() -> Index:
    split = Adjustment("2020-01-03", 0.25, split=True, rows=(("2020-01-02", "2020-01-02"),))
    corrected = Corrections((split,), {"OLD": datetime(2020, 1, 3), "OLDER": None, "N": 7})
    return Index(
        "files:/p.csv",
        {"AAA": entry(fingerprint="f1"), "BBB": entry(corrections=corrected, state="suspect")},
        Origin("f1", ["AAA", "BAD"], {"BAD": "no rows"}),
        Quality("flags.ff.parquet", "ff", "d"),
        {"AAA": {"gaps": 2, "copied": 1}},
        [Quarantined("CCC", None, "damaged", "2019-01-01", "UTC", corrected)],
    )


@pytest.fixture
def path(tmp_path, index) -> Path:
    index.write(tmp_path / INDEX)
    return tmp_path / INDEX


def test_what_was_written_is_read(path, index):
    assert Index.read(path) == index
    assert [file.name for file in path.parent.iterdir()] == [INDEX]
    assert index.renames == {"OLD": "BBB", "OLDER": "BBB", "N": "BBB"}
    with pytest.raises(FileNotFoundError):
        Index.read(path.with_name("none"))


@pytest.mark.parametrize("name", ["A B", "Ä", "ö\udcf6\ud800", "nul\0l", 'a"b', "it's", ""])
def test_any_name_is_read_as_it_was_written(tmp_path, index, name):
    index.series[name] = entry(reason=name)
    index.origin = Origin(name, [name], {name: name})
    index.quarantine = [Quarantined(name, None, name, name)]
    index.write(tmp_path / INDEX)
    found = Index.read(tmp_path / INDEX)
    assert found == index and list(found.series) == ["AAA", "BBB", name] and found.digest()


def test_the_first_and_the_last_time_of_all_series():
    counted = Index("yahoo", {name: entry(first=name, last=name) for name in ("9", "10")})
    assert counted.span == ("9", "10") and Index("yahoo").span == ("", "")


def test_what_is_left_of_a_series_that_was_set_aside(index):
    assert index.known("AAA") == index.series["AAA"] and index.known("ZZZ") is None
    lost = index.known("CCC")
    assert lost.asked_from == "2019-01-01" and lost.corrections
    index.quarantine.append(Quarantined("CCC", "c", "again"))
    assert index.known("CCC") == index.quarantine[-1]


def test_every_flipped_bit_is_found(path):
    sound = path.read_bytes()
    for at in range(len(sound)):
        raw = bytearray(sound)
        raw[at] ^= 1 << at % 8
        path.write_bytes(raw)
        with pytest.raises(StoreError):
            Index.read(path)


@pytest.mark.parametrize("change", [
    {"source": 3}, {"series": []}, {"series": {"AAA": {"rows": "many"}}}, {"origin": ["f1"]},
    {"counts": {"AAA": {"gaps": 1.5}}}, {"quarantine": None}, {"schema": "x"},
])  # fmt: skip
def test_what_strangers_have_put_in_an_index_is_refused(path, index, change):
    """Somebody who can compute the hash."""
    path.write_bytes(as_bytes(msgspec.to_builtins(index) | change))
    with refuses(StoreError):
        Index.read(path)


def test_a_newer_one_is_refused(path, index):
    path.write_bytes(as_bytes(msgspec.to_builtins(index) | {"schema": 6, "series": "other"}))
    with refuses(NotRebuilt):
        Index.read(path)
