"""Read the index of older stores, a JSON file.

Version 2 added a hash of the file, the state of each series, and the fingerprint of the source to
version 1. Version 3 is a SQLite file, see :mod:`forecaster.ingest.store.index`.
"""

import hashlib
import json
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from forecaster.files import read_plain
from forecaster.ingest.store.index import (
    Index,
    Origin,
    Quality,
    Quarantined,
    SeriesEntry,
    newer,
)
from forecaster.ingest.store.index_file import damaged

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
