"""Processes that work for this one, and end when it does."""

import multiprocessing
import os
import sys
import threading
from pathlib import Path


def end_with_parent() -> None:
    """Let this process end as soon as the one that started it has, however that was.

    One that waits for work would otherwise wait for ever when its parent is killed.
    """
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def memory_used(_: int = 0) -> tuple[int, int]:
    """This process's number, and its peak memory in KiB."""
    try:
        # getrusage of a new process includes the one it was started from.
        lines = Path("/proc/self/status").read_text().splitlines()
        peak = next(line.split()[1] for line in lines if line.startswith("VmHWM:"))
        return os.getpid(), int(peak)
    except (OSError, StopIteration, ValueError):
        return os.getpid(), _peak_by_getrusage()


def _peak_by_getrusage() -> int:
    """This process's peak memory in KiB where the system has no ``/proc``; 0 on Windows."""
    try:
        import resource
    except ImportError:
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak // 1024 if sys.platform == "darwin" else peak  # bytes on macOS


def cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
