"""Read and change the index of a price store: tables in a SQLite file, with a row per series.

``PRAGMA user_version`` is the version of the tables. Version 3 had no corrections, versions 1 and 2
were JSON; see :mod:`forecaster.ingest.store.older`.
"""

import functools
import hashlib
import sqlite3
import threading
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from forecaster.errors import StoreError
from forecaster.ingest.store import index_file
from forecaster.ingest.store.corrections import Corrections

SCHEMA = 4
_GAPS = "gaps"  # the kind of count for missing sessions, in addition to the flags


class NotRebuilt(StoreError):
    """A store that cannot be read, and would lose something if its index were rebuilt."""


class NewerStore(NotRebuilt):
    """A store that was written by a newer version of the program."""


class SeriesEntry(NamedTuple):
    """One stored series.

    - ``rows``, ``first``, ``last``: number of rows, and times of the first and the last row
    - ``sha256``, ``file``: hash and name of the file
    - ``state``: "ok"; "suspect" if the source has contradicted the stored prices; "retired" if a
      user said that no more rows will come
    - ``reason``: why the series is suspect
    - ``asked_from``: the first date that the source was asked for; None: all history
    - ``timezone``: the time zone of the exchange, if the source states it
    - ``fingerprint``: the fingerprint of the source when the series was read, if it has one
    - ``corrections``: what is applied to the rows when they are read, see :class:`Corrections`
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
    corrections: str | None = None

    @property
    def suspect(self) -> bool:
        """Whether the source has contradicted the stored prices."""
        return self.state == "suspect"

    @property
    def retired(self) -> bool:
        """Whether no more rows will come."""
        return self.state == "retired"

    def as_suspect(self, reason: str) -> "SeriesEntry":
        """Return the same entry, marked as contradicted by the source."""
        return self._replace(state="suspect", reason=reason)

    def as_retired(self, *, retired: bool = True) -> "SeriesEntry":
        """Return the same entry, marked as retired or as no longer retired."""
        return self._replace(state="retired" if retired else "ok", reason=None)


class Origin(NamedTuple):
    """The source when it was last read: its fingerprint, its series, and those that failed."""

    fingerprint: str
    tickers: list[str]
    failed: dict[str, str]


class Quality(NamedTuple):
    """The result of a review.

    - ``file``, ``sha256``: name and hash of the file of flags
    - ``prices_digest``: the hash of the prices that were reviewed; None if they have changed since
    """

    file: str
    sha256: str
    prices_digest: str | None


class Quarantined(NamedTuple):
    """A damaged file that was set aside; ``file`` is None if the file was missing."""

    series: str
    file: str | None
    reason: str
    asked_from: str | None
    corrections: str | None = None

    @property
    def timezone(self) -> None:
        """Always None: the time zone is in the damaged file."""
        return None


def _text(name: str) -> str:
    return f"{name} TEXT NOT NULL CHECK (typeof({name}) = 'text')"


def _optional_text(name: str) -> str:
    return f"{name} TEXT CHECK ({name} IS NULL OR typeof({name}) = 'text')"


def _number(name: str) -> str:
    return f"{name} INTEGER NOT NULL CHECK (typeof({name}) = 'integer')"


_POSITION = "position INTEGER PRIMARY KEY"
_TABLES = {
    "store": (
        _text("source"), _optional_text("fingerprint"), _optional_text("flags_file"),
        _optional_text("flags_sha256"), _optional_text("prices_digest"),
    ),
    "series": (
        _POSITION, _text("name") + " UNIQUE", _number("rows"), _text("first"), _text("last"),
        _text("sha256"), _text("file"), _text("state"), _optional_text("reason"),
        _optional_text("asked_from"), _optional_text("timezone"), _optional_text("fingerprint"),
        _optional_text("corrections"),
    ),
    "tickers": (_POSITION, _text("name")),
    "failed": (_POSITION, _text("name"), _text("reason")),
    "counts": (_text("series"), _text("kind"), _number("count"), "PRIMARY KEY (series, kind)"),
    "quarantine": (
        _POSITION, _text("series"), _optional_text("file"), _text("reason"),
        _optional_text("asked_from"), _optional_text("corrections"),
    ),
}  # fmt: skip
"""Columns by table. Types are checked, because SQLite does not enforce the declared ones."""
_ENTRY = ", ".join(SeriesEntry._fields)
_QUARANTINED = ", ".join(Quarantined._fields)


class _Database:
    """A connection that threads use one at a time.

    ``unchecked``: the file that the rows were copied from, if their types must still be checked
    """

    def __init__(self, connection: sqlite3.Connection, unchecked: Path | None = None):
        self.connection, self._unchecked = connection, unchecked
        connection.text_factory = _decode
        self._one_at_a_time = threading.Lock()

    def check(self) -> None:
        """Check the types of all rows, once. Raises StoreError when a file was forged."""
        if self._unchecked is not None:
            with self._one_at_a_time, index_file.as_os_error(self._unchecked):
                index_file.check_rows(self.connection)
            self._unchecked = None

    def rows(self, query: str, *values: object) -> list[Any]:
        """Return all rows of a query."""
        self.check()  # a forged file could yield rows without end
        with self._one_at_a_time:
            return self.connection.execute(query, list(map(_as_stored, values))).fetchall()

    def column(self, query: str, *values: object) -> list[Any]:
        """Return the first column of a query."""
        return [row[0] for row in self.rows(query, *values)]

    def number(self, query: str, *values: object) -> int:
        """Return the only number in a query's result; 0 if it is NULL."""
        return self.column(query, *values)[0] or 0

    def first(self, query: str, *values: object) -> Any:
        """Return the first row of a query by key; None if there is none."""
        with self._one_at_a_time:
            row = self.connection.execute(query, list(map(_as_stored, values))).fetchone()
        if self._unchecked and not all(isinstance(each, str | int | None) for each in row or ()):
            raise index_file.damaged(self._unchecked, "a value is of another type")
        return row


