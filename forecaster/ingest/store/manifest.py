"""The store's list of contents: a JSON file that carries a hash of itself.

Version 2 added, to version 1: the hash, each series' state, and where its data came from.
"""

import contextlib
import dataclasses
import gc
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

from forecaster.errors import StoreError
from forecaster.files import atomic

_SHA256_AT = '"sha256": "'


class SeriesEntry(NamedTuple):
    """One stored series.

    - ``state``: "ok", or "suspect" when the source has contradicted what is stored
    - ``reason``: why it is suspect
    - ``asked_from``: the first date that the source was asked for; None: all history
    - ``timezone``: of the exchange, where the source says
    - ``fingerprint``: of the source when the series was read from it, where it has one
    - ``rows``, ``first``, ``last``: their number, and the times of the first and the last
    - ``sha256``, ``file``: hash and name of the file
    """

    rows: int
    first: str
    last: str
    sha256: str
    file: str
    state: str = "ok"
    reason: str | None = None
    asked_from: str | None = None
    timezone: str | None = None
    fingerprint: str | None = None

    @property
    def suspect(self) -> bool:
        """Whether the source has contradicted what is stored."""
        return self.state != "ok"

    def as_suspect(self, reason: str) -> "SeriesEntry":
        """The same entry, marked as contradicted by the source."""
        return self._replace(state="suspect", reason=reason)

    def to_json(self) -> dict[str, Any]:
        """Its fields, without those that are as by default."""
        default = SeriesEntry._field_defaults
        fields = zip(SeriesEntry._fields, self, strict=True)
        return {
            name: value for name, value in fields if name not in default or value != default[name]
        }

    @staticmethod
    def from_json(fields: Mapping[str, Any]) -> "SeriesEntry":
        """Read an entry; raises KeyError when a field without a default is missing."""
        try:  # as this version writes them, all is understood
            return SeriesEntry(**fields)
        except TypeError:
            pass
        needed = {name: fields[name] for name in ("rows", "first", "last", "sha256", "file")}
        names = SeriesEntry._field_defaults
        return SeriesEntry(**needed, **{name: fields[name] for name in names if name in fields})


class Entries(MutableMapping[str, SeriesEntry]):
    """Entries by name, each read from its text when it is asked for: few of 100,000 are.

    - ``entries``: by name an entry, or its text as JSON
    """

    def __init__(self, entries: Mapping[str, SeriesEntry | str]):
        self._entries = dict(entries)

    def __getitem__(self, name: str) -> SeriesEntry:
        entry = self._entries[name]
        if isinstance(entry, str):
            entry = self._entries[name] = SeriesEntry.from_json(json.loads(entry))
        return entry

    def sha256(self, names: Iterable[str]) -> list[str]:
        """The hashes of these files; asked for of all series, so nothing is made of them."""
        hashes: list[str] = []
        for name in names:
            entry = self._entries[name]
            if isinstance(entry, str):
                begin = entry.index(_SHA256_AT) + len(_SHA256_AT)
                hashes.append(entry[begin : entry.index('"', begin)])
            else:
                hashes.append(entry.sha256)
        return hashes

    def __setitem__(self, name: str, entry: SeriesEntry) -> None:
        self._entries[name] = entry

    def __delitem__(self, name: str) -> None:
        del self._entries[name]

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


SCHEMA = 2
NAME = "manifest.json"
_HASH_AT = '{\n "sha256": "'
_SERIES_AT, _AFTER_SERIES = b'\n "series": {\n  "', b"}\n },\n "
_UNHASHED = "0" * 64
_GAPS = "gaps"  # counted beside the flags of a series


class NewerStore(StoreError):
    """A store that a later version of the program has written."""


class Origin(NamedTuple):
    """What a source held when it was last read: its state, its series, and those that failed."""

    fingerprint: str
    tickers: list[str]
    failed: dict[str, str]


class Quality(NamedTuple):
    """The result of a review.

    - ``file``, ``sha256``: name and hash of the file of flags
    - ``prices_digest``: the hash of the stored prices that were reviewed
    - ``counts``: by series, how many rows have each flag, and under "gaps" how many are missing
    """

    file: str
    sha256: str
    prices_digest: str
    counts: dict[str, dict[str, int]]

    @staticmethod
    def count_by_series(
        flags: Mapping[str, Mapping[str, int]], gaps: Mapping[str, int]
    ) -> dict[str, dict[str, int]]:
        """The ``counts`` of flags and gaps by series; what is zero is left out."""
        counts = {name: {_GAPS: gaps[name], **flags.get(name, {})} for name in gaps}
        return {name: {k: n for k, n in each.items() if n} for name, each in counts.items()}


