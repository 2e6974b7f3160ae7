"""Do the same work for parts of many rows or files, in several threads.

That takes less time where NumPy, SciPy or the system work without Python's lock.
"""

import contextvars
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from forecaster.machine.processes import cores

_T = TypeVar("_T")
_MOST = 8  # threads, since each has a part in memory


def by_parts(
    function: Callable[[slice], _T], rows: int, at_once: int, threads: int | None = None
) -> list[_T]:
    """Return what a function makes of each part of some rows, in order.

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
