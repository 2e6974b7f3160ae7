"""The store's index: what it is asked, what it refuses, and two that use it at once."""

import os
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from forecaster.errors import StoreError, WriteError
from forecaster.home import INDEX
from forecaster.ingest.store import index_file as module
from forecaster.ingest.store.index import (
    Index,
    NewerStore,
    Origin,
    Quality,
    Quarantined,
    SeriesEntry,
    count_by_series,
    is_index,
)
from tests.ingest.older import as_version, changing, contents

ROOT = Path(__file__).parents[2]


def entry(**fields) -> SeriesEntry:
    needed = {"rows": 3, "first": "2020-01-02", "last": "2020-01-06", "sha256": "aa"}
    return SeriesEntry(**{**needed, "file": "AAA.aa.parquet", **fields})


@pytest.fixture
def index() -> Index:
    index = Index.new("files:/p.csv")
    index.put({"AAA": entry(fingerprint="f1")})
    index.set_origin(Origin("f1", ["AAA", "BAD"], {"BAD": "no rows"}))
    index.set_quality(Quality("flags.ff.parquet", "ff", index.digest()), {"AAA": {"gaps": 2}})
    index.set_aside([Quarantined("CCC", None, "damaged", "2019-01-01")])
    return index


@pytest.fixture
def path(tmp_path, index) -> Path:
    index.write(tmp_path / INDEX)
    return tmp_path / INDEX


def test_what_was_written_is_read(path, index):
    assert contents(Index.read(path)) == contents(index) and is_index(path)
    assert [file.name for file in path.parent.iterdir()] == [INDEX]
    with changing(path) as changed:
        changed.put({"BBB": entry(file="BBB.bb.parquet").as_suspect("contradicted")})
    assert list(Index.read(path).series) == ["AAA", "BBB"] and list(index.series) == ["AAA"]
    assert Index.read(path).series["BBB"].reason == "contradicted"
    assert [file.name for file in path.parent.iterdir()] == [INDEX]  # no journal, no log


@pytest.mark.parametrize("name", ["A B", "Ä", "ö\udcf6\ud800", "nul\0l", 'a"b', "it's", ""])
def test_any_name_is_read_as_it_was_written(tmp_path, index, name):
    fields = entry(reason=name, timezone=name)
    index.put({name: fields, "Z": entry()})
    index.set_origin(Origin(name, [name], {name: name}))
    index.set_aside([Quarantined(name, None, name, name)])
    index.write(tmp_path / INDEX)
    found = Index.read(tmp_path / INDEX)
    assert found.series[name] == fields and name in found.series
    assert list(found.series) == ["AAA", name, "Z"]
    assert contents(found) == contents(index)
    found.remove([name])
    assert list(found.series) == ["AAA", "Z"] and name not in found.series
    assert found.lost(name) == Quarantined(name, None, name, name)


def test_one_entry_is_read_alone_and_many_at_once(index):
    entries = {f"S{number:03}": entry(rows=number) for number in range(200)}
    index.put(entries)
    asked = []
    index._connection.set_trace_callback(asked.append)
    series = index.series
    assert series["S050"].rows == 50 and "S051" in series and "S" not in series
    assert len([query for query in asked if "WHERE name" in query]) == 3
    assert dict(series) == {"AAA": series["AAA"], **entries} and len(series) == 201
    assert len(asked) < 40
    query = "SELECT rows FROM series WHERE name = CAST(? AS TEXT)"
    plan = index._database.rows(f"EXPLAIN QUERY PLAN {query}", "S")
    assert "SEARCH series USING INDEX" in plan[0][3]


def test_what_is_replaced_is_told_and_outdates_the_review(index):
    same = index.series["AAA"]
    assert index.put({"AAA": same.as_suspect("x")}) == set()
    assert index.quality is not None and index.quality.prices_digest == index.digest()
    assert index.put({"AAA": same._replace(sha256="bb", file="AAA.bb.parquet")}) == {same.file}
    assert index.quality is not None and index.quality.prices_digest is None
    index.set_quality(index.quality._replace(prices_digest="of other prices"))
    assert index.quality.prices_digest is None
    index.set_quality(index.quality._replace(prices_digest=index.digest()))
    index.remove(["AAA"])
    assert index.quality.prices_digest is None and not index.series


