"""A folder that one process at a time may change."""

import contextlib
import os
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

from forecaster import atomic


@contextlib.contextmanager
def locked_folder(folder: Path, on_wait: Callable[[str], None] | None = None) -> Iterator[None]:
    """Keep other processes that lock the same folder out for the block; makes the folder.

    ``on_wait(message)`` is called when another process has to be waited for. Raises WriteError when
    the folder cannot be written to.
    """
    import filelock

    holder = folder / ".lock-holder"
    with atomic.as_write_error(folder):
        folder.mkdir(parents=True, exist_ok=True)
        lock = filelock.FileLock(folder / ".lock")
        try:
            lock.acquire(timeout=0)
        except filelock.Timeout:
            if on_wait:
                who = _describe_holder(holder)
                on_wait(f"Waiting for another forecaster{who} that updates the store")
            lock.acquire(poll_interval=0.1)
    try:
        since = datetime.now().strftime("%H:%M:%S")
        with contextlib.suppress(OSError):
            holder.write_text(f"process {os.getpid()}, since {since}")
        yield
    finally:
        with contextlib.suppress(OSError):
            holder.unlink(missing_ok=True)
        lock.release()


def _describe_holder(holder: Path) -> str:
    """Who holds the lock, as far as can be read."""
    with contextlib.suppress(OSError):
        return f" ({holder.read_text()[:60]})"
    return ""
