"""Read, change and write the file of an index: SQLite with a checksum, whole or not at all.

``PRAGMA application_id`` is a checksum of all other bytes, because SQLite itself does not notice a
flipped byte. A reader copies the whole file into memory, so that later changes do not affect it. A
writer changes the file in one transaction.

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
_WAIT = {"ro": 2.0, "rw": 60.0, "rwc": 60.0}  # seconds for a lock, by SQLite's mode of opening
_TRIES = 3
_CAN_SERIALIZE = hasattr(sqlite3.Connection, "serialize")  # some builds before SQLite 3.36 lack it
_UNSEALED = bytes(4)


def read(path: Path, check: Callable[[sqlite3.Connection], None]) -> sqlite3.Connection:
    """Return a copy of a file in memory, which all threads may use.

    Raises FileNotFoundError if there is no file, StoreError if it is damaged.
    """
    for remaining in reversed(range(_TRIES)):  # another process may be rolling back
        try:
            _check_header(path)
            with _open_to_read(path) as (connection, file):
                copy = _copy_in_memory(connection, file)
        except FileNotFoundError:
            raise
        except (OSError, ValueError, sqlite3.Error) as error:
            if not remaining:
                raise damaged(path, str(error)) from error
            continue
        try:
            check(copy)
            return copy
        except BaseException as error:
            copy.close()
            if isinstance(error, ValueError | sqlite3.Error):
                raise damaged(path, str(error)) from error
            raise
    raise AssertionError


@contextlib.contextmanager
def changing(
    path: Path, check: Callable[[sqlite3.Connection], None]
) -> Iterator[sqlite3.Connection]:
    """Yield a connection to change a file in one transaction, which the end of the block commits.

    Raises StoreError if the file is damaged, WriteError if it cannot be written.
    """
    with atomic.as_write_error(path), as_os_error(path):
        _check_header(path)
        with contextlib.closing(_connect(path, "rw")) as connection:
            connection.execute("PRAGMA synchronous = EXTRA")
            connection.execute("BEGIN IMMEDIATE")
            if _CAN_SERIALIZE:
                _check_seal(connection.serialize())  # a new checksum would hide damage
            check(connection)
            yield connection
            _seal(connection)
            connection.execute("COMMIT")
        atomic.sync(path.parent)  # some builds of SQLite do not sync the folder


def write(path: Path, content: sqlite3.Connection) -> None:
    """Write a whole database to a file, or replace it once it has been read back.

    Raises WriteError; then the file is as before.
    """

    def write_to(temporary: Path) -> None:
        with as_os_error(path), contextlib.closing(_connect(temporary, "rwc")) as connection:
            connection.execute("PRAGMA journal_mode = MEMORY")
            content.backup(connection)
            connection.execute("BEGIN IMMEDIATE")
            _seal(connection)
            connection.execute("COMMIT")
        with contextlib.closing(read(temporary, check_rows)) as written:
            written.text_factory = content.text_factory
            if any(a != b for a, b in zip_longest(content.iterdump(), written.iterdump())):
                raise OSError("it is not read as it was written")

    with atomic.as_write_error(path):
        _journal(path).unlink(missing_ok=True)  # SQLite would apply it to the new file
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


def _check_header(path: Path) -> None:
    """Raise ValueError unless a file's size and header are those of an index."""
    with path.open("rb") as file:
        header = file.read(_HEADER_BYTES)
        size = file.seek(0, os.SEEK_END)
    if not header.startswith(MAGIC) or len(header) < _HEADER_BYTES:
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

    The file is a copy if the original cannot be locked, as on some network disks, or if a killed
    process left a transaction, since a rollback would write. The checksum shows whether the copy is
    whole.
    """
    file = path
    with contextlib.ExitStack() as stack:
        connection = stack.enter_context(contextlib.closing(_connect(path, "ro")))
        try:
            _begin_to_read(connection)
        except sqlite3.OperationalError:
            file = Path(stack.enter_context(tempfile.TemporaryDirectory())) / path.name
            shutil.copyfile(path, file)
            # There is no journal, or it was removed meanwhile.
            with contextlib.suppress(FileNotFoundError):
                shutil.copyfile(_journal(path), _journal(file))
            private = _connect(file, "rw", "&nolock=1")
            connection = stack.enter_context(contextlib.closing(private))
            _begin_to_read(connection)
        yield connection, file


def _begin_to_read(connection: sqlite3.Connection) -> None:
    connection.execute("BEGIN")
    connection.execute("SELECT count(*) FROM sqlite_master").fetchall()


def _connect(path: Path, mode: str, more: str = "") -> sqlite3.Connection:
    uri = f"{path.absolute().as_uri()}?mode={mode}{more}"
    return _hardened(sqlite3.connect(uri, uri=True, timeout=_WAIT[mode], isolation_level=None))


def _hardened(connection: sqlite3.Connection) -> sqlite3.Connection:
    """Return a connection in which a forged file cannot run anything."""
    connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA cell_size_check = ON")
    return connection


def _copy_in_memory(connection: sqlite3.Connection, file: Path) -> sqlite3.Connection:
    """Return a copy in memory of a file, which a read transaction of the connection has locked."""
    copy = in_memory()
    if _CAN_SERIALIZE:
        raw = file.read_bytes()  # ten times as fast as serialize, but on POSIX it ends the lock
        _check_seal(raw)
        copy.deserialize(raw)
    else:
        connection.backup(copy)
    return copy


def _seal(connection: sqlite3.Connection) -> None:
    """Put a checksum of the index, including uncommitted changes, into its header."""
    seal = _UNSEALED
    if _CAN_SERIALIZE:
        major, minor, patch = sqlite3.sqlite_version_info[:3]
        number = major * 1_000_000 + minor * 1_000 + patch
        seal = _checksum(connection.serialize(), written_by=number.to_bytes(4, "big"))
    connection.execute(f"PRAGMA application_id = {int.from_bytes(seal, 'big', signed=True)}")


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
