"""Worker processes that end with this one, and the memory and cores of a process."""

import multiprocessing
import os
import sys
import threading
from pathlib import Path

from forecaster.errors import UsageError


def check_guarded(work: str) -> None:
    """Raise UsageError if a script that began some work is being read again by its own process.

    A process that is started reads the script of its parent. Without a guard it begins the same
    work, and would wait for its parent, which waits for it. ``work``: such as ``a fit``
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise UsageError(
            f"{work} was begun by a process that another one has started: guard the script by "
            '`if __name__ == "__main__":`'
        )


def end_with_parent() -> None:
    """Make this process end as soon as its parent has ended, even if the parent was killed.

    Otherwise a process that waits for work would wait for ever.
    """
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def memory_used(_: int = 0) -> tuple[int, int]:
    """Return this process's number, and its peak memory in KiB."""
    try:
        # getrusage of a new process includes its parent's memory.
        lines = Path("/proc/self/status").read_text().splitlines()
        peak = next(line.split()[1] for line in lines if line.startswith("VmHWM:"))
        return os.getpid(), int(peak)
    except (OSError, StopIteration, ValueError):
        return os.getpid(), _peak_by_getrusage()


def _peak_by_getrusage() -> int:
    """Return the peak memory in KiB where the system has no ``/proc``; 0 on Windows."""
    try:
        import resource
    except ImportError:
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak // 1024 if sys.platform == "darwin" else peak  # bytes on macOS


def cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
