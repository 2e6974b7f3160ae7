"""Read and write the file of an index: SQLite with a checksum, whole or not at all.

``PRAGMA application_id`` is a checksum of all other bytes, because SQLite itself does not notice a
flipped byte. A reader copies the whole file into memory, so that later changes do not affect it. A
writer replaces the file. It must hold the lock of the store.

Knows no tables: ``check(connection)`` raises ValueError if they are not as expected.
"""

import contextlib
import os
import shutil
import sqlite3
import tempfile
import zlib
from collections.abc import Callable, Iterator
from itertools import zip_longest
from pathlib import Path

from forecaster.errors import StoreError
from forecaster.files import atomic

MAGIC = b"SQLite format 3\0"
_HEADER_BYTES = 100
# Journal mode; reading in the other mode, a write-ahead log, creates files.
_ROLLBACK_JOURNAL = b"\1\1"
_MOST_BYTES = 2**30  # maximum size of an index, which is enough for about four million series
_UNSEALED = bytes(4)  # as some builds left an index of version 3


def read(path: Path, check: Callable[[sqlite3.Connection], None]) -> sqlite3.Connection:
    """Return a copy of a file in memory, which all threads may use.

    Raises FileNotFoundError if there is no file, StoreError if it is damaged.
    """
    try:
        raw = _content(path)
        copy = in_memory()
        try:
            _load(copy, raw)
            check(copy)
        except BaseException:
            copy.close()
            raise
        return copy
    except FileNotFoundError:
        raise
    except (OSError, ValueError, sqlite3.Error) as error:
        raise damaged(path, str(error)) from error


def write(path: Path, content: sqlite3.Connection, *, read_back: bool = False) -> None:
    """Write a whole database to a file, or replace it. Raises WriteError; then it is as before.

    ``read_back``: read the file first, and do not replace the one before if they differ
    """

    def write_to(temporary: Path) -> None:
        with as_os_error(path), contextlib.closing(sqlite3.connect(temporary)) as connection:
            connection.execute("PRAGMA journal_mode = MEMORY")
            content.backup(connection)
        with temporary.open("r+b") as file:
            seal = _checksum(file.read())
            file.seek(68)
            file.write(seal)
        if read_back:
            with contextlib.closing(read(temporary, lambda _: None)) as written:
                written.text_factory = content.text_factory
                if any(a != b for a, b in zip_longest(content.iterdump(), written.iterdump())):
                    raise OSError("it is not read as it was written")

    with atomic.as_write_error(path):
        _journal(path).unlink(missing_ok=True)  # of version 3; SQLite would apply it to this one
    atomic.write_file(path, write_to)


def in_memory() -> sqlite3.Connection:
    """Return an empty database in memory, which all threads may use."""
    return _hardened(sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False))


def check_rows(connection: sqlite3.Connection) -> None:
    """Raise ValueError unless a file is well-formed and its values satisfy the tables' checks."""
    (problem,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if problem != "ok":
        raise ValueError(problem)


def damaged(path: Path, why: str) -> StoreError:
    """Return the error for an index that cannot be read."""
    return StoreError(
        f"{path}: the index cannot be read ({why}). `forecaster ingest` sets it aside and lists "
        "the stored series anew"
    )


@contextlib.contextmanager
def as_os_error(path: Path) -> Iterator[None]:
    """Raise errors of the block as OSError if the disk causes them, as StoreError for damage."""
    try:
        yield
    except sqlite3.OperationalError as error:
        raise OSError(str(error)) from error
    except (ValueError, sqlite3.DatabaseError) as error:
        raise damaged(path, str(error)) from error


def _content(path: Path) -> bytes:
    """Return the bytes of a file. Raises ValueError unless they are those that were written."""
    with path.open("rb") as file:
        header = file.read(_HEADER_BYTES)
        size = file.seek(0, os.SEEK_END)
    if not header.startswith(MAGIC) or len(header) < _HEADER_BYTES:
        raise ValueError("it is empty" if not size else "not a file of SQLite")
    if header[18:20] != _ROLLBACK_JOURNAL:
        raise ValueError("its header is not what was written")
    if size > _MOST_BYTES:
        raise ValueError(f"it has {size:,} bytes, more than {_MOST_BYTES:,}")
    raw = _rolled_back(path) if _journal(path).exists() else path.read_bytes()
    size = int.from_bytes(raw[16:18], "big") * int.from_bytes(raw[28:32], "big")
    sealed = raw[68:72] in (_UNSEALED, _checksum(raw))
    if not sealed or raw[24:28] != raw[92:96] or len(raw) != size:
        raise ValueError("its content is not what was written")
    return raw


def _journal(path: Path) -> Path:
    """Return the file in which SQLite kept pages that a transaction replaced, in version 3."""
    return path.with_name(f"{path.name}-journal")


def _rolled_back(path: Path) -> bytes:
    """Return the bytes of a file without the transaction of a process that was killed."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / path.name
        shutil.copyfile(path, file)
        with contextlib.suppress(FileNotFoundError):  # it was removed meanwhile
            shutil.copyfile(_journal(path), _journal(file))
        with contextlib.closing(_hardened(sqlite3.connect(file))) as connection:
            connection.execute("SELECT count(*) FROM sqlite_master").fetchall()
        return file.read_bytes()


def _load(connection: sqlite3.Connection, raw: bytes) -> None:
    """Load the bytes of a database into memory."""
    if hasattr(connection, "deserialize"):
        connection.deserialize(raw)
        return
    with tempfile.TemporaryDirectory() as folder:  # some builds before SQLite 3.36
        file = Path(folder) / "index"
        file.write_bytes(raw)
        with contextlib.closing(_hardened(sqlite3.connect(file))) as copy:
            copy.backup(connection)


def _hardened(connection: sqlite3.Connection) -> sqlite3.Connection:
    """Return a connection in which a forged file cannot run anything."""
    connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA cell_size_check = ON")
    return connection


def _checksum(raw: bytes) -> bytes:
    """Return the CRC-32 of a SQLite file.

    The checksum itself, in bytes 68 to 71, counts as zeros, and so does the counter of commits, in
    bytes 24 to 27 and again in 92 to 95.
    """
    header = bytearray(raw[:_HEADER_BYTES])
    header[24:28] = header[68:72] = header[92:96] = bytes(4)
    crc = zlib.crc32(memoryview(raw)[_HEADER_BYTES:], zlib.crc32(header))
    return crc.to_bytes(4, "big")
