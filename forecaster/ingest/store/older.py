"""Read the stores of older versions, whose files are removed once they are converted.

    manifest.json        the index of versions 1 and 2; while it exists, it is the valid one
    index.sqlite         the index of versions 3 and 4
    adjustments.json     by series, a list of time, factor, whether it is a split, and the SHA-256
                         of the file whose rows it was to adjust first
    renames.json         the new name by the old one
    renamed_until.json   by old name, the first row that the source ever had under the new one
    renamed_since.json   no longer needed
    renaming.json        the old and the new name while a ticker was being renamed

Version 2 added a hash of the file, the state of each series, and the fingerprint of the source to
version 1. The rows of version 3 are adjusted already, so its adjustments are for rows that arrive
again. From version 4 on, corrections are in the entries of the series. Version 5 is in
``manifest.json`` again, which all older versions refuse to read.
"""

import contextlib
import hashlib
import json
import shutil
import sqlite3
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from forecaster.files import INDEX, OLDER_INDEX, check_plain, read_plain
from forecaster.ingest.store.corrections import Adjustment, Corrections, Time
from forecaster.ingest.store.index import (
    Index,
    NotRebuilt,
    Origin,
    Quality,
    Quarantined,
    SeriesEntry,
    begins_like_an_index,
    check_version,
    damaged,
)

_ADJUSTMENTS, _RENAMES, _UNTIL = "adjustments.json", "renames.json", "renamed_until.json"
_PENDING = "renaming.json"
_BESIDE = (_ADJUSTMENTS, _RENAMES, _UNTIL, "renamed_since.json", _PENDING)
_JOURNAL = f"{OLDER_INDEX}-journal"  # pages that a transaction replaced in version 3
_EARLIEST = "1700-01-01"  # before any row


def older_files(folder: Path) -> list[Path]:
    """Return the files of a store that older versions wrote, and this one does not."""
    files = [folder / file for file in (_JOURNAL, OLDER_INDEX, *_BESIDE)]
    if not begins_like_an_index(folder / INDEX, of_this_version=True):
        files.append(folder / INDEX)
    return [path for path in files if path.exists()]


def read_index(folder: Path) -> Index:
    """Read the index of an older store, with the corrections that are in files of their own.

    Raises FileNotFoundError if there is none, StoreError if it is damaged, NotRebuilt if it belongs
    to a newer version or a file of corrections is damaged.
    """
    manifest, database = folder / INDEX, folder / OLDER_INDEX
    path = manifest if manifest.exists() else database
    try:
        check_plain(path)
        index = _of_manifest(path) if path == manifest else _of_database(path)
    except FileNotFoundError:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError, sqlite3.Error) as error:
        raise damaged(path, error) from error
    add_corrections(index, folder)
    return index


def _of_manifest(path: Path) -> Index:
    raw = read_plain(path)
    content = json.loads(raw)
    schema = int(content["schema"])
    check_version(path, schema, 2)
    if schema == 2 and _blanked(raw) != content["sha256"]:
        raise ValueError("its content is not what was written")
    series = content["series"]
    if schema == 1 and content["source"] == "yahoo":
        # Version 1 recorded neither the first date asked for nor actions; so all is asked for
        # again.
        series = {name: each | {"asked_from": each["first"]} for name, each in series.items()}
    quality: dict[str, Any] = content.get("quality") or {"series": {}}
    return Index(
        str(content["source"]),
        msgspec.convert(series, dict[str, SeriesEntry]),
        Origin(**content["origin"]) if content.get("origin") else None,
        Quality(quality["file"], quality["sha256"], quality["of"]) if "of" in quality else None,
        quality["series"],
        [Quarantined(**record) for record in content.get("quarantine", [])],
    )


def _blanked(raw: bytes) -> str:
    """Return the SHA-256 of a manifest in which the hash itself counts as zeros."""
    begin, end = raw.index(b'"sha256": "') + 11, raw.index(b'"sha256": "') + 75
    return hashlib.sha256(raw[:begin] + b"0" * 64 + raw[end:]).hexdigest()


