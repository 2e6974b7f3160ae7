"""Read and change the index of a price store: a SQLite file with a row for each series.

``PRAGMA user_version`` is the version of the tables; versions 1 and 2 were JSON, see
:mod:`forecaster.ingest.store.manifest`. ``PRAGMA application_id`` is a checksum of all other bytes,
because SQLite itself does not notice a flipped byte.

A reader copies the whole file into memory, so that later changes do not affect it. A writer changes
the file in one transaction.
"""

import contextlib
import errno
import functools
import hashlib
import os
import shutil
import sqlite3
import tempfile
import threading
import weakref
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from forecaster.errors import StoreError
from forecaster.files import atomic
from forecaster.home import INDEX

SCHEMA = 3
_MAGIC = b"SQLite format 3\0"
_HEADER_BYTES = 100
_ROLLBACK_JOURNAL = b"\1\1"  # journal mode; to read in the other, a write-ahead log, creates files
_MOST_BYTES = 2**30  # of an index, about four million series
_WAIT = {"ro": 2.0, "rw": 60.0, "rwc": 60.0}  # seconds for a lock, by SQLite's mode of opening
_TRIES = 3
_GAPS = "gaps"  # kind of count beside the flags
_CAN_SERIALIZE = hasattr(sqlite3.Connection, "serialize")  # not in all builds before SQLite 3.36
_UNSEALED = bytes(4)


class NewerStore(StoreError):
    """A store that a newer version of the program has written."""


class SeriesEntry(NamedTuple):
    """One stored series.

    - ``rows``, ``first``, ``last``: number of rows, time of the first and of the last
    - ``sha256``, ``file``: hash and name of the file
    - ``state``: "ok", or "suspect" when the source has contradicted the stored prices
    - ``reason``: why it is suspect
    - ``asked_from``: the first date that the source was asked for; None: all history
    - ``timezone``: of the exchange, where the source says
    - ``fingerprint``: of the source when the series was read from it, where it has one
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
        """Whether the source has contradicted the stored prices."""
        return self.state != "ok"

    def as_suspect(self, reason: str) -> "SeriesEntry":
        """Return the same entry, marked as contradicted by the source."""
        return self._replace(state="suspect", reason=reason)


class Origin(NamedTuple):
    """The source when it was last read: its fingerprint, its series, and those that failed."""

    fingerprint: str
    tickers: list[str]
    failed: dict[str, str]


class Quality(NamedTuple):
    """The result of a review.

    - ``file``, ``sha256``: name and hash of the file of flags
    - ``prices_digest``: the hash of the prices that were reviewed; None: they have changed since
    """

    file: str
    sha256: str
    prices_digest: str | None


class Quarantined(NamedTuple):
    """A damaged file that was set aside; ``file`` is None when the file was missing."""

    series: str
    file: str | None
    reason: str
    asked_from: str | None

    @property
    def timezone(self) -> None:
        """Unknown: it is in the damaged file."""
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
    ),
    "tickers": (_POSITION, _text("name")),
    "failed": (_POSITION, _text("name"), _text("reason")),
    "counts": (_text("series"), _text("kind"), _number("count"), "PRIMARY KEY (series, kind)"),
    "quarantine": (
        _POSITION, _text("series"), _optional_text("file"), _text("reason"),
        _optional_text("asked_from"),
    ),
}  # fmt: skip
"""Columns by table. Types are checked, because SQLite does not enforce the declared ones."""
_ENTRY = ", ".join(SeriesEntry._fields)
_QUARANTINED = ", ".join(Quarantined._fields)


class _Database:
    """A connection that threads use one at a time.

    ``unchecked``: the file whose copy it is, until all rows are checked; None where need not be
    """

    def __init__(self, connection: sqlite3.Connection, unchecked: Path | None = None):
        self.connection, self._unchecked = connection, unchecked
        self._one_at_a_time = threading.Lock()

    def check(self) -> None:
        """Check all rows, once. Raises StoreError when one is not as this program writes them."""
        if self._unchecked is not None:
            with self._one_at_a_time, _as_os_error(self._unchecked):
                _check_rows(self.connection)
            self._unchecked = None

    def rows(self, query: str, *values: object) -> list[Any]:
        """Return all rows of a query."""
        self.check()  # a forged file could have rows without end
        return self._fetch(query, values)

    def column(self, query: str, *values: object) -> list[Any]:
        """Return the first column of a query."""
        return [row[0] for row in self.rows(query, *values)]

    def number(self, query: str, *values: object) -> int:
        """Return the one number of a query's result; 0 where it is NULL."""
        return self.column(query, *values)[0] or 0

    def first(self, query: str, *values: object) -> Any:
        """Return the first row, None if there is none, of a query that finds it by a key."""
        rows = self._fetch(query, values, most=1)
        if not all(value is None or isinstance(value, str | int) for row in rows for value in row):
            raise damaged(self._unchecked or Path(INDEX), "a value of another type")
        return rows[0] if rows else None

    def _fetch(self, query: str, values: Sequence[object], most: int | None = None) -> list[Any]:
        stored = list(map(_as_stored, values))
        with self._one_at_a_time:
            try:
                return _fetched(self.connection.execute(query, stored), most)
            except (sqlite3.OperationalError, UnicodeDecodeError):
                if self.connection.text_factory is not str:
                    raise
                self.connection.text_factory = _decode  # slower, but decodes lone surrogates
                return _fetched(self.connection.execute(query, stored), most)


