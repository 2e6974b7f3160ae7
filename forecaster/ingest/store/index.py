"""The index of a price store: its series, their files, and what is known of them, in SQLite.

``PRAGMA user_version`` is the version of the tables. ``PRAGMA application_id`` is a checksum of all
other bytes, because SQLite itself does not notice a flipped one. Versions 1 and 2 of the store
were JSON files, see :mod:`forecaster.ingest.store.manifest`.

A reader copies the whole index into memory, where later changes of the file do not reach it. A
writer changes the file in one transaction.
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
from typing import Any, NamedTuple, TypeVar

from forecaster.errors import StoreError
from forecaster.files import atomic

SCHEMA = 3
_MAGIC = b"SQLite format 3\0"
_HEADER_BYTES = 100
_ROLLBACK_JOURNAL = b"\1\1"  # not a write-ahead log, which a reader would have to create files for
_MOST_BYTES = 2**30  # of an index, about four million series
_WAIT = 60.0  # seconds, for another process to end its transaction
_TRIES = 3
_GAPS = "gaps"  # counted beside the flags of a series
_CAN_SERIALIZE = hasattr(sqlite3.Connection, "serialize")  # SQLite before 3.36 may lack it
_UNSEALED = bytes(4)
_Record = TypeVar("_Record", bound=tuple[Any, ...])


class NewerStore(StoreError):
    """A store that a later version of the program has written."""


class SeriesEntry(NamedTuple):
    """One stored series.

    - ``rows``, ``first``, ``last``: number of rows, time of the first and of the last
    - ``sha256``, ``file``: hash and name of the file
    - ``state``: "ok", or "suspect" when the source has contradicted what is stored
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
        """Whether the source has contradicted what is stored."""
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
"""Columns by table. Types are checked too: a file may hold values of others than it declares."""
_ENTRY = ", ".join(SeriesEntry._fields)
_QUARANTINED = ", ".join(Quarantined._fields)


class Series(Mapping[str, SeriesEntry]):
    """The stored series by name, in the order in which they were first stored.

    Entries are read when they are asked for: one by one at first, and all of them at once as soon
    as a tenth was asked for.
    """

    def __init__(self, index: "Index"):
        self._index = index
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
        return self._index.column("SELECT name FROM series ORDER BY position")

    @functools.cached_property
    def _most_one_by_one(self) -> int:
        return self._index.number("SELECT count(*) FROM series") // 10

    def _find(self, name: str) -> SeriesEntry | None:
        if not self._complete and name not in self._found:
            if len(self._found) >= self._most_one_by_one:
                rows = self._index.rows_of(f"SELECT name, {_ENTRY} FROM series")
                self._found = {name: SeriesEntry._make(fields) for name, *fields in rows}
                self._complete = True
            else:
                query = f"SELECT {_ENTRY} FROM series WHERE name = CAST(? AS TEXT)"
                self._found[name] = self._index.record(SeriesEntry, query, name)
        return self._found.get(name)


