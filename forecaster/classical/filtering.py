"""Shift arrays, and filter them with SciPy's compiled filter but without its import time.

``import scipy.signal`` takes 0.7 s, because it wraps every function of that package. The filter
itself is one compiled module, which is loaded alone in a few milliseconds. It is private to SciPy,
so wherever it cannot be loaded, :func:`scipy.signal.lfilter` is used; the results are the same.
"""

import functools
import importlib.machinery
import importlib.util
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
from jaxtyping import Float
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