class Series(Mapping[str, SeriesEntry]):
    """The stored series by name, in the order in which they were first stored.

    Each entry is read when it is needed. Once a tenth of the entries have been read one by one, all
    others are read together.
    """

    def __init__(self, database: _Database):
        self._database = database
        self._found: dict[str, SeriesEntry | None] = {}
        self._complete = False

    def __getitem__(self, name: str) -> SeriesEntry:
        entry = self._find(name)
        if entry is None:
            raise KeyError(name)
        return entry

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._find(name) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    @functools.cached_property
    def _names(self) -> list[str]:
        return self._database.column("SELECT name FROM series ORDER BY position")

    @functools.cached_property
    def _most_one_by_one(self) -> int:
        return (self._database.first("SELECT max(position) FROM series")[0] or 0) // 10

    def _find(self, name: str) -> SeriesEntry | None:
        if not self._complete and name not in self._found:
            if len(self._found) >= self._most_one_by_one:
                rows = self._database.rows(f"SELECT name, {_ENTRY} FROM series")
                self._found = {name: SeriesEntry._make(fields) for name, *fields in rows}
                self._complete = True
            else:
                query = f"SELECT {_ENTRY} FROM series WHERE name = CAST(? AS TEXT)"
                fields = self._database.first(query, name)
                self._found[name] = fields and SeriesEntry._make(fields)
        return self._found.get(name)


