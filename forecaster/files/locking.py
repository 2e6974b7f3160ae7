"""Lock folders in which only one process at a time may work.

The kernel holds the lock and releases it when the process ends, however it ends.
"""

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from forecaster.files import atomic

if TYPE_CHECKING:
    import filelock

LOCK = ".lock"


class FolderLock:
    """The lock of a folder, held until it is released or the process ends."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._lock: filelock.BaseFileLock | None = None

    def try_acquire(self, timeout: float = 0.0) -> bool:
        """Wait ``timeout`` seconds for the lock, forever if -1; return whether it was taken.

        Raises OSError when the folder does not exist or cannot be written to, or cannot be locked.
        """
        import filelock

        path = self._folder / LOCK
        lock = filelock.FileLock(path)
        try:
            lock.acquire(timeout=timeout, poll_interval=0.1)
        except filelock.Timeout:
            _check_locks_work(path)
            return False
        except OSError:
            _check_locks_work(path)
            raise
        self._lock = lock
        return True

    def release(self) -> None:
        """Release the lock, if it is held."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None


def _check_locks_work(path: Path) -> None:
    """Raise OSError where the file system has no locks; filelock would wait there for ever."""
    try:
        import fcntl
    except ImportError:
        return
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        pass  # another process holds it
    except OSError as error:
        why = f"this file system cannot lock files ({error.strerror}); choose a folder on another"
        raise OSError(error.errno, why, str(path)) from error
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def locked_folder(folder: Path, on_wait: Callable[[str], None] | None = None) -> Iterator[None]:
    """Hold the lock of a folder in the block; make the folder if it does not exist.

    ``on_wait(message)`` is called before waiting for another process. Raises WriteError when the
    folder cannot be written to.
    """
    lock = FolderLock(folder)
    with atomic.as_write_error(folder):
        folder.mkdir(parents=True, exist_ok=True)
        if not lock.try_acquire():
            if on_wait:
                on_wait("Waiting for another forecaster that updates the store")
            lock.try_acquire(timeout=-1)
    try:
        yield
    finally:
        lock.release()


def is_held(folder: Path) -> bool:
    """Return whether a process holds the lock of a folder; write nothing."""
    try:
        import fcntl
    except ImportError:
        return _is_held_on_windows(folder)
    try:
        descriptor = os.open(folder / LOCK, os.O_RDONLY)
    except OSError:
        return False  # it was never locked
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False  # the file system has no locks
    finally:
        os.close(descriptor)
    return False


def _is_held_on_windows(folder: Path) -> bool:
    lock = FolderLock(folder)
    if not (folder / LOCK).exists() or lock.try_acquire():
        lock.release()
        return False
    return True