class Index:
    """What a store holds: a copy in memory, or the file itself within a transaction."""

    def __init__(self, database: sqlite3.Connection):
        self._database = database
        self._one_at_a_time = threading.Lock()
        self.series: Mapping[str, SeriesEntry] = Series(self)

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
        it is of a newer version.
        """
        for remaining in reversed(range(_TRIES)):  # another process may be undoing a transaction
            try:
                _check_header(path)
                with _open_to_read(path) as (database, file):
                    return Index._of_memory(_copy_in_memory(database, file, path))
            except (FileNotFoundError, NewerStore):
                raise
            except (OSError, ValueError, sqlite3.Error) as error:
                if not remaining:
                    raise damaged(path, str(error)) from error
        raise AssertionError

    @staticmethod
    def _of_memory(database: sqlite3.Connection) -> "Index":
        index = Index(database)
        weakref.finalize(index, database.close)
        return index

    @staticmethod
    @contextlib.contextmanager
    def changing(path: Path) -> Iterator["Index"]:
        """Yield the index in a file to be changed, in one transaction: all of it counts or nothing.

        Raises StoreError when it is damaged, WriteError when it cannot be written.
        """
        with atomic.as_write_error(path), _as_os_error(path):
            _check_header(path)
            with contextlib.closing(_connect(path, "rw")) as database:
                database.execute("PRAGMA synchronous = EXTRA")
                database.execute("BEGIN IMMEDIATE")
                if _CAN_SERIALIZE:
                    _check_seal(database.serialize(), path)  # damage must not be sealed
                _check(database, path)
                yield Index(database)
                _seal(database)
                database.execute("COMMIT")
            atomic.sync(path.parent)  # some builds of SQLite leave this out

    def write(self, path: Path) -> None:
        """Write the whole index to a file, in place of another. Raises WriteError."""

        def write(temporary: Path) -> None:
            with _as_os_error(path), contextlib.closing(_connect(temporary, "rwc")) as database:
                database.execute("PRAGMA journal_mode = MEMORY")
                self._database.backup(database)
                database.execute("BEGIN IMMEDIATE")
                _seal(database)
                database.execute("COMMIT")

        with atomic.as_write_error(path):
            _journal(path).unlink(missing_ok=True)  # of the file that is replaced
        atomic.write_file(path, write)

    def rows_of(self, query: str, *values: object) -> list[Any]:
        """Return all rows of a query."""
        with self._one_at_a_time:
            try:
                return self._database.execute(query, list(map(_as_stored, values))).fetchall()
            except (sqlite3.OperationalError, UnicodeDecodeError):
                if self._database.text_factory is not str:
                    raise
                self._database.text_factory = _decode  # slower, but for bytes that are not UTF-8
                return self._database.execute(query, list(map(_as_stored, values))).fetchall()

    def column(self, query: str, *values: object) -> list[Any]:
        """Return the first column of a query."""
        return [row[0] for row in self.rows_of(query, *values)]

    def number(self, query: str, *values: object) -> int:
        """Return the one number that a query asks for; 0 where it is NULL."""
        return self.column(query, *values)[0] or 0

    def record(self, kind: type[_Record], query: str, *values: object) -> _Record | None:
        """Return the first row of a query as a named tuple; None where there is no row."""
        rows = self.rows_of(query, *values)
        return kind(*rows[0]) if rows else None

    @property
    def source(self) -> str:
        """The name of the source."""
        return self.column("SELECT source FROM store")[0]

    @property
    def origin(self) -> Origin | None:
        """The source when it was last read, where it has a fingerprint."""
        (fingerprint,) = self.column("SELECT fingerprint FROM store")
        if fingerprint is None:
            return None
        tickers = self.column("SELECT name FROM tickers ORDER BY position")
        failed = self.rows_of("SELECT name, reason FROM failed ORDER BY position")
        return Origin(fingerprint, tickers, dict(failed))

    @property
    def quality(self) -> Quality | None:
        """The result of the last review; None where there was none."""
        return self.record(
            Quality,
            "SELECT flags_file, flags_sha256, prices_digest FROM store WHERE flags_file NOT NULL",
        )

    @property
    def counts(self) -> dict[str, dict[str, int]]:
        """By series, the number of rows with each flag, and of missing sessions under "gaps"."""
        counts: dict[str, dict[str, int]] = {}
        for name, kind, count in self.rows_of("SELECT series, kind, count FROM counts"):
            counts.setdefault(name, {})[kind] = count
        return counts

    @property
    def quarantine(self) -> list[Quarantined]:
        """Damaged files that were set aside, the latest last."""
        rows = self.rows_of(f"SELECT {_QUARANTINED} FROM quarantine ORDER BY position")
        return list(map(Quarantined._make, rows))

    @property
    def rows(self) -> int:
        """Number of rows of all series."""
        return self.number("SELECT sum(rows) FROM series")

    @property
    def first(self) -> str:
        """The earliest first time of all series; empty when there are none."""
        times = self.column("SELECT DISTINCT first FROM series")
        return min(times, key=_in_time, default="")

    @property
    def last(self) -> str:
        """The latest last time of all series; empty when there are none."""
        times = self.column("SELECT DISTINCT last FROM series")
        return max(times, key=_in_time, default="")

    @property
    def suspects(self) -> int:
        """Number of series that the source has contradicted."""
        return self.number("SELECT count(*) FROM series WHERE state != 'ok'")

    @property
    def gaps(self) -> int:
        """Missing sessions of all series, as last reviewed."""
        return self.number("SELECT sum(count) FROM counts WHERE kind = ?", _GAPS)

    @property
    def flagged(self) -> int:
        """Flags of all series, as last reviewed."""
        return self.number("SELECT sum(count) FROM counts WHERE kind != ?", _GAPS)

    @property
    def files(self) -> set[str]:
        """The names of all files of series."""
        return set(self.column("SELECT file FROM series"))

    def digest(self, names: Iterable[str] | None = None) -> str:
        """Return a hash of the content of some series, by default all."""
        if names is None:
            pairs = self.rows_of("SELECT name, sha256 FROM series ORDER BY name")
        else:
            pairs = [(name, self.series[name].sha256) for name in sorted(names)]
        return hashlib.sha256("\n".join(map(" ".join, pairs)).encode()).hexdigest()

    def gaps_of(self, name: str) -> int:
        """Return the number of missing sessions of a series, as last reviewed."""
        query = "SELECT sum(count) FROM counts WHERE series = CAST(? AS TEXT) AND kind = ?"
        return self.number(query, name, _GAPS)

    def flags_of(self, name: str) -> dict[str, int]:
        """Return the number of rows of a series with each flag, as last reviewed."""
        query = "SELECT kind, count FROM counts WHERE series = CAST(? AS TEXT) AND kind != ?"
        return dict(self.rows_of(query, name, _GAPS))

    def by_urgency(self) -> list[str]:
        """Return all series: suspects first, then those with the most flags and gaps."""
        return self.column("""
            SELECT name FROM series
            LEFT JOIN (SELECT series, sum(count) AS total FROM counts GROUP BY series)
            ON series = name ORDER BY state = 'ok', ifnull(total, 0) DESC, position""")

    def lost(self, name: str) -> Quarantined | None:
        """Return what was known of a series that is not stored because its file was set aside."""
        if name in self.series:
            return None
        query = f"SELECT {_QUARANTINED} FROM quarantine WHERE series = CAST(? AS TEXT)"
        return self.record(Quarantined, f"{query} ORDER BY position DESC LIMIT 1", name)

    def known(self, name: str) -> SeriesEntry | Quarantined | None:
        """Return a series' entry, or what is left of it when its file was set aside."""
        return self.series.get(name) or self.lost(name)

    def put(self, entries: Mapping[str, SeriesEntry]) -> set[str]:
        """Add entries, or replace those of the same names; returns the files no longer named."""
        old = {name: self.series.get(name) for name in entries}
        self._insert("series", f"name, {_ENTRY}", [(n, *each) for n, each in entries.items()])
        self.series = Series(self)
        if any(was is None or was.sha256 != entries[name].sha256 for name, was in old.items()):
            self._database.execute("UPDATE store SET prices_digest = NULL")
        files = {name: was.file for name, was in old.items() if was is not None}
        return {file for name, file in files.items() if file != entries[name].file}

    def remove(self, names: Iterable[str]) -> None:
        """Remove the entries of series."""
        for name in names:
            query = "DELETE FROM series WHERE name = CAST(? AS TEXT)"
            self._database.execute(query, [_as_stored(name)])
        self.series = Series(self)
        self._database.execute("UPDATE store SET prices_digest = NULL")

    def set_origin(self, origin: Origin | None) -> None:
        """Note what the source held when it was read; None: it must be read again."""
        self._database.execute("DELETE FROM tickers")
        self._database.execute("DELETE FROM failed")
        self._update_store("fingerprint", (None if origin is None else origin.fingerprint,))
        if origin is not None:
            self._insert("tickers", "name", [(name,) for name in origin.tickers])
            self._insert("failed", "name, reason", list(origin.failed.items()))

    def set_quality(
        self, quality: Quality | None, counts: Mapping[str, Mapping[str, int]] | None = None
    ) -> None:
        """Note the result of a review; None: the series cannot be reviewed.

        ``counts``: as :attr:`counts`; zeros may be left out
        """
        fields = (None, None, None) if quality is None else quality
        if quality is not None and quality.prices_digest != self.digest():
            fields = quality._replace(prices_digest=None)
        self._update_store("flags_file, flags_sha256, prices_digest", fields)
        self._database.execute("DELETE FROM counts")
        rows = [(n, kind, k) for n, each in (counts or {}).items() for kind, k in each.items()]
        self._insert("counts", "series, kind, count", rows)

    def set_aside(self, records: Iterable[Quarantined]) -> None:
        """Note damaged files that were set aside."""
        self._insert("quarantine", _QUARANTINED, list(records))

    def _insert(self, table: str, columns: str, rows: Sequence[Sequence[object]]) -> None:
        names = columns.split(", ")
        marks = ("?" if name in ("rows", "count") else "CAST(? AS TEXT)" for name in names)
        query = f"INSERT INTO {table} ({columns}) VALUES ({', '.join(marks)})"
        if table == "series":
            changed = ", ".join(f"{name} = excluded.{name}" for name in names)
            query += f" ON CONFLICT (name) DO UPDATE SET {changed}"
        self._database.executemany(query, (list(map(_as_stored, row)) for row in rows))

    def _update_store(self, columns: str, values: Sequence[object]) -> None:
        changed = ", ".join(f"{name} = CAST(? AS TEXT)" for name in columns.split(", "))
        self._database.execute(f"UPDATE store SET {changed}", list(map(_as_stored, values)))