class Index:
    """The contents of an index: a copy in memory, which is written as a whole."""

    def __init__(self, connection: sqlite3.Connection, unchecked: Path | None = None):
        self._connection, self._database = connection, _Database(connection, unchecked)
        self.series: Mapping[str, SeriesEntry] = Series(self._database)
        self.is_older = False  # read from files of an older version

    @staticmethod
    def new(source: str) -> "Index":
        """Return the index of a store without series, in memory."""
        connection = index_file.in_memory()
        for name, columns in _TABLES.items():
            connection.execute(f"CREATE TABLE {name} ({', '.join(columns)})")
        connection.execute(f"PRAGMA user_version = {SCHEMA}")
        index = Index._of_memory(connection)
        index._insert("store", "source", [(source,)])
        return index

    @staticmethod
    def read(path: Path) -> "Index":
        """Read a store's index.

        Raises FileNotFoundError if there is none, StoreError if it is damaged, NewerStore if it
        belongs to a newer version. A forged file with a right checksum may raise StoreError later;
        see :meth:`check`. One of version 3 is brought forward in memory.
        """
        older = False

        def check(connection: sqlite3.Connection) -> None:
            nonlocal older
            if connection.execute("PRAGMA user_version").fetchone() == (3,):
                older = True
                for table in ("series", "quarantine"):
                    column = _optional_text("corrections")
                    connection.execute(f"ALTER TABLE {table} ADD COLUMN {column}")
                connection.execute(f"PRAGMA user_version = {SCHEMA}")
            _check_tables(connection, path)

        index = Index._of_memory(index_file.read(path, check), path)
        index.is_older = older
        return index

    @staticmethod
    def _of_memory(connection: sqlite3.Connection, unchecked: Path | None = None) -> "Index":
        index = Index(connection, unchecked)
        weakref.finalize(index._database, connection.close)
        return index

    def write(self, path: Path, *, read_back: bool = False) -> None:
        """Write the whole index to a file, or replace it. Raises WriteError.

        ``read_back``: replace the file before only if the new one is read as it was written
        """
        index_file.write(path, self._connection, read_back=read_back)

    def check(self) -> None:
        """Check the types of all rows now, before they are needed. Raises StoreError."""
        self._database.check()

    @property
    def source(self) -> str:
        """The name of the source."""
        return self._database.first("SELECT source FROM store")[0]

    @property
    def origin(self) -> Origin | None:
        """The source when it was last read; None if it has no fingerprint."""
        (fingerprint,) = self._database.first("SELECT fingerprint FROM store")
        if fingerprint is None:
            return None
        tickers = self._database.column("SELECT name FROM tickers ORDER BY position")
        failed = self._database.rows("SELECT name, reason FROM failed ORDER BY position")
        return Origin(fingerprint, tickers, dict(failed))

    @property
    def corrections(self) -> dict[str, Corrections]:
        """The corrections by series, where there are any, also of series that were set aside."""
        aside = self._database.rows(
            "SELECT series, corrections FROM quarantine WHERE corrections IS NOT NULL "
            "AND series NOT IN (SELECT name FROM series) ORDER BY position"
        )
        stored = self._database.rows(
            "SELECT name, corrections FROM series WHERE corrections IS NOT NULL ORDER BY position"
        )
        return {name: Corrections.read(text) for name, text in [*aside, *stored]}

    @property
    def renames(self) -> dict[str, str]:
        """The present name of each series by its former ones."""
        return {old: new for new, its in self.corrections.items() for old in its.names}

    @property
    def quality(self) -> Quality | None:
        """The result of the last review; None if there was none."""
        fields = self._database.first("SELECT flags_file, flags_sha256, prices_digest FROM store")
        return None if fields[0] is None else Quality(*fields)

    @property
    def counts(self) -> dict[str, dict[str, int]]:
        """The number of rows with each flag, and of missing sessions as "gaps", by series."""
        counts: dict[str, dict[str, int]] = {}
        for name, kind, count in self._database.rows("SELECT series, kind, count FROM counts"):
            counts.setdefault(name, {})[kind] = count
        return counts

    @property
    def quarantine(self) -> list[Quarantined]:
        """Records of damaged files that were set aside, the latest record last."""
        rows = self._database.rows(f"SELECT {_QUARANTINED} FROM quarantine ORDER BY position")
        return list(map(Quarantined._make, rows))

    @property
    def rows(self) -> int:
        """The number of rows of all series."""
        return self._database.number("SELECT sum(rows) FROM series")

    @property
    def first(self) -> str:
        """The earliest first time of all series; empty if there are no series."""
        times = self._database.column("SELECT DISTINCT first FROM series")
        return min(times, key=_in_time, default="")

    @property
    def last(self) -> str:
        """The latest last time of all series; empty if there are no series."""
        times = self._database.column("SELECT DISTINCT last FROM series")
        return max(times, key=_in_time, default="")

    @property
    def suspects(self) -> int:
        """The number of series that the source has contradicted."""
        return self._database.number("SELECT count(*) FROM series WHERE state = 'suspect'")

    @property
    def retired(self) -> list[str]:
        """The series that will get no more rows."""
        query = "SELECT name FROM series WHERE state = 'retired' ORDER BY position"
        return self._database.column(query)

    @property
    def latest(self) -> dict[str, str]:
        """The time of the latest row, by series; without retired series."""
        query = "SELECT name, last FROM series WHERE state != 'retired'"
        return dict(self._database.rows(query))

    @property
    def gaps(self) -> int:
        """The number of missing sessions of all series in the last review."""
        return self._database.number("SELECT sum(count) FROM counts WHERE kind = ?", _GAPS)

    @property
    def flagged(self) -> int:
        """The number of flags of all series in the last review."""
        return self._database.number("SELECT sum(count) FROM counts WHERE kind != ?", _GAPS)

    @property
    def files(self) -> set[str]:
        """The names of all files of series."""
        return set(self._database.column("SELECT file FROM series"))

    def digest(self, names: Iterable[str] | None = None) -> str:
        """Return a hash of the content of some series, by default all."""
        if names is None:
            pairs = self._database.rows("SELECT name, sha256 FROM series ORDER BY name")
        else:
            pairs = [(name, self.series[name].sha256) for name in sorted(names)]
        return hashlib.sha256("\n".join(map(" ".join, pairs)).encode()).hexdigest()

    def gaps_of(self, name: str) -> int:
        """Return the number of missing sessions of a series in the last review."""
        query = "SELECT sum(count) FROM counts WHERE series = CAST(? AS TEXT) AND kind = ?"
        return self._database.number(query, name, _GAPS)

    def flags_of(self, name: str) -> dict[str, int]:
        """Return the number of rows of a series with each flag in the last review."""
        query = "SELECT kind, count FROM counts WHERE series = CAST(? AS TEXT) AND kind != ?"
        return dict(self._database.rows(f"{query} ORDER BY kind", name, _GAPS))

    def by_urgency(self) -> list[str]:
        """Return all series: suspects first, then those with the most flags and gaps."""
        return self._database.column("""
            SELECT name FROM series
            LEFT JOIN (SELECT series, sum(count) AS total FROM counts GROUP BY series)
            ON series = name ORDER BY state != 'suspect', ifnull(total, 0) DESC, position""")

    def lost(self, name: str) -> Quarantined | None:
        """Return the latest quarantine record of a series that is not stored."""
        if name in self.series:
            return None
        query = f"SELECT {_QUARANTINED} FROM quarantine WHERE series = CAST(? AS TEXT)"
        rows = self._database.rows(f"{query} ORDER BY position DESC LIMIT 1", name)
        return Quarantined._make(rows[0]) if rows else None

    def known(self, name: str) -> SeriesEntry | Quarantined | None:
        """Return a series' entry, or its quarantine record if it is not stored."""
        return self.series.get(name) or self.lost(name)

    def put(self, entries: Mapping[str, SeriesEntry]) -> set[str]:
        """Add entries or replace those of the same names; return the files of replaced entries."""
        old = {name: self.series.get(name) for name in entries}
        self._insert("series", f"name, {_ENTRY}", [(n, *each) for n, each in entries.items()])
        self.series = Series(self._database)
        if any(was is None or was.sha256 != entries[name].sha256 for name, was in old.items()):
            self._connection.execute("UPDATE store SET prices_digest = NULL")
        files = {name: was.file for name, was in old.items() if was is not None}
        return {file for name, file in files.items() if file != entries[name].file}

    def remove(self, names: Iterable[str]) -> None:
        """Remove the entries of series."""
        for name in names:
            query = "DELETE FROM series WHERE name = CAST(? AS TEXT)"
            self._connection.execute(query, [_as_stored(name)])
        self.series = Series(self._database)
        self._connection.execute("UPDATE store SET prices_digest = NULL")

    def set_origin(self, origin: Origin | None) -> None:
        """Set the state of the source when it was read; None: the source must be read again."""
        self._connection.execute("DELETE FROM tickers")
        self._connection.execute("DELETE FROM failed")
        self._update_store("fingerprint", (None if origin is None else origin.fingerprint,))
        if origin is not None:
            self._insert("tickers", "name", [(name,) for name in origin.tickers])
            self._insert("failed", "name, reason", list(origin.failed.items()))

    def set_quality(
        self, quality: Quality | None, counts: Mapping[str, Mapping[str, int]] | None = None
    ) -> None:
        """Set the result of a review; None: the series cannot be reviewed.

        ``counts``: see :attr:`counts`; zeros may be left out
        """
        fields = (None, None, None) if quality is None else quality
        if quality is not None and quality.prices_digest != self.digest():
            fields = quality._replace(prices_digest=None)
        self._update_store("flags_file, flags_sha256, prices_digest", fields)
        self._connection.execute("DELETE FROM counts")
        rows = [(n, kind, k) for n, each in (counts or {}).items() for kind, k in each.items()]
        self._insert("counts", "series, kind, count", rows)

    def set_aside(self, records: Iterable[Quarantined]) -> None:
        """Add records of damaged files that were set aside."""
        self._insert("quarantine", _QUARANTINED, list(records))

    def _insert(self, table: str, columns: str, rows: Sequence[Sequence[object]]) -> None:
        names = columns.split(", ")
        marks = ("?" if name in ("rows", "count") else "CAST(? AS TEXT)" for name in names)
        query = f"INSERT INTO {table} ({columns}) VALUES ({', '.join(marks)})"
        if table == "series":
            changed = ", ".join(f"{name} = excluded.{name}" for name in names)
            query += f" ON CONFLICT (name) DO UPDATE SET {changed}"
        self._connection.executemany(query, (list(map(_as_stored, row)) for row in rows))

    def _update_store(self, columns: str, values: Sequence[object]) -> None:
        changed = ", ".join(f"{name} = CAST(? AS TEXT)" for name in columns.split(", "))
        self._connection.execute(f"UPDATE store SET {changed}", list(map(_as_stored, values)))