def _of_database(path: Path) -> Index:
    """Read the index of version 3 or 4, without a transaction of a process that was killed."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / path.name
        shutil.copyfile(path, copy)
        with contextlib.suppress(FileNotFoundError):
            shutil.copyfile(path.with_name(_JOURNAL), copy.with_name(_JOURNAL))
        with contextlib.closing(sqlite3.connect(copy)) as connection:
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.row_factory, connection.text_factory = sqlite3.Row, _text
            check_version(path, connection.execute("PRAGMA user_version").fetchone()[0], 4)
            return _of_tables(connection)


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogatepass")


def _of_tables(connection: sqlite3.Connection) -> Index:
    def rows(table: str, columns: str = "*") -> list[sqlite3.Row]:
        return connection.execute(f"SELECT {columns} FROM {table} ORDER BY rowid").fetchall()

    (store,) = rows("store")
    origin = store["fingerprint"], [row["name"] for row in rows("tickers")]
    counts: dict[str, dict[str, int]] = {}
    for row in rows("counts"):
        counts.setdefault(row["series"], {})[row["kind"]] = row["count"]
    content = {
        "source": store["source"],
        "series": {row["name"]: _corrected(row) for row in rows("series")},
        "origin": origin[0] and [*origin, {row["name"]: row["reason"] for row in rows("failed")}],
        "quality": store["flags_file"]
        and [*rows("store", "flags_file, flags_sha256, prices_digest")[0]],
        "counts": counts,
        "quarantine": [
            [*list(row)[1:5], None, _corrected(row)["corrections"]] for row in rows("quarantine")
        ],
    }
    return msgspec.convert(content, Index)


def _corrected(row: sqlite3.Row) -> dict[str, Any]:
    """Return the columns of a series that version 3 or 4 kept, as fields of an entry."""
    fields = dict(row)
    return fields | {"corrections": json.loads(fields.get("corrections") or "{}")}


def add_corrections(index: Index, folder: Path) -> None:
    """Add the corrections that are in files of their own to the entries of an index.

    Entries that have any stay: a conversion was interrupted. Raises NotRebuilt for a damaged file.
    """
    for name, its in _corrections(index, folder).items():
        entry = index.known(name)
        if isinstance(entry, SeriesEntry) and not entry.corrections:
            index.series[name] = msgspec.structs.replace(entry, corrections=its)
        elif isinstance(entry, Quarantined) and not entry.corrections:
            index.quarantine.append(entry._replace(corrections=its))


def _corrections(index: Index, folder: Path) -> dict[str, Corrections]:
    pending = folder / _PENDING
    if pending.exists():
        raise NotRebuilt(
            f"{pending}: an older version was interrupted while it renamed a ticker. Let it finish "
            "by any of its commands, or remove the file and rename the ticker again"
        )
    path = folder / _ADJUSTMENTS
    try:
        adjustments, renames, until = (
            json.loads(read_plain(folder / file)) if (folder / file).exists() else {}
            for file in (_ADJUSTMENTS, _RENAMES, _UNTIL)
        )
        return {
            name: Corrections(
                tuple(_adjustment(index, name, *each) for each in adjustments.get(name, [])),
                {
                    old: msgspec.convert(until.get(old), Time | None)
                    for old, new in renames.items()
                    if new == name
                },
            )
            for name in dict.fromkeys([*adjustments, *renames.values()])
        }
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise NotRebuilt(
            f"{path}, or a file of renames beside it: cannot be read: {error}; remove it, then "
            "adjust and rename again"
        ) from error


def _adjustment(
    index: Index, name: str, time: str, factor: float, split: int, of: str = ""
) -> Adjustment:
    """Return an adjustment of no stored row, or of all earlier rows if it was interrupted."""
    one, entry = Adjustment(str(time), float(factor), bool(split)), index.series.get(name)
    if entry is None or entry.sha256 != of or factor == 1:
        return one
    return one._replace(rows=((_EARLIEST, str(np.datetime64(time, "ns") - 1)),))