def count_by_series(
    flags: Mapping[str, Mapping[str, int]], gaps: Mapping[str, int]
) -> dict[str, dict[str, int]]:
    """Return the ``counts`` of an index: of flags and gaps by series, without zeros."""
    counts = {name: {_GAPS: gaps[name], **flags.get(name, {})} for name in gaps}
    return {name: {k: n for k, n in each.items() if n} for name, each in counts.items()}


def is_index(path: Path) -> bool:
    """Return whether a file begins as indexes do; other programs may write files of this name."""
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
    """Raise ValueError unless a file begins as an index that SQLite reads without other files."""
    with path.open("rb") as file:
        header = file.read(_HEADER_BYTES)
        size = file.seek(0, os.SEEK_END)
    if not header.startswith(_MAGIC) or len(header) < _HEADER_BYTES:
        raise ValueError("it is empty" if not size else "not a file of SQLite")
    if header[18:20] != _ROLLBACK_JOURNAL:
        raise ValueError("its header is not as written")
    if size > _MOST_BYTES:
        raise ValueError(f"it has {size:,} bytes, more than {_MOST_BYTES:,}")


def _journal(path: Path) -> Path:
    """Return where SQLite keeps what a transaction in a file has replaced."""
    return path.with_name(f"{path.name}-journal")