def count_by_series(
    flags: Mapping[str, Mapping[str, int]], gaps: Mapping[str, int]
) -> dict[str, dict[str, int]]:
    """Return flags and gaps by series in the form of :attr:`Index.counts`, without zeros."""
    counts = {name: {_GAPS: gaps[name], **flags.get(name, {})} for name in gaps}
    return {name: {k: n for k, n in each.items() if n} for name, each in counts.items()}


def is_index(path: Path) -> bool:
    """Return whether a file begins like an index; other programs may use the same file name."""
    try:
        with path.open("rb") as file:
            begin = file.read(4096)
    except OSError:
        return False
    return begin.startswith(index_file.MAGIC) and all(
        f"CREATE TABLE {name} (".encode() in begin for name in ("store", "series")
    )


def newer(path: Path, schema: int) -> NewerStore:
    """Return the error for a store of a version that this program does not know."""
    return NewerStore(
        f"{path}: written in version {schema} of the store; this program reads versions up to "
        f"{SCHEMA}. Update forecaster, or choose another --home"
    )


def _check_tables(connection: sqlite3.Connection, path: Path) -> None:
    """Raise ValueError unless the tables are those of this version, NewerStore if it is newer."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > SCHEMA:
        raise newer(path, version)
    if version != SCHEMA or _tables_of(connection) != _tables_of_new():
        raise ValueError("it has other tables")
    if len(connection.execute("SELECT 1 FROM store").fetchmany(2)) != 1:
        raise ValueError("it does not name exactly one source")


def _tables_of(connection: sqlite3.Connection) -> list[tuple[str, ...]]:
    query = "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY name"
    return connection.execute(query).fetchall()


@functools.cache
def _tables_of_new() -> list[tuple[str, ...]]:
    index = Index.new("")  # the index must live until the query is done
    return _tables_of(index._connection)


def _as_stored(value: object) -> object:
    """Return a value for SQLite; text as bytes, since it may have lone surrogates."""
    if isinstance(value, str) and not value.isascii():
        return value.encode("utf-8", "surrogatepass")
    return value


def _decode(raw: bytes) -> str:
    try:
        return raw.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:  # the bytes are forged
        return raw.decode("utf-8", "replace")


def is_later(time: str, other: str) -> bool:
    """Return whether the time of a row is after another, both in the form of the index."""
    return _in_time(time) > _in_time(other)


def _in_time(time: str) -> tuple[int, str]:
    """Return a sort key of a time: whole numbers sort by value, dates as text."""
    return (int(time), "") if time.lstrip("-").isdecimal() else (0, time)