class Quarantined(NamedTuple):
    """A damaged file that was set aside; ``file`` is None when there was no file any more."""

    series: str
    file: str | None
    reason: str
    asked_from: str | None

    @property
    def timezone(self) -> None:
        """Unknown: it is in the damaged file."""
        return None


@dataclasses.dataclass(frozen=True)
class Manifest:
    """What a store holds.

    - ``source``: the name of the source
    - ``series``: the stored series by name
    - ``origin``: the source when it was last read, where it has a fingerprint
    - ``quality``: the result of the last review
    - ``quarantine``: damaged files that were set aside
    """

    source: str
    series: MutableMapping[str, SeriesEntry] = dataclasses.field(default_factory=dict)
    origin: Origin | None = None
    quality: Quality | None = None
    quarantine: list[Quarantined] = dataclasses.field(default_factory=list)

    @property
    def rows(self) -> int:
        """Rows of all series."""
        return sum(entry.rows for entry in self.series.values())

    @property
    def first(self) -> str:
        """The earliest first time of all series; empty when there are none."""
        return min((entry.first for entry in self.series.values()), key=_in_time, default="")

    @property
    def last(self) -> str:
        """The latest last time of all series; empty when there are none."""
        return max((entry.last for entry in self.series.values()), key=_in_time, default="")

    @property
    def suspects(self) -> int:
        """How many series the source has contradicted."""
        return sum(entry.suspect for entry in self.series.values())

    @property
    def gaps(self) -> int:
        """Missing sessions of all series, as last reviewed."""
        return sum(counts.get(_GAPS, 0) for counts in self._counts.values())

    @property
    def flagged(self) -> int:
        """Flags of all series, as last reviewed."""
        return sum(sum(counts.values()) for counts in self._counts.values()) - self.gaps

    @property
    def files(self) -> set[str]:
        """The names of all files of series."""
        return {entry.file for entry in self.series.values()}

    def sha256_of(self, names: Sequence[str]) -> list[str]:
        """The hashes of the files of these series."""
        series = self.series
        if isinstance(series, Entries):
            return series.sha256(names)
        return [series[name].sha256 for name in names]

    def gaps_of(self, name: str) -> int:
        """Missing sessions of a series, as last reviewed."""
        return self._counts.get(name, {}).get(_GAPS, 0)

    def flags_of(self, name: str) -> dict[str, int]:
        """How many rows of a series have each flag, as last reviewed."""
        return {flag: n for flag, n in self._counts.get(name, {}).items() if flag != _GAPS}

    def by_urgency(self) -> list[str]:
        """All series, those with the most to look at first: suspects, then by flags and gaps."""
        return sorted(self.series, key=self._urgency)

    def lost(self, name: str) -> Quarantined | None:
        """What was known of a series that is not stored because its file was set aside."""
        if name in self.series:
            return None
        return next((record for record in self.quarantine[::-1] if record.series == name), None)

    def known(self, name: str) -> "SeriesEntry | Quarantined | None":
        """A series' entry, or what is left of it when its file was set aside."""
        return self.series.get(name) or self.lost(name)

    def to_json(self) -> dict[str, Any]:
        """The layout of the file, but for the hash."""
        return {
            "schema": SCHEMA,
            "source": self.source,
            "series": {name: entry.to_json() for name, entry in self.series.items()},
            "origin": None if self.origin is None else self.origin._asdict(),
            "quality": None if self.quality is None else _quality_to_json(self.quality),
            "quarantine": [record._asdict() for record in self.quarantine],
        }

    @staticmethod
    def from_json(content: Mapping[str, Any]) -> "Manifest":
        """The manifest in a layout of this or an older version.

        Raises KeyError, TypeError or AttributeError when something is missing or not of its kind.
        """
        source, series = str(content["source"]), content["series"]
        if content["schema"] == 1 and source == "yahoo":
            # Version 1 did not record what it had asked for, and kept no actions; ask again.
            series = {n: fields | {"asked_from": fields["first"]} for n, fields in series.items()}
        origin, quality = content.get("origin"), content.get("quality")
        return Manifest(
            source,
            series if isinstance(series, Entries) else _entries(series),
            None if origin is None else Origin(**origin),
            None if quality is None else _quality_from_json(quality),
            [Quarantined(**record) for record in content.get("quarantine", [])],
        )

    @staticmethod
    def read(path: Path) -> "Manifest":
        """Read a manifest, of an older version too.

        Raises StoreError when it is damaged, NewerStore when it is of a newer version.
        """
        with _uncollected():
            return _read(path)

    def write(self, path: Path) -> None:
        """Replace the file. Raises WriteError when it cannot be written."""
        text = _as_text({"sha256": _UNHASHED, **self.to_json()})
        assert text.startswith(_HASH_AT + _UNHASHED)
        text = text.replace(_UNHASHED, _hash(text.encode()), 1)
        atomic.write_file(path, lambda temporary: temporary.write_bytes(text.encode()))

    @property
    def _counts(self) -> dict[str, dict[str, int]]:
        return {} if self.quality is None else self.quality.counts

    def _urgency(self, name: str) -> tuple[bool, int]:
        return not self.series[name].suspect, -sum(self._counts.get(name, {}).values())