def _fetched(cursor: sqlite3.Cursor, most: int | None) -> list[Any]:
    return cursor.fetchall() if most is None else cursor.fetchmany(most)


class Series(Mapping[str, SeriesEntry]):
    """The stored series by name, in the order in which they were first stored.

    Entries are read one by one when they are needed; after a tenth of them, all at once.
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
    """The contents of an index: a copy in memory, or the file itself within a transaction."""

    def __init__(self, connection: sqlite3.Connection, unchecked: Path | None = None):
        self._connection, self._database = connection, _Database(connection, unchecked)
        self.series: Mapping[str, SeriesEntry] = Series(self._database)

    @staticmethod
    def new(source: str) -> "Index":
        """Return the index of a store without series, in memory."""
        database = _in_memory()
        for name, columns in _TABLES.items():
            database.execute(f"CREATE TABLE {name} ({', '.join(columns)})")
        database.execute(f"PRAGMA user_version = {SCHEMA}")
        index = Index._of_memory(database)
        index._insert("store", "source", [(source,)])
        return index

    @staticmethod
    def read(path: Path) -> "Index":
        """Read a store's index.

        Raises FileNotFoundError when there is none, StoreError when it is damaged, NewerStore when
        it is of a newer version. A forged file, with a checksum but with rows that this program
        would not write, may raise StoreError later; see :meth:`check`.
        """
        for remaining in reversed(range(_TRIES)):  # another process may be rolling back
            try:
                _check_header(path)
                with _open_to_read(path) as (database, file):
                    return Index._of_memory(_copy_in_memory(database, file, path), path)
            except (FileNotFoundError, NewerStore):
                raise
            except (OSError, ValueError, sqlite3.Error) as error:
                if not remaining:
                    raise damaged(path, str(error)) from error
        raise AssertionError

    @staticmethod
    def _of_memory(connection: sqlite3.Connection, unchecked: Path | None = None) -> "Index":
        index = Index(connection, unchecked)
        weakref.finalize(index._database, connection.close)
        return index

    @staticmethod
    @contextlib.contextmanager
    def changing(path: Path) -> Iterator["Index"]:
        """Yield the index in a file, to be changed in one transaction.

        Raises StoreError when it is damaged, WriteError when it cannot be written.
        """
        with atomic.as_write_error(path), _as_os_error(path):
            _check_header(path)
            with contextlib.closing(_connect(path, "rw")) as database:
                database.execute("PRAGMA synchronous = EXTRA")
                database.execute("BEGIN IMMEDIATE")
                if _CAN_SERIALIZE:
                    _check_seal(database.serialize())  # a new checksum would hide damage
                _check_tables(database, path)
                _check_rows(database)
                yield Index(database)
                _seal(database)
                database.execute("COMMIT")
            atomic.sync(path.parent)  # not done by all builds of SQLite

    def write(self, path: Path) -> None:
        """Write the whole index to a file, or replace it. Raises WriteError."""

        def write(temporary: Path) -> None:
            with _as_os_error(path), contextlib.closing(_connect(temporary, "rwc")) as database:
                database.execute("PRAGMA journal_mode = MEMORY")
                self._connection.backup(database)
                database.execute("BEGIN IMMEDIATE")
                _seal(database)
                database.execute("COMMIT")

        with atomic.as_write_error(path):
            _journal(path).unlink(missing_ok=True)  # SQLite would apply it to the new file
        atomic.write_file(path, write)

    def check(self) -> None:
        """Check all rows; by default, queries that need many of them do. Raises StoreError."""
        self._database.check()

    @property
    def source(self) -> str:
        """The name of the source."""
        return self._database.first("SELECT source FROM store")[0]

    @property
    def origin(self) -> Origin | None:
        """The source when it was last read, where it has a fingerprint."""
        (fingerprint,) = self._database.first("SELECT fingerprint FROM store")
        if fingerprint is None:
            return None
        tickers = self._database.column("SELECT name FROM tickers ORDER BY position")
        failed = self._database.rows("SELECT name, reason FROM failed ORDER BY position")
        return Origin(fingerprint, tickers, dict(failed))

    @property
    def quality(self) -> Quality | None:
        """The result of the last review; None where there was none."""
        fields = self._database.first("SELECT flags_file, flags_sha256, prices_digest FROM store")
        return None if fields[0] is None else Quality(*fields)

    @property
    def counts(self) -> dict[str, dict[str, int]]:
        """By series, the number of rows with each flag, and of missing sessions as "gaps"."""
        counts: dict[str, dict[str, int]] = {}
        for name, kind, count in self._database.rows("SELECT series, kind, count FROM counts"):
            counts.setdefault(name, {})[kind] = count
        return counts

    @property
    def quarantine(self) -> list[Quarantined]:
        """Records of damaged files that were set aside, the latest last."""
        rows = self._database.rows(f"SELECT {_QUARANTINED} FROM quarantine ORDER BY position")
        return list(map(Quarantined._make, rows))

    @property
    def rows(self) -> int:
        """Number of rows of all series."""
        return self._database.number("SELECT sum(rows) FROM series")

    @property
    def first(self) -> str:
        """The earliest first time of all series; empty when there are none."""
        times = self._database.column("SELECT DISTINCT first FROM series")
        return min(times, key=_in_time, default="")

    @property
    def last(self) -> str:
        """The latest last time of all series; empty when there are none."""
        times = self._database.column("SELECT DISTINCT last FROM series")
        return max(times, key=_in_time, default="")

    @property
    def suspects(self) -> int:
        """Number of series that the source has contradicted."""
        return self._database.number("SELECT count(*) FROM series WHERE state != 'ok'")

    @property
    def gaps(self) -> int:
        """Number of missing sessions of all series in the last review."""
        return self._database.number("SELECT sum(count) FROM counts WHERE kind = ?", _GAPS)

    @property
    def flagged(self) -> int:
        """Number of flags of all series in the last review."""
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
        return dict(self._database.rows(query, name, _GAPS))

    def by_urgency(self) -> list[str]:
        """Return all series: suspects first, then those with the most flags and gaps."""
        return self._database.column("""
            SELECT name FROM series
            LEFT JOIN (SELECT series, sum(count) AS total FROM counts GROUP BY series)
            ON series = name ORDER BY state = 'ok', ifnull(total, 0) DESC, position""")

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
        """Add entries, or replace those of the same names; return the files of replaced ones."""
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
        """Set what the source held when it was read; None: it must be read again."""
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
    """Return whether a file begins like an index; others may write files of this name too."""
    try:
        with path.open("rb") as file:
            begin = file.read(4096)
    except OSError:
        return False
    return begin.startswith(_MAGIC) and all(
        f"CREATE TABLE {name} (".encode() in begin for name in ("store", "series")
    )


def damaged(path: Path, why: str) -> StoreError:
    """Return the error for an index that cannot be read."""
    return StoreError(
        f"{path}: the index cannot be read ({why}). `forecaster ingest` sets it aside and lists "
        "the stored series anew"
    )


def newer(path: Path, schema: int) -> NewerStore:
    """Return the error for a store of a version that this program does not know."""
    return NewerStore(
        f"{path}: written in version {schema} of the store; this program reads versions up to "
        f"{SCHEMA}. Update forecaster, or choose another --home"
    )


def _check_header(path: Path) -> None:
    """Raise ValueError unless a file's size and header are those of an index."""
    with path.open("rb") as file:
        header = file.read(_HEADER_BYTES)
        size = file.seek(0, os.SEEK_END)
    if not header.startswith(_MAGIC) or len(header) < _HEADER_BYTES:
        raise ValueError("it is empty" if not size else "not a file of SQLite")
    if header[18:20] != _ROLLBACK_JOURNAL:
        raise ValueError("its header is not what was written")
    if size > _MOST_BYTES:
        raise ValueError(f"it has {size:,} bytes, more than {_MOST_BYTES:,}")


