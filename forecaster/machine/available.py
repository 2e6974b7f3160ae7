"""The memory that is free, on the machine and in the container it runs in."""

import contextlib
import ctypes
import os
import sys
from pathlib import Path

_GROUP = Path("/sys/fs/cgroup")


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
