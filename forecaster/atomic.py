"""Writes that happen whole or not at all."""

import contextlib
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from forecaster.errors import WriteError

PREFIX = ".tmp-"


def write_file(path: Path, write: Callable[[Path], object], *, last: bool = True) -> None:
    """Write a file by ``write(temporary_path)``, then put it in place of ``path``.

    The temporary file lies in the same folder; file and folder are synced to the disk. For all but
    the ``last`` of several files, syncing the folder is left to the next.

    Raises WriteError when it cannot be written; then ``path`` is as it was.
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
    """A temporary folder to fill, which becomes ``path`` when the block ends without an error.

    ``replace``: whether it may take the place of an existing ``path``. Raises WriteError when it
    cannot be written; then ``path`` is as it was.
    """
    temporary = path.with_name(f"{PREFIX}{secrets.token_hex(6)}-{path.name}")
    with as_write_error(path), _cleaned(temporary):
        temporary.mkdir(parents=True)
        yield temporary
        for file in temporary.iterdir():
            sync(file)
        sync(temporary)
        old = path.with_name(f"{PREFIX}{secrets.token_hex(6)}-old-{path.name}")
        if replace and path.exists():
            path.rename(old)
        try:
            temporary.rename(path)
        except BaseException:
            if old.exists():
                old.rename(path)
            raise
        sync(path.parent)
        shutil.rmtree(old, ignore_errors=True)


def make_folder(path: Path) -> None:
    """Make a folder and try to write to it. Raises WriteError when that fails."""
    with as_write_error(path):
        path.mkdir(parents=True, exist_ok=True)
        probe = path / f"{PREFIX}{secrets.token_hex(6)}"
        with _cleaned(probe):
            probe.touch()


@contextlib.contextmanager
def as_write_error(path: Path) -> Iterator[None]:
    """Turn errors of the operating system into a WriteError about ``path``."""
    try:
        yield
    except OSError as error:
        raise WriteError(
            f"{path}: cannot be written: {error.strerror or error}. Check the disk and the "
            "permissions, or choose another place"
        ) from error


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
    """Make sure that a file, or a folder's list of names, is on the disk."""
    if os.name == "nt" and path.is_dir():
        return  # Windows cannot open folders
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
