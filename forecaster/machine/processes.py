"""Worker processes that end with this one, and the cores of a process."""

import multiprocessing
import os
import threading

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


def cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