def _journal(path: Path) -> Path:
    """Return the file in which SQLite keeps pages that a transaction has replaced."""
    return path.with_name(f"{path.name}-journal")


@contextlib.contextmanager
def _open_to_read(path: Path) -> Iterator[tuple[sqlite3.Connection, Path]]:
    """Yield a connection with a read transaction, and the file that it reads.

    Where the file cannot be locked, as on some network disks, a copy is read. So is one that a
    killed process left half-written, because rolling back writes. The checksum tells whether the
    copy is whole.
    """
    file = path
    with contextlib.ExitStack() as stack:
        database = stack.enter_context(contextlib.closing(_connect(path, "ro")))
        try:
            _begin_to_read(database)
        except sqlite3.OperationalError:
            file = Path(stack.enter_context(tempfile.TemporaryDirectory())) / path.name
            shutil.copyfile(path, file)
            with contextlib.suppress(FileNotFoundError):  # there is none, or not any more
                shutil.copyfile(_journal(path), _journal(file))
            private = _connect(file, "rw", "&nolock=1")
            database = stack.enter_context(contextlib.closing(private))
            _begin_to_read(database)
        yield database, file


def _begin_to_read(database: sqlite3.Connection) -> None:
    database.execute("BEGIN")
    database.execute("SELECT count(*) FROM sqlite_master").fetchall()


