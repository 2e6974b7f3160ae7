"""Read and write the index of a price store: one JSON file, which is written whole.

It begins with the SHA-256 of all that follows, since a flipped byte would otherwise go unnoticed.
Versions 1 to 4 had other forms, see :mod:`forecaster.ingest.store.older`.
"""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec

from forecaster.errors import StoreError
from forecaster.files import atomic, read_plain
from forecaster.ingest.store.corrections import Corrections

SCHEMA = 5
RULES = 4
"""To be raised when flags change, or the times at which they are known: reviews then run again."""
GAPS = "gaps"
"""The kind of count for missing sessions, in addition to the flags."""
_BEGIN, _HASH_ENDS = b'{"sha256":"', 75
_SQLITE, _VERSION_2 = b"SQLite format 3\0", b'{\n "sha256": "'


class NotRebuilt(StoreError):
    """A store that cannot be read, and would lose something if its index were rebuilt."""


class SeriesEntry(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One stored series.

    - ``rows``, ``first``, ``last``: number of rows, and times of the first and the last row
    - ``sha256``, ``file``: hash and name of the file
    - ``state``: "ok"; "suspect" if the source has contradicted the stored prices; "retired" if a
      user said that no more rows will come
    - ``reason``: why the series is suspect
    - ``asked_from``: the first date that the source was asked for; None: all history
    - ``fingerprint``: the fingerprint of the source when the series was read, if it has one
    - ``corrections``: what is applied to the rows when they are read
    """

    rows: int
    first: str
    last: str
    sha256: str
    file: str
    state: str = "ok"
    reason: str | None = None
    asked_from: str | None = None
    fingerprint: str | None = None
    corrections: Corrections = Corrections()

    @property
    def retired(self) -> bool:
        """Whether no more rows will come."""
        return self.state == "retired"


class Origin(NamedTuple):
    """The source when it was last read: its fingerprint, its series, and those that failed."""

    fingerprint: str
    tickers: list[str]
    failed: dict[str, str]


class Quality(NamedTuple):
    """The result of a review.

    - ``file``, ``sha256``: name and hash of the file of flags
    - ``prices_digest``: what was reviewed, see :attr:`Index.reviewed`
    """

    file: str
    sha256: str
    prices_digest: str | None


class Quarantined(NamedTuple):
    """A damaged file that was set aside; ``file`` is None if the file was missing.

    ``timezone``: no longer used
    """

    series: str
    file: str | None
    reason: str
    asked_from: str | None = None
    timezone: str | None = None
    corrections: Corrections = Corrections()


class Index(msgspec.Struct):
    """The contents of an index.

    - ``source``: the name of the source
    - ``series``: by name, in the order in which they were first stored
    - ``origin``: the source when it was last read; None if it has no fingerprint
    - ``quality``: the result of the last review; None if there was none
    - ``counts``: the number of rows with each flag, and of missing sessions as "gaps", by series
    - ``quarantine``: records of damaged files that were set aside, the latest record last
    - ``frequency``: the step of rows that a caller stated when the source was last read
    """

    source: str
    series: dict[str, SeriesEntry] = {}
    origin: Origin | None = None
    quality: Quality | None = None
    counts: dict[str, dict[str, int]] = {}
    quarantine: list[Quarantined] = []
    frequency: str | None = None
    schema: int = SCHEMA

    @staticmethod
    def read(path: Path) -> "Index":
        """Read an index of this version.

        Raises FileNotFoundError if there is none, StoreError if it is damaged, NotRebuilt if it
        belongs to a newer version.
        """
        try:
            raw = read_plain(path)
            if _hashed(raw[_HASH_ENDS:]) != raw:
                raise ValueError("its content is not what was written")
            content = json.loads(b"{" + raw[_HASH_ENDS + 2 :])
            check_version(path, content["schema"], SCHEMA)
            return msgspec.convert(content, Index)
        except FileNotFoundError:
            raise
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise damaged(path, error) from error

    def write(self, path: Path) -> None:
        """Write the index, or replace it once the new one is read as it was written.

        Raises WriteError; then it is as before.
        """
        content = json.dumps(msgspec.to_builtins(self)).encode()  # with names that are not UTF-8

        def write_to(temporary: Path) -> None:
            temporary.write_bytes(_hashed(b'",' + content[1:]))
            if Index.read(temporary) != self:
                raise OSError("it is not read as it was written")

        atomic.write_file(path, write_to)

    @property
    def corrections(self) -> dict[str, Corrections]:
        """The corrections by series, where there are any, also of series that were set aside."""
        aside = {one.series: one.corrections for one in self.quarantine if one.corrections}
        stored = {name: one.corrections for name, one in self.series.items()}
        return {name: its for name, its in (aside | stored).items() if its}

    @property
    def renames(self) -> dict[str, str]:
        """The present name of each series by its former ones."""
        return {old: new for new, its in self.corrections.items() for old in its.names}

    @property
    def span(self) -> tuple[str, str]:
        """The earliest and the latest time of all series; empty if there are no series."""
        times = {time for entry in self.series.values() for time in (entry.first, entry.last)}
        return min(times, key=_in_time, default=""), max(times, key=_in_time, default="")

    @property
    def retired(self) -> list[str]:
        """The series that will get no more rows."""
        return [name for name, entry in self.series.items() if entry.retired]

    @property
    def latest(self) -> dict[str, str]:
        """The time of the latest row, by series; without retired series."""
        return {name: entry.last for name, entry in self.series.items() if not entry.retired}

    @property
    def files(self) -> set[str]:
        """The names of all files of series, and of that of their flags."""
        files = {entry.file for entry in self.series.values()}
        return files | {self.quality.file} if self.quality else files

    def digest(self, names: Iterable[str] | None = None) -> str:
        """Return a hash of the content of some series, by default all."""
        names = sorted(self.series if names is None else names)
        lines = (f"{name} {self.series[name].sha256}" for name in names)
        return hashlib.sha256("\n".join(lines).encode("utf-8", "surrogatepass")).hexdigest()

    @property
    def reviewed(self) -> str:
        """What a review is of: the rules of flags, and the content of all series."""
        return f"{RULES} {self.digest()}"

    def known(self, name: str) -> SeriesEntry | Quarantined | None:
        """Return a series' entry, or its latest quarantine record if it is not stored."""
        aside = (one for one in reversed(self.quarantine) if one.series == name)
        return self.series.get(name) or next(aside, None)


def _hashed(rest: bytes) -> bytes:
    """Return an index whose hash is that of the rest."""
    return _BEGIN + hashlib.sha256(rest).hexdigest().encode() + rest


def begins_like_an_index(path: Path, *, of_this_version: bool = False) -> bool:
    """Return whether a file begins like an index; other programs may use the same file name."""
    begins = _BEGIN if of_this_version else (_BEGIN, _VERSION_2, _SQLITE)
    try:
        with path.open("rb") as file:
            return file.read(20).startswith(begins)
    except OSError:
        return False


def check_version(path: Path, version: int, newest: int) -> None:
    """Raise NotRebuilt for a store of a version that this program does not know."""
    if version > newest:
        raise NotRebuilt(
            f"{path}: written in version {version} of the store; this program reads versions up to "
            f"{SCHEMA}. Update forecaster, or choose another --home"
        )


def damaged(path: Path, why: object) -> StoreError:
    """Return the error for an index that cannot be read."""
    return StoreError(
        f"{path}: the index cannot be read ({why}). `forecaster ingest` sets it aside and lists "
        "the stored series anew"
    )


def is_later(time: str, other: str) -> bool:
    """Return whether the time of a row is after another, both in the form of the index."""
    return _in_time(time) > _in_time(other)


def _in_time(time: str) -> tuple[int, str]:
    """Return a sort key of a time: whole numbers sort by value, dates as text."""
    return (int(time), "") if time.lstrip("-").isdecimal() else (0, time)
