"""The store's list of contents: a JSON file that carries a hash of itself.

Version 2 added, to version 1: the hash, each series' state, and where its data came from.
"""

import hashlib
import json
import re
from pathlib import Path
from typing import Any

from forecaster import atomic
from forecaster.errors import StoreError

SCHEMA = 2
NAME = "manifest.json"
_HASH_AT = '{\n "sha256": "'
_UNHASHED = "0" * 64
_DEFAULTS = {
    "state": "ok",  # or "suspect": the source has contradicted what is stored
    "reason": None,  # why it is suspect
    "asked_from": None,  # the first date that was asked for; None: all history
    "timezone": None,
    "fingerprint": None,  # of the source that it was read from, where it has one
}


def empty(source: str) -> dict[str, Any]:
    """The manifest of a store without any series.

    ``origin``: the fingerprint of what the source held and the series that failed then.
    ``quality``: the hash of the data that the flags were found in, their file, and counts.
    ``quarantine``: damaged files that were set aside.
    """
    return {
        "schema": SCHEMA,
        "source": source,
        "series": {},
        "origin": None,
        "quality": None,
        "quarantine": [],
    }


def entry(**fields: Any) -> dict[str, Any]:
    """A series' entry: file, rows, first, last, sha256, and what is known of its state."""
    return _DEFAULTS | fields


def read(path: Path) -> dict[str, Any]:
    """Read a manifest, of an older version too.

    Raises StoreError when it is damaged, or of a newer version.
    """
    try:
        raw = path.read_bytes()
        found = json.loads(raw)
        schema = int(found["schema"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _damaged(path, str(error)) from error
    if schema > SCHEMA:
        raise NewerStore(
            f"{path}: written in version {schema} of the store; this program reads versions up to "
            f"{SCHEMA}. Update forecaster, or choose another --home"
        )
    if schema >= 2 and _hash(raw) != found.get("sha256"):
        raise _damaged(path, "its content is not what was written")
    found.pop("sha256", None)
    try:
        found = empty(str(found["source"])) | found | {"schema": SCHEMA}
        for name, fields in found["series"].items():
            [fields[part] for part in ("file", "rows", "first", "last", "sha256")]
            if schema == 1 and found["source"] == "yahoo":
                # It did not say what it had asked for, and kept no actions: to be asked for anew.
                fields = fields | {"asked_from": str(fields["first"])}
            found["series"][name] = entry(**fields)
    except (KeyError, TypeError, AttributeError) as error:
        raise _damaged(path, f"no {error}") from error
    return found


class NewerStore(StoreError):
    """A store that a later version of the program has written."""


def write(path: Path, manifest: dict[str, Any]) -> None:
    """Replace the file. Raises StoreError when it cannot be written."""
    text = json.dumps({"sha256": _UNHASHED, **manifest}, indent=1, allow_nan=False)
    assert text.startswith(_HASH_AT + _UNHASHED)
    text = text.replace(_UNHASHED, _hash(text.encode()), 1)
    atomic.write_file(path, lambda temporary: temporary.write_bytes(text.encode()))


def _hash(raw: bytes) -> str:
    """Of all bytes, those of the hash itself counted as zeros."""
    return hashlib.sha256(re.sub(_HASHED, _BLANK, raw, count=1)).hexdigest()


_HASHED = re.compile(rb'\A(\{\n "sha256": ")[0-9a-f]{64}"')
_BLANK = rb"\g<1>" + _UNHASHED.encode() + b'"'


def _damaged(path: Path, why: str) -> StoreError:
    return StoreError(
        f"{path}: the manifest cannot be read ({why}). `forecaster ingest` sets it aside and "
        "lists the stored series anew"
    )
