"""Read the stores of versions 3 and 4, whose files are removed once they are converted.

    index.sqlite         the index
    adjustments.json     by series, a list of time, factor, whether it is a split, ...
    renames.json         the new name by the old one
    renamed_until.json   by old name, the first row that the source ever had under the new one
    renamed_since.json   no longer needed

The rows of version 3 are adjusted already, so its adjustments are for rows that arrive again. From
version 4 on, corrections are in the entries of the series. Version 5 is in ``manifest.json``, as
versions 1 and 2 were, which are refused.
"""

import contextlib
import json
import shutil
import sqlite3
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from forecaster.files import OLDER_INDEX, check_plain, read_plain
from forecaster.ingest.store.corrections import Adjustment, Corrections
from forecaster.ingest.store.index import (
    Index,
    NotRebuilt,
    Quarantined,
    SeriesEntry,
    check_version,
    damaged,
)

_ADJUSTMENTS, _RENAMES, _UNTIL = "adjustments.json", "renames.json", "renamed_until.json"
_BESIDE = (_ADJUSTMENTS, _RENAMES, _UNTIL, "renamed_since.json")
_JOURNAL = f"{OLDER_INDEX}-journal"  # pages that a transaction replaced in version 3


def older_files(folder: Path) -> list[Path]:
    """Return the files of a store that older versions wrote, and this one does not."""
    files = [folder / file for file in (_JOURNAL, OLDER_INDEX, *_BESIDE)]
    return [path for path in files if path.exists()]


def read_index(folder: Path) -> Index:
    """Read the index of an older store, with the corrections that are in files of their own.

    It is read without a transaction of a process that was killed. Raises FileNotFoundError if there
    is none, StoreError if it is damaged, NotRebuilt if it belongs to another version or a file of
    corrections is damaged.
    """
    path = folder / OLDER_INDEX
    try:
        check_plain(path)
        with tempfile.TemporaryDirectory() as temporary:
            copy = Path(temporary) / path.name
            shutil.copyfile(path, copy)
            with contextlib.suppress(FileNotFoundError):
                shutil.copyfile(path.with_name(_JOURNAL), copy.with_name(_JOURNAL))
            with contextlib.closing(sqlite3.connect(copy)) as connection:
                connection.execute("PRAGMA trusted_schema = OFF")
                connection.row_factory = sqlite3.Row
                connection.text_factory = lambda raw: raw.decode("utf-8", "surrogatepass")
                version = connection.execute("PRAGMA user_version").fetchone()[0]
                check_version(path, version, 3, 4)
                index = _of_tables(connection)
    except FileNotFoundError:
        raise
    except (OSError, ValueError, TypeError, AttributeError, sqlite3.Error) as error:
        raise damaged(path, error) from error
    add_corrections(index, folder)
    return index


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
    path = folder / _ADJUSTMENTS
    try:
        adjustments, renames, until = (
            json.loads(read_plain(folder / file)) if (folder / file).exists() else {}
            for file in (_ADJUSTMENTS, _RENAMES, _UNTIL)
        )
        corrections = {
            name: Corrections(
                tuple(Adjustment(str(time), float(factor), bool(split))
                      for time, factor, split, *_ in adjustments.get(name, [])),
                {old: until.get(old) for old, new in renames.items() if new == name},
            )
            for name in dict.fromkeys([*adjustments, *renames.values()])
        }  # fmt: skip
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise NotRebuilt(
            f"{path}, or a file of renames beside it: cannot be read: {error}; remove it, then "
            "adjust and rename again"
        ) from error
    for name, its in corrections.items():
        entry = index.known(name)
        if isinstance(entry, SeriesEntry) and not entry.corrections:
            index.series[name] = msgspec.structs.replace(entry, corrections=its)
        elif isinstance(entry, Quarantined) and not entry.corrections:
            index.quarantine.append(entry._replace(corrections=its))
