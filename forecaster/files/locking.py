"""Lock folders in which only one process at a time may work.

The kernel holds the lock and releases it when the process ends, however it ends.
"""

import contextlib
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
        except OSError as error:  # a timeout is one
            with contextlib.suppress(FileNotFoundError):
                _is_locked(path)  # raises where filelock would wait for ever
            if isinstance(error, filelock.Timeout):
                return False
            raise
        self._lock = lock
        return True

    def release(self) -> None:
        """Release the lock, if it is held."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None


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
    with contextlib.suppress(OSError):  # it was never locked, or the file system has no locks
        return _is_locked(folder / LOCK)
    return False


def _is_locked(path: Path) -> bool:
    """Return whether a file is locked. Raises OSError where the file system has no locks."""
    with path.open("rb") as file:
        try:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except ImportError:  # Windows
            import filelock

            try:
                filelock.FileLock(path).acquire(timeout=0).lock.release()
            except filelock.Timeout:
                return True
        except OSError as error:
            why = f"this file system cannot lock files ({error.strerror}); choose another folder"
            raise OSError(error.errno, why, str(path)) from error
    return False