def _connect(path: Path, mode: str, more: str = "") -> sqlite3.Connection:
    uri = f"{path.absolute().as_uri()}?mode={mode}{more}"
    return _hardened(sqlite3.connect(uri, uri=True, timeout=_WAIT[mode], isolation_level=None))


def _in_memory() -> sqlite3.Connection:
    """Return an empty database in memory, which all threads may use."""
    return _hardened(sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False))


def _hardened(database: sqlite3.Connection) -> sqlite3.Connection:
    """Return a connection in which a forged file cannot run anything."""
    database.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    database.execute("PRAGMA trusted_schema = OFF")
    database.execute("PRAGMA cell_size_check = ON")
    return database


def _copy_in_memory(database: sqlite3.Connection, file: Path, path: Path) -> sqlite3.Connection:
    """Return a copy of the index in a file that is open; ``path`` is its name in errors."""
    copy = _in_memory()
    try:
        if _CAN_SERIALIZE:
            raw = file.read_bytes()  # while it is locked to read; ten times as fast as serialize
            _check_seal(raw)
            copy.deserialize(raw)
        else:
            database.backup(copy)
        _check_tables(copy, path)
    except BaseException:
        copy.close()
        raise
    return copy


def _check_tables(database: sqlite3.Connection, path: Path) -> None:
    """Raise ValueError or sqlite3.Error unless the tables are those of this version.

    Raises NewerStore when it is of a newer version; ``path`` is its name in errors.
    """
    (version,) = database.execute("PRAGMA user_version").fetchone()
    if version > SCHEMA:
        raise newer(path, version)
    if version != SCHEMA or _tables_of(database) != _tables_of_new():
        raise ValueError("it has other tables")
    if database.execute("SELECT 1 FROM store").fetchone() is None:
        raise ValueError("it names no source")