def _read(path: Path) -> Manifest:
    try:
        raw = path.read_bytes()
        content = _parsed(raw)
        schema = content["schema"] = int(content["schema"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _damaged(path, str(error)) from error
    if schema > SCHEMA:
        raise NewerStore(
            f"{path}: written in version {schema} of the store; this program reads versions up "
            f"to {SCHEMA}. Update forecaster, or choose another --home"
        )
    if schema >= 2 and _hash(raw) != content.get("sha256"):
        raise _damaged(path, "its content is not what was written")
    try:
        return Manifest.from_json(content)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _damaged(path, f"no {error}") from error


def _parsed(raw: bytes) -> dict[str, Any]:
    """The content; of many entries their texts, where each has a line of its own as written here.

    What that may be wrong about, the hash of all bytes tells.
    """
    begin = raw.find(_SERIES_AT)
    end = raw.find(_AFTER_SERIES, begin)
    block = raw[begin + len(_SERIES_AT) : end + 1]
    if begin < 0 or end < 0 or b"\\" in block:  # where text is escaped, quotes may be within it
        return json.loads(raw)
    content = json.loads(raw[:begin] + b'\n "series": {' + raw[end + 2 :])
    pairs = (cast(tuple[str, str], line.split('": ', 1)) for line in block.decode().split(',\n  "'))
    content["series"] = Entries(dict(pairs))
    return content


def _entries(fields: Mapping[str, Mapping[str, Any]]) -> Entries:
    return Entries({name: SeriesEntry.from_json(each) for name, each in fields.items()})


def is_manifest(path: Path) -> bool:
    """Whether a file begins as manifests do; other programs write files of this name, too."""
    try:
        with path.open("rb") as file:
            return file.read(len(_HASH_AT)) == _HASH_AT.encode()
    except OSError:
        return False


def _as_text(content: Mapping[str, Any]) -> str:
    """As JSON, a line for each series: with ``indent`` the standard library is ten times slower."""
    parts: list[str] = []
    for key, value in content.items():
        text = json.dumps(value, allow_nan=False)
        if key == "series" and value:
            each = (
                f"  {json.dumps(n)}: {json.dumps(v, allow_nan=False)}" for n, v in value.items()
            )
            text = "{\n" + ",\n".join(each) + "\n }"
        parts.append(f" {json.dumps(key)}: {text}")
    return "{\n" + ",\n".join(parts) + "\n}"


def stems(files: Iterable[str]) -> set[str]:
    """Names of series' files without hash and ending, which all versions of a series share."""
    return {file.rsplit(".", 2)[0] for file in files}


def _in_time(time: str) -> tuple[int, str]:
    """Times as they follow each other: whole numbers by their value, dates as they are written."""
    return (int(time), "") if time.lstrip("-").isdecimal() else (0, time)


def _quality_to_json(quality: Quality) -> dict[str, Any]:
    return {
        "file": quality.file,
        "sha256": quality.sha256,
        "of": quality.prices_digest,
        "series": quality.counts,
    }


def _quality_from_json(fields: Mapping[str, Any]) -> Quality:
    return Quality(fields["file"], fields["sha256"], fields["of"], fields["series"])


def _hash(raw: bytes) -> str:
    """Of all bytes, those of the hash itself counted as zeros."""
    begin = len(_HASH_AT) + len(_UNHASHED) + 1
    digest = hashlib.sha256(re.sub(_HASHED, _BLANK, raw[:begin], count=1))
    digest.update(memoryview(raw)[begin:])
    return digest.hexdigest()


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """Without garbage collections, which look at the many objects of a list again and again."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


_HASHED = re.compile(rb'\A(\{\n "sha256": ")[0-9a-f]{64}"')
_BLANK = rb"\g<1>" + _UNHASHED.encode() + b'"'


def _damaged(path: Path, why: str) -> StoreError:
    return StoreError(
        f"{path}: the manifest cannot be read ({why}). `forecaster ingest` sets it aside and "
        "lists the stored series anew"
    )
