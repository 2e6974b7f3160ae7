"""Rows of numbers: shifted, filtered, and as arrays of few sizes.

SciPy's compiled filter is used without its import time: ``import scipy.signal`` takes 0.7 s, as it
wraps every function of that package. The filter itself is one compiled module, which is loaded
alone in a few milliseconds. It is private to SciPy, so wherever it cannot be loaded,
:func:`scipy.signal.lfilter` is used; the results are the same.

The size of a batch depends on a series' own length alone, so that the bits of what is computed from
it do not depend on the series beside it.
"""

import functools
import importlib.machinery
import importlib.util
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

_MODULE = "_sigtools"


def linear_filter(
    numerator: ArrayLike,
    denominator: Sequence[float] | np.ndarray,
    values: ArrayLike,
    axis: int = -1,
) -> Float[np.ndarray, "..."]:
    """Return the output of a linear filter that starts at rest.

    Output n is the sum of ``numerator[k] * values[n - k]``, minus the sum over k from 1 on of
    ``denominator[k] * output[n - k]``.

    - ``numerator``: coefficients of the values
    - ``denominator``: coefficients of the outputs; the first must be 1
    - ``values``: any shape; filtered along ``axis``

    Raises ValueError if the first coefficient of the outputs is not 1.
    """
    if not len(denominator) or denominator[0] != 1:
        raise ValueError(f"denominator: expected a first coefficient of 1; got {denominator!r:.80}")
    coefficients = np.atleast_1d(np.asarray(numerator, float)), np.asarray(denominator, float)
    return np.asarray(_compiled()(*coefficients, np.asarray(values, float), axis))


@functools.cache
def _compiled() -> Callable[..., Any]:
    """Return SciPy's compiled filter, loaded alone where that is possible."""
    try:
        package = importlib.util.find_spec("scipy.signal")
        where = package and package.submodule_search_locations
        spec = importlib.machinery.PathFinder.find_spec(_MODULE, where)
        module = importlib.util.module_from_spec(cast(Any, spec))
        cast(Any, spec).loader.exec_module(module)
        run: Callable[..., Any] = getattr(module, "_linear_filter")  # noqa: B009 - private
        got = run(np.array([0.5]), np.array([1.0, -0.5]), np.array([1.0, 0.0, 2.0]), -1)
        if np.array_equal(got, [0.5, 0.25, 1.125]):
            return run
    except (ImportError, AttributeError, TypeError, ValueError):
        pass
    from scipy.signal import lfilter  # pyright: ignore[reportUnknownVariableType]

    return lfilter


def shift(values: np.ndarray, steps: int) -> np.ndarray:
    """Return the values ``steps`` earlier, or later where negative; NaN where there are none."""
    if steps == 0:
        return values
    out = np.full_like(values, np.nan)
    if abs(steps) >= values.shape[-1]:
        return out
    if steps > 0:
        out[..., steps:] = values[..., :-steps]
    else:
        out[..., :steps] = values[..., -steps:]
    return out


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
