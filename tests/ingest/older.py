"""Stores as older versions wrote them, and all that an index holds, to compare."""

import contextlib
import hashlib
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from forecaster.home import INDEX, MANIFEST
from forecaster.ingest.store.index import Index, SeriesEntry


def contents(index: Index) -> tuple[object, ...]:
    """All that an index holds."""
    series = list(index.series.items())
    return index.source, series, index.origin, index.quality, index.counts, index.quarantine


def as_version(version: int, folder: Path) -> None:
    """Put an index as version 1, 2 or 3 wrote it in place of a store's index."""
    if version == 3:
        with contextlib.closing(sqlite3.connect(folder / INDEX)) as connection:
            for table in ("series", "quarantine"):
                connection.execute(f"ALTER TABLE {table} DROP COLUMN corrections")
            connection.execute("PRAGMA user_version = 3")
            connection.execute("PRAGMA application_id = 0")  # not sealed, as by some builds
            connection.commit()
        return
    index = Index.read(folder / INDEX)
    text = {1: _version_1, 2: _version_2}[version](index)
    (folder / MANIFEST).write_text(text)
    (folder / INDEX).unlink()


@contextlib.contextmanager
def changing(path: Path) -> Iterator[Index]:
    """An index that is changed in the block, and then written."""
    index = Index.read(path)
    index.check()
    yield index
    index.write(path)


def with_corrections(folder: Path, **files: object) -> None:
    """Write the files in which version 3 kept corrections, such as ``renames``."""
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))


def _version_1(index: Index) -> str:
    series = {name: dict(list(entry._asdict().items())[:5]) for name, entry in index.series.items()}
    return json.dumps({"schema": 1, "source": index.source, "series": series}, indent=1)


def _version_2(index: Index) -> str:
    """A line for each series, and a hash of the file in which the hash counts as zeros."""
    quality: dict[str, Any] | None = None
    if index.quality is not None:
        file, sha256, of = index.quality
        quality = {"file": file, "sha256": sha256, "of": of, "series": index.counts}
    lines = (f"  {json.dumps(n)}: {json.dumps(_set(e))}" for n, e in index.series.items())
    parts = {
        "sha256": json.dumps("0" * 64),
        "schema": "2",
        "source": json.dumps(index.source),
        "series": "{\n" + ",\n".join(lines) + "\n }" if len(index.series) else "{}",
        "origin": json.dumps(index.origin and index.origin._asdict()),
        "quality": json.dumps(quality),
        "quarantine": json.dumps([record._asdict() for record in index.quarantine]),
    }
    text = "{\n" + ",\n".join(f' "{key}": {value}' for key, value in parts.items()) + "\n}"
    return text.replace("0" * 64, hashlib.sha256(text.encode()).hexdigest(), 1)


def _set(entry: SeriesEntry) -> dict[str, Any]:
    """The fields of an entry that are not as by default."""
    nothing, default = object(), SeriesEntry._field_defaults
    return {k: v for k, v in entry._asdict().items() if v != default.get(k, nothing)}