def _check_rows(database: sqlite3.Connection) -> None:
    """Raise ValueError unless the file is well-formed and each value of its column's type."""
    (problem,) = database.execute("PRAGMA quick_check(1)").fetchone()
    if problem != "ok":
        raise ValueError(problem)
    if database.execute("SELECT count(*) FROM store").fetchone() != (1,):
        raise ValueError("it names several sources")


def _tables_of(database: sqlite3.Connection) -> list[tuple[str, ...]]:
    query = "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY name"
    return database.execute(query).fetchall()


@functools.cache
def _tables_of_new() -> list[tuple[str, ...]]:
    index = Index.new("")  # which must live until the query is done
    return _tables_of(index._connection)


def _seal(database: sqlite3.Connection) -> None:
    """Put a checksum of the index, including uncommitted changes, into its header."""
    seal = _UNSEALED
    if _CAN_SERIALIZE:
        major, minor, patch = sqlite3.sqlite_version_info[:3]
        number = major * 1_000_000 + minor * 1_000 + patch
        seal = _checksum(database.serialize(), written_by=number.to_bytes(4, "big"))
    database.execute(f"PRAGMA application_id = {int.from_bytes(seal, 'big', signed=True)}")


def _check_seal(raw: bytes) -> None:
    """Raise ValueError unless a SQLite file has the size and checksum that its header says."""
    size = int.from_bytes(raw[16:18], "big") * int.from_bytes(raw[28:32], "big")
    sealed = raw[68:72] in (_UNSEALED, _checksum(raw, written_by=raw[96:100]))
    if not sealed or raw[24:28] != raw[92:96] or len(raw) != size:
        raise ValueError("its content is not what was written")


def _checksum(raw: bytes, *, written_by: bytes) -> bytes:
    """Return the CRC-32 of a SQLite file as it will be after a commit.

    The checksum itself, in bytes 68 to 71, counts as zeros, and so does the counter of commits, in
    bytes 24 to 27 and again in 92 to 95.

    ``written_by``: the version of SQLite that commits, in bytes 96 to 99
    """
    header = bytearray(raw[:_HEADER_BYTES])
    header[24:28] = header[68:72] = header[92:96] = bytes(4)
    header[96:100] = written_by
    crc = zlib.crc32(memoryview(raw)[_HEADER_BYTES:], zlib.crc32(header))
    return crc.to_bytes(4, "big")


@contextlib.contextmanager
def _as_os_error(path: Path) -> Iterator[None]:
    """Raise SQLite's errors of the block: those of the disk as OSError, damage as StoreError."""
    try:
        yield
    except ValueError as error:
        raise damaged(path, str(error)) from error
    except sqlite3.Error as error:
        if _kind(error) in _DAMAGE:
            raise damaged(path, str(error)) from error
        code = _CODES.get(_kind(error))
        if code is None:
            raise
        raise OSError(code, os.strerror(code)) from error


_DAMAGE = sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR
_CODES = {
    sqlite3.SQLITE_FULL: errno.ENOSPC, sqlite3.SQLITE_IOERR: errno.EIO,
    sqlite3.SQLITE_READONLY: errno.EACCES, sqlite3.SQLITE_CANTOPEN: errno.EACCES,
    sqlite3.SQLITE_PERM: errno.EACCES, sqlite3.SQLITE_BUSY: errno.EBUSY,
    sqlite3.SQLITE_PROTOCOL: errno.EBUSY,
}  # fmt: skip


def _kind(error: sqlite3.Error) -> int:
    """Return SQLite's primary code of an error; 0 for an error of Python's module."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _as_stored(value: object) -> object:
    """Return a value to pass to SQLite; text as bytes, in case it has lone surrogates."""
    if isinstance(value, str) and not value.isascii():
        return value.encode("utf-8", "surrogatepass")
    return value


def _decode(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogatepass")


def _in_time(time: str) -> tuple[int, str]:
    """Return a sort key of a time: whole numbers sort by value, dates as text."""
    return (int(time), "") if time.lstrip("-").isdecimal() else (0, time)
