"""Read the index and the corrections of stores of older versions.

    manifest.json        the index of versions 1 and 2; while it exists, it is the valid one
    adjustments.json     by series, a list of time, factor, whether it is a split, and the SHA-256
                         of the file whose rows it was to adjust first
    renames.json         the new name by the old one
    renamed_until.json   by old name, the first row that the source ever had under the new one
    renamed_since.json   no longer needed
    renaming.json        the old and the new name while a ticker was being renamed

Version 2 added a hash of the file, the state of each series, and the fingerprint of the source to
version 1. Version 3 is a SQLite file. Its stored rows are adjusted already, so its adjustments are
for rows that arrive again. From version 4 on, corrections are in the entries of the series.
"""

import hashlib
import json
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from forecaster.files import read_plain
from forecaster.home import MANIFEST
from forecaster.ingest.store.corrections import Adjustment, Corrections, as_time
from forecaster.ingest.store.index import (
    Index,
    NotRebuilt,
    Origin,
    Quality,
    Quarantined,
    SeriesEntry,
    newer,
)
from forecaster.ingest.store.index_file import damaged

_ADJUSTMENTS, _RENAMES, _UNTIL = "adjustments.json", "renames.json", "renamed_until.json"
_PENDING = "renaming.json"
_FILES = (MANIFEST, _ADJUSTMENTS, _RENAMES, _UNTIL, "renamed_since.json", _PENDING)
_EARLIEST = "1700-01-01"  # before any row
_SCHEMA = 2
_BEGIN = b'{\n "sha256": "'


def read_manifest(path: Path) -> Index:
    """Read the index of an older store into memory.

    Raises FileNotFoundError if there is none, StoreError if it is damaged, NewerStore if it belongs
    to a newer version.
    """
    try:
        raw = read_plain(path)
        content = json.loads(raw)
        schema = int(content["schema"])
    except FileNotFoundError:
        raise
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise damaged(path, str(error)) from error
    if schema > _SCHEMA:
        raise newer(path, schema)
    if schema == _SCHEMA and _hash(raw) != content.get("sha256"):
        raise damaged(path, "its content is not what was written")
    try:
        return _index(content, schema)
    except (KeyError, TypeError, ValueError, AttributeError, sqlite3.Error) as error:
        raise damaged(path, f"no {error}") from error


def is_manifest(path: Path) -> bool:
    """Return whether a file begins like a manifest; other programs use this name, too."""
    try:
        with path.open("rb") as file:
            return file.read(len(_BEGIN)) == _BEGIN
    except OSError:
        return False


def _index(content: Mapping[str, Any], schema: int) -> Index:
    index = Index.new(str(content["source"]))
    series = content["series"]
    if schema == 1 and index.source == "yahoo":
        # Version 1 recorded neither the first date asked for nor actions; so all is asked for
        # again.
        series = {name: each | {"asked_from": each["first"]} for name, each in series.items()}
    index.put({name: _entry(each) for name, each in series.items()})
    if (origin := content.get("origin")) is not None:
        index.set_origin(Origin(**origin))
    if (quality := content.get("quality")) is not None:
        reviewed = Quality(quality["file"], quality["sha256"], quality["of"])
        index.set_quality(reviewed, quality["series"])
    index.set_aside(Quarantined(**record) for record in content.get("quarantine", []))
    return index


def _entry(fields: Mapping[str, Any]) -> SeriesEntry:
    needed = {name: fields[name] for name in ("rows", "first", "last", "sha256", "file")}
    more = {name: fields[name] for name in SeriesEntry._field_defaults if name in fields}
    return SeriesEntry(**needed, **more)


def _hash(raw: bytes) -> str:
    """Return the SHA-256 of a manifest in which the hash itself counts as zeros."""
    end = len(_BEGIN) + 64
    head = raw[: len(_BEGIN)] + b"0" * 64 if raw.startswith(_BEGIN) else raw[:end]
    return hashlib.sha256(head + raw[end:]).hexdigest()


def older_files(folder: Path) -> list[Path]:
    """Return the files of a store that older versions wrote, and this one does not."""
    return [path for file in _FILES if (path := folder / file).exists()]


def unfinished_renaming(index: Index, folder: Path) -> tuple[str, str] | None:
    """Return the old and the new name of a renaming that was interrupted before it moved rows."""
    pending = _content(folder / _PENDING, list)
    return (pending[0], pending[1]) if pending and pending[0] in index.series else None


def add_corrections(index: Index, folder: Path) -> None:
    """Add the corrections that are in files of their own to the entries of an index in memory.

    Entries that have any stay: a conversion was interrupted. Raises NotRebuilt for a damaged file.
    """
    for name, its in _corrections(index, folder).items():
        entry = index.known(name)
        if entry is None or entry.corrections is not None:
            continue
        entry = entry._replace(corrections=its.text())
        if isinstance(entry, SeriesEntry):
            index.put({name: entry})
        else:
            index.set_aside([entry])


def _corrections(index: Index, folder: Path) -> dict[str, Corrections]:
    adjustments = _content(folder / _ADJUSTMENTS, dict)
    renames, until = (_content(folder / file, dict) for file in (_RENAMES, _UNTIL))
    pending = _content(folder / _PENDING, list)
    if pending and pending[0] not in index.series:  # its rows have been moved
        old, new = pending
        renames = {name: new if to == old else to for name, to in renames.items()} | {old: new}
        renames.pop(new, None)
        adjustments[new] = [*adjustments.get(new, []), *adjustments.pop(old, [])]
    try:
        return {
            name: Corrections(
                tuple(_adjustment(index, name, *each) for each in adjustments.get(name, [])),
                {old: as_time(until.get(old)) for old, new in renames.items() if new == name},
            )
            for name in dict.fromkeys([*adjustments, *renames.values()])
        }
    except (ValueError, TypeError, AttributeError) as error:
        raise _damaged(folder / _ADJUSTMENTS, error) from error


def _adjustment(
    index: Index, name: str, time: str, factor: float, split: int, of: str = ""
) -> Adjustment:
    """Return an adjustment of no stored row, or of all earlier rows if it was interrupted."""
    one, entry = Adjustment(str(time), float(factor), bool(split)), index.series.get(name)
    if entry is None or entry.sha256 != of or factor == 1:
        return one
    return one._replace(rows=((_EARLIEST, str(np.datetime64(time, "ns") - 1)),))


def _content(path: Path, kind: type) -> Any:
    """Return the content of a file of JSON, empty if there is none. Raises NotRebuilt."""
    try:
        content = json.loads(read_plain(path))
        if not isinstance(content, kind):
            raise ValueError(f"expected a {kind.__name__}")
    except FileNotFoundError:
        return kind()
    except (OSError, ValueError) as error:
        raise _damaged(path, error) from error
    return content


def _damaged(path: Path, error: Exception) -> NotRebuilt:
    return NotRebuilt(f"{path}: cannot be read: {error}; remove it, then adjust and rename again")
