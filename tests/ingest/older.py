"""Stores as older versions wrote them, and a store changed by hand."""

import contextlib
import hashlib
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd

from forecaster.files import INDEX, OLDER_INDEX
from forecaster.ingest import Store
from forecaster.ingest.store.index import Index, SeriesEntry
from forecaster.ingest.store.series_file import encode

TABLES = """
CREATE TABLE store (source TEXT, fingerprint TEXT, flags_file TEXT, flags_sha256 TEXT,
    prices_digest TEXT);
CREATE TABLE series (position INTEGER PRIMARY KEY, name TEXT UNIQUE, rows INTEGER, first TEXT,
    last TEXT, sha256 TEXT, file TEXT, state TEXT, reason TEXT, asked_from TEXT,
    fingerprint TEXT, corrections TEXT, timezone TEXT);
CREATE TABLE tickers (position INTEGER PRIMARY KEY, name TEXT);
CREATE TABLE failed (position INTEGER PRIMARY KEY, name TEXT, reason TEXT);
CREATE TABLE counts (series TEXT, kind TEXT, count INTEGER, PRIMARY KEY (series, kind));
CREATE TABLE quarantine (position INTEGER PRIMARY KEY, series TEXT, file TEXT, reason TEXT,
    asked_from TEXT, corrections TEXT);
"""


def written(store: Store, name: str, frame: pd.DataFrame) -> None:
    """Write a series to a locked store."""
    series = encode(name, frame)
    store.write_file_of(series)
    store.note_written(series)


@contextlib.contextmanager
def changing(path: Path) -> Iterator[Index]:
    """An index that is changed in the block, and then written."""
    index = Index.read(path)
    yield index
    path.write_bytes(as_bytes(index))


def as_bytes(index: Index) -> bytes:
    rest = b'",' + msgspec.json.encode(index)[1:]
    return b'{"sha256":"' + hashlib.sha256(rest).hexdigest().encode() + rest


def as_version(version: int, folder: Path) -> None:
    """Put an index as version 1, 2, 3 or 4 wrote it in place of a store's index."""
    index = Index.read(folder / INDEX)
    (folder / INDEX).unlink()
    if version < 3:
        (folder / INDEX).write_text({1: _version_1, 2: _version_2}[version](index))
        return
    with contextlib.closing(sqlite3.connect(folder / OLDER_INDEX)) as connection:
        connection.executescript(TABLES)
        _fill(connection, index)
        if version == 3:
            for table in ("series", "quarantine"):
                connection.execute(f"ALTER TABLE {table} DROP COLUMN corrections")
        connection.execute(f"PRAGMA user_version = {version}")
        connection.commit()


def _fill(connection: sqlite3.Connection, index: Index) -> None:
    def insert(table: str, rows: list[tuple[object, ...]]) -> None:
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
        columns = [name for name in columns if name != "position"]
        marks = ", ".join("?" for _ in columns)
        statement = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})"
        connection.executemany(statement, rows)

    origin, quality = index.origin, index.quality or (None, None, None)
    insert("store", [(index.source, origin and origin.fingerprint, *quality)])
    entries = {name: msgspec.structs.asdict(entry) for name, entry in index.series.items()}
    for name, fields in entries.items():
        fields["corrections"] = index.series[name].corrections.text()
    insert("series", [(name, *each.values(), "UTC") for name, each in entries.items()])
    if origin is not None:
        insert("tickers", [(name,) for name in origin.tickers])
        insert("failed", list(origin.failed.items()))
    insert("counts", [(n, k, v) for n, each in index.counts.items() for k, v in each.items()])
    insert("quarantine", [(*one[:4], one.corrections.text()) for one in index.quarantine])


def with_corrections(folder: Path, **files: object) -> None:
    """Write the files in which version 3 kept corrections, such as ``renames``."""
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))


def _version_1(index: Index) -> str:
    series = {name: dict(list(_set(entry).items())[:5]) for name, entry in index.series.items()}
    return json.dumps({"schema": 1, "source": index.source, "series": series}, indent=1)


def _version_2(index: Index) -> str:
    """A line for each series, and a hash of the file in which the hash counts as zeros."""
    quality: dict[str, Any] | None = None
    if index.quality is not None:
        file, sha256, of = index.quality
        quality = {"file": file, "sha256": sha256, "of": of, "series": index.counts}
    lines = (f"  {json.dumps(n)}: {json.dumps(_set(e))}" for n, e in index.series.items())
    aside = [dict(zip(one._fields[:4], one[:4], strict=True)) for one in index.quarantine]
    parts = {
        "sha256": json.dumps("0" * 64),
        "schema": "2",
        "source": json.dumps(index.source),
        "series": "{\n" + ",\n".join(lines) + "\n }" if len(index.series) else "{}",
        "origin": json.dumps(index.origin and index.origin._asdict()),
        "quality": json.dumps(quality),
        "quarantine": json.dumps(aside),
    }
    text = "{\n" + ",\n".join(f' "{key}": {value}' for key, value in parts.items()) + "\n}"
    return text.replace("0" * 64, hashlib.sha256(text.encode()).hexdigest(), 1)


def _set(entry: SeriesEntry) -> dict[str, Any]:
    """The fields of an entry that are not as by default."""
    return msgspec.to_builtins(entry)
