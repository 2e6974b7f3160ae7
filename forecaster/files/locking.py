"""Folders that one process at a time may work in.

The lock is the kernel's: it goes when its process does, however that ends. Beside it lies a note
for people, who holds the lock; one that a killed process has left is never believed.
"""

import contextlib
import os
import re
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from forecaster.files import atomic

if TYPE_CHECKING:
    import filelock

LOCK, HOLDER = ".lock", ".lock-holder"


class FolderLock:
    """The lock of a folder, held until it is released or the process ends."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._lock: filelock.BaseFileLock | None = None

    def try_acquire(self, timeout: float = 0.0) -> bool:
        """Take the lock unless another holds it for longer than these seconds; -1: wait.

        Raises OSError when the folder is not there or cannot be written to.
        """
        import filelock

        lock = filelock.FileLock(self._folder / LOCK)
        try:
            lock.acquire(timeout=timeout, poll_interval=0.1)
        except filelock.Timeout:
            return False
        self._lock = lock
        since = datetime.now().strftime("%H:%M:%S")
        with contextlib.suppress(OSError):
            (self._folder / HOLDER).write_text(f"process {os.getpid()}, since {since}")
        return True

    def release(self) -> None:
        """Let others have it; without effect when it is not held."""
        if self._lock is None:
            return
        with contextlib.suppress(OSError):
            (self._folder / HOLDER).unlink(missing_ok=True)
        self._lock.release()
        self._lock = None


@contextlib.contextmanager
def locked_folder(folder: Path, on_wait: Callable[[str], None] | None = None) -> Iterator[None]:
    """Keep other processes that lock the same folder out for the block; makes the folder.

    ``on_wait(message)`` is called when another process has to be waited for. Raises WriteError when
    the folder cannot be written to.
    """
    lock = FolderLock(folder)
    with atomic.as_write_error(folder):
        folder.mkdir(parents=True, exist_ok=True)
        if not lock.try_acquire():
            if on_wait:
                who = holder_of(folder)
                on_wait(f"Waiting for another forecaster{who} that updates the store")
            lock.try_acquire(timeout=-1)
    try:
        yield
    finally:
        lock.release()


def is_held(folder: Path) -> bool:
    """Whether a process holds the lock of a folder; leaves no trace there."""
    try:
        import fcntl
    except ImportError:
        return _is_held_on_windows(folder)
    try:
        descriptor = os.open(folder / LOCK, os.O_RDONLY)
    except OSError:
        return False  # nobody has ever locked it
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False  # a file system without locks
    finally:
        os.close(descriptor)
    return False


def _is_held_on_windows(folder: Path) -> bool:
    lock = FolderLock(folder)
    if not (folder / LOCK).exists() or lock.try_acquire():
        lock.release()
        return False
    return True


def holder_of(folder: Path) -> str:
    """Who holds the lock, in brackets after a space; empty where that cannot be told."""
    with contextlib.suppress(OSError, ValueError):
        note = (folder / HOLDER).read_text()[:60]
        if (match := re.match(r"process (\d+),", note)) and _is_alive(int(match[1])):
            return f" ({note})"
    return ""


def _is_alive(process: int) -> bool:
    if os.name == "nt":
        return True  # signal 0 would end it there
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass  # another user's
    return True