def test_questions_about_all_series(index):
    index.put({"BBB": entry(first="2019-05-01", file="BBB.bb.parquet", state="suspect")})
    index.set_quality(Quality("f", "ff", None), {"AAA": {"gaps": 2, "copied": 1, "jump": 3}})
    assert (index.rows, index.first, index.last) == (6, "2019-05-01", "2020-01-06")
    assert (index.gaps, index.flagged, index.suspects) == (2, 4, 1)
    assert index.files == {"AAA.aa.parquet", "BBB.bb.parquet"}
    assert index.gaps_of("AAA") == 2 and index.gaps_of("BBB") == 0
    assert index.flags_of("AAA") == {"copied": 1, "jump": 3} and index.flags_of("BBB") == {}
    assert index.by_urgency() == ["BBB", "AAA"]
    counted = Index.new("yahoo")
    counted.put({name: entry(first=name, last=name) for name in ("9", "10")})
    assert (counted.first, counted.last) == ("9", "10")
    empty = Index.new("yahoo")
    assert (empty.rows, empty.first, empty.gaps, empty.flagged) == (0, "", 0, 0)
    assert empty.origin is None and empty.quality is None and empty.counts == {}


def test_what_is_left_of_a_series_that_was_set_aside(index):
    assert index.known("AAA") == index.series["AAA"] and index.lost("AAA") is None
    lost = index.known("CCC")
    assert lost is not None and lost.asked_from == "2019-01-01" and lost.timezone is None
    assert index.known("ZZZ") is None
    index.set_aside([Quarantined("CCC", "c", "again", None)])
    assert index.lost("CCC") == index.quarantine[-1]


def test_counts_of_a_review_leave_out_zeros():
    counts = count_by_series({"AAA": {"jump": 1}}, {"AAA": 0, "BBB": 2, "CCC": 0})
    assert counts == {"AAA": {"jump": 1}, "BBB": {"gaps": 2}, "CCC": {}}


def test_every_flipped_bit_is_found(path):
    sound = path.read_bytes()
    for at in [*range(100), *range(100, len(sound), 61)]:
        raw = bytearray(sound)
        raw[at] ^= 1 << at % 8
        path.write_bytes(raw)
        for read in (Index.read, change):
            with pytest.raises((StoreError, WriteError)):
                read(path)
    path.write_bytes(sound)
    change(path)


def change(path: Path) -> None:
    with changing(path) as index:
        index.put({"BBB": entry()})


@pytest.mark.parametrize("damage", [
    lambda raw: b"", lambda raw: raw[:50], lambda raw: raw[:4096], lambda raw: raw[:-1],
    lambda raw: raw[:8000], lambda raw: b"{" + raw, lambda raw: raw[:100] + bytes(len(raw) - 100),
    lambda raw: b"SQLite format 3\0" + os.urandom(4080), lambda raw: raw[:18] + b"\2\2" + raw[20:],
])  # fmt: skip
def test_damage_is_one_clear_error(path, damage):
    path.write_bytes(damage(path.read_bytes()))
    for read in (Index.read, change):
        with pytest.raises(StoreError, match=r"index cannot be read .*`forecaster ingest` sets"):
            read(path)
    assert [file.name for file in path.parent.iterdir()] == [INDEX]


def made_by_a_stranger(path: Path, *statements: str) -> None:
    """Change an index as somebody would who can compute the checksum."""
    with changing(path) as index:
        for statement in statements:
            index._connection.execute(statement)


@pytest.mark.parametrize("statements", [
    ["CREATE TRIGGER t AFTER INSERT ON series BEGIN DELETE FROM series; END"],
    ["CREATE VIEW v AS SELECT 1"],
    ["CREATE VIRTUAL TABLE v USING fts5(a)"],
    ["ALTER TABLE series ADD COLUMN more TEXT GENERATED ALWAYS AS (upper(name))"],
    ["ALTER TABLE series RENAME TO others", "CREATE VIEW series AS SELECT * FROM others"],
    ["CREATE INDEX i ON series (upper(name))"],
    ["DROP TABLE counts"], ["PRAGMA user_version = 2"], ["DELETE FROM store"],
    ["INSERT INTO store (source) VALUES ('two')"],
    *(
        ["PRAGMA ignore_check_constraints = ON", f"UPDATE {change}"]
        for change in (
            "series SET rows = 'many'", "series SET rows = 1.5", "series SET name = x'00'",
            "series SET reason = x'00'", "store SET source = x'00'", "counts SET count = 'a'",
        )
    ),
])  # fmt: skip
def test_what_strangers_have_put_in_an_index_is_refused(path, statements):
    try:
        made_by_a_stranger(path, *statements)
    except sqlite3.OperationalError as error:
        pytest.skip(f"this SQLite cannot: {error}")
    for read in (lambda path: Index.read(path).check(), lambda path: Index.read(path).rows, change):
        with pytest.raises(StoreError, match="the index cannot be read"):
            read(path)


def test_one_value_of_another_type_is_refused_too(path):
    """Where one entry is read, the others are not checked."""
    with changing(path) as index:
        index.put({f"S{number}": entry() for number in range(50)})
    made_by_a_stranger(
        path, "PRAGMA ignore_check_constraints = ON", "UPDATE series SET file = x'00'"
    )
    with pytest.raises(StoreError, match="a value is of another type"):
        Index.read(path).series["AAA"]


