"""Use the machine: worker processes, threads, and the memory that is free."""

import contextlib
import contextvars
import ctypes
import multiprocessing
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from forecaster.errors import UsageError

_T = TypeVar("_T")
_MOST = 8  # threads, since each has a part in memory
_GROUP = Path("/sys/fs/cgroup")


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


def cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def by_parts(
    function: Callable[[slice], _T], rows: int, at_once: int, threads: int | None = None
) -> list[_T]:
    """Return what a function makes of each part of some rows, in order; threads do the parts.

    That takes less time where NumPy, SciPy or the system work without Python's lock.

    - ``function``: takes a part's slice, and runs in several threads at the same time: it may
      change the rows of its part, but nothing else that threads share, such as filters of warnings
    - ``at_once``: number of rows in a part
    - ``threads``: number of threads; by default one for each core, at most 8
    """
    parts = [slice(low, low + at_once) for low in range(0, rows, at_once)]
    threads = min(threads or min(_MOST, cores()), len(parts))
    if threads <= 1:
        return [function(part) for part in parts]
    # NumPy keeps in the context how it treats errors.
    contexts = [contextvars.copy_context() for _ in parts]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(lambda context, part: context.run(function, part), contexts, parts))


def free_memory() -> int:
    """Return the bytes of memory that are free on the machine and in the container."""
    free = [_of_group("", "memory.max", "memory.current", "inactive_file")]
    free.append(
        _of_group("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
    )
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        free.append(next(int(line.split()[1]) * 1024 for line in lines if "MemAvailable" in line))
    except (OSError, StopIteration, ValueError, IndexError):
        try:
            free.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
        except (AttributeError, ValueError, OSError):
            free.append(8 * 2**30)
    return min(size for size in free if size is not None)


def release_memory() -> None:
    """Give the memory that this process no longer uses back to the machine, where that is possible.

    The allocators of Arrow and of the C library keep it for later otherwise, so that work in stages
    holds the sum of what its stages need.
    """
    if (arrow := sys.modules.get("pyarrow")) is not None:
        arrow.default_memory_pool().release_unused()
    with contextlib.suppress(OSError, AttributeError):  # glibc has it, other C libraries do not
        ctypes.CDLL(None).malloc_trim(0)


def _of_group(folder: str, limit: str, used: str, cached: str) -> int | None:
    """Return the free bytes of a control group; None if there is no group, or it has no limit.

    ``cached``: the statistic that counts cached pages of files, which the kernel frees when asked.
    """
    try:
        group = _GROUP / folder
        most, now = ((group / name).read_text().strip() for name in (limit, used))
        counts = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        return max(0, int(most) - int(now) + int(counts.get(cached, 0)))
    except (OSError, ValueError):  # "max" means no limit
        return None
