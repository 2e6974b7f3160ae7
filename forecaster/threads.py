"""Work on parts of arrays in several threads, where NumPy and SciPy work without Python's lock."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from forecaster.processes import cores

_T = TypeVar("_T")


def by_parts(
    function: Callable[[slice], _T], rows: int, at_once: int, threads: int | None = None
) -> list[_T]:
    """Return what a function makes of each part of some rows, in order.

    - ``function``: takes a part's slice; runs in several threads at the same time, so it changes
      nothing that all of them share, such as the filters of warnings
    - ``at_once``: number of rows in a part
    - ``threads``: number of threads; by default one for each core
    """
    parts = [slice(low, min(low + at_once, rows)) for low in range(0, rows, at_once)]
    threads = min(threads or cores(), len(parts))
    if threads <= 1:
        return [function(part) for part in parts]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(function, parts))
