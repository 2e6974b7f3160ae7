"""Series of unequal lengths as arrays of few sizes.

A size depends on a series' own length alone, so that the bits of what is computed from it do not
depend on the series beside it.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int


class Batch(NamedTuple):
    """Series whose lengths round up to the same size.

    - ``where``: their positions among all series
    - ``values``: (series, time), zeros after the last value
    - ``lengths``: the number of values of each
    """

    where: Int[np.ndarray, " series"]
    values: Float[np.ndarray, "series time"]
    lengths: Int[np.ndarray, " series"]


def batches(rows: Sequence[Float[np.ndarray, " time"]], most: int = 4096) -> Iterator[Batch]:
    """Yield all series in batches of at most ``most``."""
    lengths = np.array([len(row) for row in rows], int)
    sizes = np.array([padded_size(length) for length in lengths], int)
    for size in np.unique(sizes):
        of_size = np.flatnonzero(sizes == size)
        for begin in range(0, len(of_size), most):
            where = of_size[begin : begin + most]
            values = np.zeros((len(where), size))
            for row, position in enumerate(where):
                values[row, : lengths[position]] = rows[position]
            yield Batch(where, values, lengths[where])


def padded_size(length: int) -> int:
    """Round a length up to a multiple of an eighth of the next power of two, and of 8 at least."""
    step = max(8, 2 ** max(0, int(length - 1).bit_length() - 3))
    return -(-max(length, 1) // step) * step
