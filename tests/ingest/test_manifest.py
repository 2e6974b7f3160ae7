"""The store's list of contents: its layout on disk, and what it is asked."""

import dataclasses
import json

import pytest

from forecaster.errors import StoreError
from forecaster.ingest.store.manifest import (
    Manifest,
    NewerStore,
    Origin,
    Quality,
    Quarantined,
    SeriesEntry,
)

TEXT = """{
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
 "quality": {"file": "flags.ff.parquet", "sha256": "ff", "of": "dd", "series": {"AAA": \
{"gaps": 2, "copied": 1}}},
 "quarantine": [{"series": "CCC", "file": null, "reason": "damaged", "asked_from": "2019-01-01"}]
}"""


def entry(**fields) -> SeriesEntry:
    needed = {"rows": 3, "first": "2020-01-02", "last": "2020-01-06", "sha256": "aa"}
    return SeriesEntry(**{**needed, "file": "AAA.aa.parquet", **fields})


@pytest.fixture
def manifest() -> Manifest:
    return Manifest(
        "files:/p.csv",
        {"AAA": entry(fingerprint="f1")},
        Origin("f1", ["AAA", "BAD"], {"BAD": "no rows"}),
        Quality("flags.ff.parquet", "ff", "dd", {"AAA": {"gaps": 2, "copied": 1}}),
        [Quarantined("CCC", None, "damaged", "2019-01-01")],
    )


def test_the_layout_on_disk(tmp_path, manifest):
    path = tmp_path / "manifest.json"
    other = entry(file="BBB.bb.parquet").as_suspect("contradicted")
    manifest = dataclasses.replace(manifest, series={**manifest.series, "BBB": other})
    manifest.write(path)
    text = path.read_text()
    assert text == TEXT.replace("HASH", json.loads(text)["sha256"])
    assert Manifest.read(path) == manifest


@pytest.mark.parametrize("name", ["A B", "Ä", 'a": {"b', "back\\slash", "},\n", "a, b"])
def test_any_name_is_read_as_it_was_written(tmp_path, manifest, name):
    path = tmp_path / "manifest.json"
    for series in (
        {name: entry()},
        {"AAA": entry(), name: entry(reason='"sha256": "no'), "Z": entry()},
    ):
        dataclasses.replace(manifest, series=series).write(path)
        found = Manifest.read(path)
        assert found.series == series and list(found.series) == list(series)
        assert found.sha256_of(list(series)) == ["aa"] * len(series)
        del found.series[name]
        assert found.series == {each: entry() for each in series if each != name}
        with pytest.raises(KeyError):
            found.sha256_of([name])


def test_the_hash_is_of_all_other_bytes(tmp_path, manifest):
    path = tmp_path / "manifest.json"
    manifest.write(path)
    path.write_text(path.read_text().replace("2020-01-06", "2020-01-07"))
    with pytest.raises(StoreError, match="its content is not what was written"):
        Manifest.read(path)


def test_an_older_version_is_read_and_a_newer_one_refused(tmp_path):
    path = tmp_path / "manifest.json"
    fields = {"file": "f", "rows": 1, "first": "2020-01-02", "last": "2020-01-02", "sha256": "a"}
    old = {"schema": 1, "source": "yahoo", "series": {"AAA": fields}}
    path.write_text(json.dumps(old))
    series = Manifest.read(path).series["AAA"]
    assert series.asked_from == "2020-01-02" and not series.suspect  # to be asked for anew
    path.write_text(json.dumps(old | {"source": "simulated"}))
    assert Manifest.read(path).series["AAA"].asked_from is None
    path.write_text(json.dumps(old | {"schema": 3}))
    with pytest.raises(NewerStore, match="version 3 of the store"):
        Manifest.read(path)
    del fields["rows"]
    path.write_text(json.dumps(old))
    with pytest.raises(StoreError, match=r"cannot be read .no 'rows'"):
        Manifest.read(path)


def test_questions_about_all_series(manifest):
    both = Manifest(
        manifest.source,
        manifest.series
        | {"BBB": entry(first="2019-05-01", file="BBB.bb.parquet", state="suspect")},
        quality=Quality("", "", "", {"AAA": {"gaps": 2, "copied": 1, "jump": 3}}),
    )
    assert (both.rows, both.first, both.last) == (6, "2019-05-01", "2020-01-06")
    assert (both.gaps, both.flagged, both.suspects) == (2, 4, 1)
    assert both.files == {"AAA.aa.parquet", "BBB.bb.parquet"}
    assert both.gaps_of("AAA") == 2 and both.gaps_of("BBB") == 0
    assert both.flags_of("AAA") == {"copied": 1, "jump": 3} and both.flags_of("BBB") == {}
    assert both.by_urgency() == ["BBB", "AAA"]
    empty = Manifest("yahoo")
    assert (empty.rows, empty.first, empty.gaps, empty.flagged) == (0, "", 0, 0)


def test_what_is_left_of_a_series_that_was_set_aside(manifest):
    assert manifest.known("AAA") == manifest.series["AAA"] and manifest.lost("AAA") is None
    lost = manifest.known("CCC")
    assert lost is not None and lost.asked_from == "2019-01-01" and lost.timezone is None
    assert manifest.known("ZZZ") is None
    manifest.quarantine.append(Quarantined("CCC", "c", "again", None))
    assert manifest.lost("CCC") == manifest.quarantine[-1]


def test_counts_of_a_review_leave_out_zeros():
    counts = Quality.count_by_series({"AAA": {"jump": 1}}, {"AAA": 0, "BBB": 2, "CCC": 0})
    assert counts == {"AAA": {"jump": 1}, "BBB": {"gaps": 2}, "CCC": {}}