@contextlib.contextmanager
def _open_to_read(path: Path) -> Iterator[tuple[sqlite3.Connection, Path]]:
    """Yield a connection in which a transaction that reads has begun, and the file that it reads.

    What a killed process has left half-written can only be undone by writing: in a copy.
    """
    file = path
    with contextlib.ExitStack() as stack:
        database = stack.enter_context(contextlib.closing(_connect(path, "ro")))
        try:
            _begin_to_read(database)
        except sqlite3.OperationalError as error:
            if _kind(error) not in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN):
                raise
            file = Path(stack.enter_context(tempfile.TemporaryDirectory())) / path.name
            shutil.copyfile(path, file)
            with contextlib.suppress(FileNotFoundError):  # undone meanwhile
                shutil.copyfile(_journal(path), _journal(file))
            database = stack.enter_context(contextlib.closing(_connect(file, "rw")))
            _begin_to_read(database)
        yield database, file


def _begin_to_read(database: sqlite3.Connection) -> None:
    database.execute("BEGIN")
    database.execute("SELECT count(*) FROM sqlite_master").fetchall()


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    uri = f"{path.absolute().as_uri()}?mode={mode}"
    return _hardened(sqlite3.connect(uri, uri=True, timeout=_WAIT, isolation_level=None))


def _in_memory() -> sqlite3.Connection:
    """Return an empty database in memory, for all threads."""
    return _hardened(sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False))


