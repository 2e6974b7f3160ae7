"""Write files and folders whole or not at all."""

import contextlib
import errno
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from forecaster.errors import WriteError

PREFIX = ".tmp-"
_SWEPT_AFTER = 7 * 86_400.0  # age in seconds at which a temporary file counts as left behind


def write_file(path: Path, write: Callable[[Path], object], *, last: bool = True) -> None:
    """Write a file by ``write(temporary_path)``, then rename it to ``path``.

    The temporary file is in the same folder; file and folder are synced to the disk.

    ``last``: whether this is the last of several files in a folder; only then is the folder synced

    Raises WriteError when the file cannot be written; then ``path`` is as before.
    """
    temporary = path.with_name(f"{PREFIX}{secrets.token_hex(6)}-{path.name[-40:]}")
    with as_write_error(path), _cleaned(temporary):
        path.parent.mkdir(parents=True, exist_ok=True)
        write(temporary)
        sync(temporary)
        temporary.replace(path)
        if last:
            sync(path.parent)


@contextlib.contextmanager
def write_folder(path: Path, *, replace: bool = False) -> Iterator[Path]:
    """Yield a temporary folder to fill, which becomes ``path`` if the block ends without an error.

    ``replace``: whether it may replace an existing ``path``

    Raises WriteError when the folder cannot be written; then ``path`` is as before.
    """
    temporary = path.with_name(f"{PREFIX}{secrets.token_hex(6)}-{path.name}")
    with as_write_error(path), _cleaned(temporary):
        temporary.mkdir(parents=True)
        yield temporary
        for file in temporary.rglob("*"):
            sync(file)
        sync(temporary)
        if not (replace and path.exists()):
            temporary.rename(path)
        elif not _exchange(temporary, path):
            _replace(temporary, path)
        sync(path.parent)


def _replace(temporary: Path, path: Path) -> None:
    """Replace a folder by another in two steps, on systems that cannot do it in one."""
    old = path.with_name(f"{PREFIX}{secrets.token_hex(6)}-old-{path.name}")
    path.rename(old)
    try:
        temporary.rename(path)
    except BaseException:
        old.rename(path)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _exchange(one: Path, other: Path) -> bool:
    """Exchange two folders in one step; return whether the system can.

    Both names exist at all times, so the process may be killed at any moment.
    """
    import ctypes

    names = os.fsencode(one), os.fsencode(other)
    library = ctypes.CDLL(None, use_errno=True) if os.name == "posix" else None
    if hasattr(library, "renameat2"):  # Linux
        here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
        return library.renameat2(here, names[0], here, names[1], exchange) == 0
    if hasattr(library, "renamex_np"):  # macOS
        return library.renamex_np(*names, 2) == 0  # RENAME_SWAP
    return False


def sweep(folder: Path) -> None:
    """Remove temporary files and folders that killed processes have left in a folder.

    What was changed in the last week stays: a process may still write to it.
    """
    for path in folder.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            if path.stat().st_mtime > time.time() - _SWEPT_AFTER:
                continue
            if not path.is_dir():
                path.unlink()
            else:
                shutil.rmtree(path, ignore_errors=True)


def make_folder(path: Path) -> None:
    """Make a folder and try to write to it. Raises WriteError when that fails."""
    with as_write_error(path):
        path.mkdir(parents=True, exist_ok=True)
        probe = path / f"{PREFIX}{secrets.token_hex(6)}"
        with _cleaned(probe):
            probe.touch()


def remove_folder(path: Path) -> None:
    """Remove a folder, first out of sight, so that an interruption leaves no part of it there.

    Raises WriteError when it cannot be removed. A later :func:`sweep` removes what is left.
    """
    hidden = path.with_name(f"{PREFIX}{secrets.token_hex(6)}-{path.name[-40:]}")
    with as_write_error(path, "removed"):
        for below in (path, *(one for one in path.rglob("*") if one.is_dir())):
            if not os.access(below, os.W_OK | os.X_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(below))
        path.rename(hidden)
        shutil.rmtree(hidden)


def remove_file(path: Path) -> None:
    """Remove a file if it is there. Raises WriteError when it cannot be removed."""
    with as_write_error(path, "removed"):
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def as_write_error(path: Path, be: str = "written") -> Iterator[None]:
    """Raise OSErrors of the block as a WriteError about ``path``.

    ``be``: the failed action, as in "cannot be written"
    """
    try:
        yield
    except OSError as error:
        in_the_way = error.errno in (errno.EEXIST, errno.ENOTDIR, errno.EISDIR)
        advice = (
            "Something else of this name is in the way: look there, or choose another path"
            if in_the_way
            else "Check the disk and the permissions, or choose another folder"
        )
        raise WriteError(f"{path}: cannot be {be}: {error.strerror or error}. {advice}") from error


@contextlib.contextmanager
def _cleaned(temporary: Path) -> Iterator[None]:
    try:
        yield
    finally:
        if temporary.is_dir():
            shutil.rmtree(temporary, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Flush a file, or a folder's list of names, to the disk."""
    if os.name == "nt" and path.is_dir():
        return  # Windows cannot open folders
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