def test_a_file_without_end_is_refused(path):
    with path.open("r+b") as file:
        file.truncate(2**31)
    with pytest.raises(StoreError, match="2,147,483,648 bytes"):
        Index.read(path)


def test_a_newer_one_is_refused(path):
    made_by_a_stranger(path, "PRAGMA user_version = 5", "DROP TABLE counts")
    with pytest.raises(NewerStore, match="version 5 of the store"):
        Index.read(path)


def test_other_files_of_this_name_are_no_index(path):
    assert is_index(path) and not is_index(path.with_name("none"))
    path.write_text("a")
    assert not is_index(path)
    path.unlink()
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE prices (a)")
    database.close()
    assert not is_index(path)


def test_a_change_that_fails_leaves_the_old_state(path, index):
    with pytest.raises(KeyError), changing(path) as changed:
        changed.put({"BBB": entry()})
        raise KeyError
    assert contents(Index.read(path)) == contents(index)
    with pytest.raises(FileNotFoundError):
        Index.read(path.with_name("none"))


def test_without_deserialize_in_python_it_is_read_too(path, index, monkeypatch):
    monkeypatch.setattr(module, "hasattr", lambda *_: False, raising=False)
    change(path)
    assert list(Index.read(path).series) == ["AAA", "BBB"]


OLDER = """
import os, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA cache_size = 1")  # pages go to the disk early
connection.execute("BEGIN IMMEDIATE")
row = ("x" * 1000,) * 2
connection.executemany("INSERT INTO failed (name, reason) VALUES (?, ?)", [row] * 5000)
os._exit(9)
"""


@pytest.mark.parametrize("writable", [True, False])
def test_what_a_killed_process_of_version_3_has_half_written_is_undone(path, writable):
    """It changed the file in place. A reader changes nothing, and a writer replaces it."""
    before = contents(Index.read(path))
    as_version(3, path.parent)
    done = subprocess.run([sys.executable, "-c", OLDER, path], cwd=ROOT, check=False)
    assert done.returncode == 9
    assert path.with_name(f"{INDEX}-journal").exists() and path.stat().st_size > 1e6
    if not writable:
        path.parent.chmod(0o500)
    try:
        left = path.read_bytes()
        assert contents(Index.read(path)) == before
        assert path.read_bytes() == left
    finally:
        path.parent.chmod(0o700)
    change(path)
    assert list(Index.read(path).series) == ["AAA", "BBB"]
    assert [file.name for file in path.parent.iterdir()] == [INDEX]


KILLED = """
import os, sys
from pathlib import Path
from forecaster.ingest.store.index import Index
from tests.ingest.test_index import entry
index = Index.read(Path(sys.argv[1]))
index.put({f"S{n}": entry(reason="x" * 1000) for n in range(5000)})
os.fsync = lambda descriptor: os._exit(9)
index.write(Path(sys.argv[1]))
"""


def test_a_process_that_is_killed_while_it_writes_leaves_the_old_state(path, index):
    before = contents(Index.read(path))
    done = subprocess.run([sys.executable, "-c", KILLED, path], cwd=ROOT, check=False)
    assert done.returncode == 9 and contents(Index.read(path)) == before


WRITER = """
import sys
from pathlib import Path
from forecaster.files import locked_folder
from tests.ingest.older import changing
from tests.ingest.test_index import entry
path = Path(sys.argv[1])
for n in range(40):
    with locked_folder(path.parent), changing(path) as index:
        index.put({f"{sys.argv[2]}{n}": entry(rows=n), "sum": entry(rows=index.rows + n)})
"""


def test_two_that_write_and_one_that_reads_see_whole_states(path):
    """A reader needs no lock: every state is sealed. With the lock no change is lost."""
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, path, name], cwd=ROOT) for name in "AB"
    ]
    states = 0
    while any(writer.poll() is None for writer in writers):
        index = Index.read(path)
        with_sum = [each for each in index.series.values() if "sum" in index.series]
        assert not with_sum or len(index.series) > 2
        states += 1
    assert all(writer.returncode == 0 for writer in writers) and states > 3
    series = Index.read(path).series
    assert {f"{name}{n}" for name in "AB" for n in range(40)} | {"AAA", "sum"} == set(series)


def test_threads_may_share_one(path):
    with changing(path) as index:
        index.put({f"S{n}": entry(rows=n) for n in range(1000)})
    shared, failed = Index.read(path), []

    def look():
        for n in range(1000):
            if shared.series[f"S{n}"].rows != n:
                failed.append(n)

    threads = [threading.Thread(target=look) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
def test_no_file_stays_open(path):
    kept = Index.read(path)
    change(path)
    opened = [file.readlink() for file in Path("/proc/self/fd").iterdir() if file.exists()]
    assert not [file for file in opened if INDEX in str(file)] and kept.rows == 3
