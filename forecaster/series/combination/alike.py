"""Join series that are alike, so that one call of NumPy computes many of them."""

from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence

import numpy as np
from jaxtyping import Float

_CELLS = 2**18  # cells of an array, so few that it stays in the processor's cache
_LONGER = 1.5  # largest ratio of the lengths of joined series
_AT_ONCE = 2**22  # forecasts of classical models that are in memory at a time


def alike(sizes: Sequence[int], kinds: Sequence[Hashable]) -> Iterator[list[int]]:
    """Yield the numbers of series of one kind and of similar sizes, few enough to compute at once.

    - ``sizes``: the cells of each series
    - ``kinds``: the kind of each series
    """
    by_kind: dict[Hashable, list[int]] = defaultdict(list)
    for number in np.argsort(sizes, kind="stable").tolist():
        by_kind[kinds[number]].append(number)
    for numbers in by_kind.values():
        some: list[int] = []
        for number in numbers:
            size = sizes[number]
            if some and (size * (len(some) + 1) > _CELLS or size > _LONGER * sizes[some[0]]):
                yield some
                some = []
            some.append(number)
        yield some


def padded(arrays: Sequence[np.ndarray]) -> Float[np.ndarray, "series step *column"]:
    """Return arrays (step, ...) of unequal length as one, with NaN after the end of each."""
    most = max(len(one) for one in arrays)
    out = np.full((len(arrays), most, *arrays[0].shape[1:]), np.nan)
    for own, one in zip(out, arrays, strict=True):
        own[: len(one)] = one
    return out


def few_at_a_time(sizes: Sequence[int]) -> list[list[int]]:
    """Return the positions of series in parts, each with a limited number of forecasts.

    ``sizes``: how many forecasts each series has
    """
    cuts = np.flatnonzero(np.diff(np.cumsum(sizes) // _AT_ONCE)) + 1
    return [part.tolist() for part in np.split(np.arange(len(sizes)), cuts)]