def _hardened(database: sqlite3.Connection) -> sqlite3.Connection:
    """Return a connection in which a file made by a stranger runs nothing."""
    database.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    database.execute("PRAGMA trusted_schema = OFF")
    database.execute("PRAGMA cell_size_check = ON")
    return database


def _copy_in_memory(database: sqlite3.Connection, file: Path, path: Path) -> sqlite3.Connection:
    """Return a copy of the index in a file, checked as by :func:`_check`, which takes ``path``."""
    copy = _in_memory()
    try:
        if _CAN_SERIALIZE:
            raw = database.serialize()
            _check_seal(raw, file)
            copy.deserialize(raw)
        else:
            database.backup(copy)
        _check(copy, path)
    except BaseException:
        copy.close()
        raise
    return copy


def _check(database: sqlite3.Connection, path: Path) -> None:
    """Raise ValueError or sqlite3.Error unless tables and values are of the kind written here.

    Raises NewerStore, which names ``path``, when it is of a newer version.
    """
    (version,) = database.execute("PRAGMA user_version").fetchone()
    if version > SCHEMA:
        raise newer(path, version)
    if version != SCHEMA or _tables_of(database) != _tables_of_new():
        raise ValueError("it has other tables")
    (problem,) = database.execute("PRAGMA quick_check(1)").fetchone()
    if problem != "ok":
        raise ValueError(problem)
    if database.execute("SELECT count(*) FROM store").fetchone() != (1,):
        raise ValueError("it names no source")


def _tables_of(database: sqlite3.Connection) -> list[tuple[str, ...]]:
    query = "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY name"
    return database.execute(query).fetchall()


@functools.cache
def _tables_of_new() -> list[tuple[str, ...]]:
    return _tables_of(Index.new("")._database)


def _seal(database: sqlite3.Connection) -> None:
    """Put the checksum of all that is about to be committed into the header."""
    seal = _UNSEALED
    if _CAN_SERIALIZE:
        major, minor, patch = sqlite3.sqlite_version_info[:3]
        number = major * 1_000_000 + minor * 1_000 + patch
        seal = _checksum(database.serialize(), written_by=number.to_bytes(4, "big"))
    database.execute(f"PRAGMA application_id = {int.from_bytes(seal, 'big', signed=True)}")


def _check_seal(raw: bytes, file: Path) -> None:
    """Raise ValueError unless all bytes of an index, and the size of its file, are as written."""
    sealed = raw[68:72] in (_UNSEALED, _checksum(raw, written_by=raw[96:100]))
    if not sealed or raw[24:28] != raw[92:96] or file.stat().st_size != len(raw):
        raise ValueError("its content is not what was written")


def _checksum(raw: bytes, *, written_by: bytes) -> bytes:
    """Return the CRC-32 of a file of SQLite, whose header changes when it is committed.

    - the counter of changes, bytes 24 to 27, and its copy, bytes 92 to 95, are left out
    - so is the checksum itself, bytes 68 to 71
    - ``written_by``: the version of SQLite, bytes 96 to 99
    """
    header = bytearray(raw[:_HEADER_BYTES])
    header[24:28] = header[68:72] = header[92:96] = bytes(4)
    header[96:100] = written_by
    crc = zlib.crc32(memoryview(raw)[_HEADER_BYTES:], zlib.crc32(header))
    return crc.to_bytes(4, "big")


@contextlib.contextmanager
def _as_os_error(path: Path) -> Iterator[None]:
    """Turn errors of SQLite that a disk can cause into OSError, and damage into StoreError."""
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
    """Return SQLite's primary code of an error; 0 for errors of Python's module."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _as_stored(value: object) -> object:
    """Return a value as SQLite takes it: text that UTF-8 may lack as bytes."""
    if isinstance(value, str) and not value.isascii():
        return value.encode("utf-8", "surrogatepass")
    return value


def _decode(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogatepass")


def _in_time(time: str) -> tuple[int, str]:
    """Return a key that sorts whole numbers by value, and dates as they are written."""
    return (int(time), "") if time.lstrip("-").isdecimal() else (0, time)
