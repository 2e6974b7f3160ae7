"""Search for the parameters of many series at once that make their squared errors least.

Levenberg's and Marquardt's method (Levenberg 1944, Quarterly of Applied Mathematics 2; Marquardt
1963, Journal of the Society for Industrial and Applied Mathematics 11), for each series by itself,
with parameters kept within bounds. Series that have converged drop out, so that the slow ones cost
little, and no series influences another.
"""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Bool, Float, Int

ByParameter: TypeAlias = Float[np.ndarray, "series parameter"]
Bounds: TypeAlias = Float[np.ndarray, "parameter 2"]
Errors: TypeAlias = Float[np.ndarray, "series time"]
ErrorsOf: TypeAlias = Callable[[Int[np.ndarray, " series"], ByParameter], Errors]
"""Returns the errors of some series, given their rows and their parameters."""
Allowed: TypeAlias = Callable[
    [Int[np.ndarray, " series"], ByParameter], Bool[np.ndarray, " series"]
]
"""Returns whether some series may have these parameters, given their rows."""

_APART = 1e-5  # distance of the two points of a derivative, in widths of the bounds
_FARTHEST = 1 / 3  # largest change in one round, as a share of the bounds' width
_DAMPING, _FACTOR = 1e-2, 10.0
_LEAST_DAMPING, _DAMPED, _MOST_DAMPING = 1e-7, 1e2, 1e6
_WORTH = 1e-4  # share of the squares that a round must gain for the search to go on
_RIDGE = 1e-12


def least_squares(
    errors_of: ErrorsOf,
    parameters: ByParameter,
    bounds: Bounds,
    rounds: int,
    *,
    allowed: Allowed | None = None,
) -> ByParameter:
    """Return parameters whose squared errors are no larger than those of the given ones.

    - ``errors_of``: the errors of some series, zero where there is no value
    - ``parameters``: to begin with
    - ``bounds``: the least and the greatest value of each parameter
    - ``rounds``: the maximum number for each series
    - ``allowed``: which parameters within the bounds may be returned; all by default. Errors must
      be finite a little beyond them, too, as derivatives are taken there
    """
    best, rows = parameters.copy(), np.arange(len(parameters))
    errors = errors_of(rows, best)
    slopes = _slopes(errors_of, rows, best, errors, bounds)
    damping = np.full(len(rows), _DAMPING)
    for _ in range(rounds):
        if not len(rows):
            break
        squares = (errors**2).sum(1)
        step = _step(best[rows], errors, slopes, damping, bounds)
        made = errors_of(rows, step.to)
        better = (made**2).sum(1) < squares
        if allowed:
            better &= allowed(rows, step.to)
        best[rows[better]] = step.to[better]
        errors = np.where(better[:, None], made, errors)
        small = step.gain < _WORTH * squares
        # A step that bounds have bent may gain nothing, where a shorter one still would.
        done = (small & (~step.bent | (damping > _DAMPED))) | (damping > _MOST_DAMPING)
        damping = np.where(better, np.maximum(damping / _FACTOR, _LEAST_DAMPING), damping * _FACTOR)
        moved = np.flatnonzero(better & ~done)
        slopes[moved] = _slopes(errors_of, rows[moved], best[rows[moved]], errors[moved], bounds)
        rows, errors, slopes, damping = (part[~done] for part in (rows, errors, slopes, damping))
    return best


class _Step(NamedTuple):
    """A step of each series.

    - ``to``: the parameters that it leads to
    - ``gain``: the expected decrease of the sum of squares
    - ``bent``: whether it would have left the bounds
    """

    to: ByParameter
    gain: Float[np.ndarray, " series"]
    bent: Bool[np.ndarray, " series"]


def _step(
    parameters: ByParameter,
    errors: Errors,
    slopes: Float[np.ndarray, "series time parameter"],
    damping: Float[np.ndarray, " series"],
    bounds: Bounds,
) -> _Step:
    """Solve for the damped step of each series; parameters at a bound do not push against it."""
    low, high = bounds.T
    gradient = np.matmul(slopes.swapaxes(1, 2), errors[:, :, None])[:, :, 0]
    curvature = np.matmul(slopes.swapaxes(1, 2), slopes)
    at_low, at_high = parameters <= low, parameters >= high
    fixed = (at_low & (gradient > 0)) | (at_high & (gradient < 0))
    move = _solved(curvature, gradient, damping, fixed)
    fixed |= (at_low & (move < 0)) | (at_high & (move > 0))
    move = _solved(curvature, gradient, damping, fixed)
    move = np.clip(move, -_FARTHEST * (high - low), _FARTHEST * (high - low))
    to = np.clip(parameters + move, low, high)
    bent = (to != parameters + move).any(1)
    move = to - parameters
    bend = np.matmul(np.matmul(move[:, None], curvature), move[:, :, None])[:, 0, 0]
    return _Step(to, -2 * (gradient * move).sum(1) - bend, bent)


def _solved(
    curvature: Float[np.ndarray, "series parameter parameter"],
    gradient: ByParameter,
    damping: Float[np.ndarray, " series"],
    fixed: Bool[np.ndarray, "series parameter"],
) -> ByParameter:
    """Return the step of each series, zero for ``fixed`` parameters."""
    diagonal = np.diagonal(curvature, axis1=1, axis2=2)
    more = damping[:, None] * diagonal + _RIDGE * diagonal.max(1, keepdims=True)
    more = np.where(fixed | (diagonal <= 0), 1.0, more)
    held = fixed[:, :, None] | fixed[:, None]
    matrix = np.where(held, 0.0, curvature) + more[:, :, None] * np.eye(gradient.shape[1])
    return -np.linalg.solve(matrix, np.where(fixed, 0.0, gradient)[:, :, None])[:, :, 0]


def _slopes(
    errors_of: ErrorsOf,
    rows: Int[np.ndarray, " series"],
    parameters: ByParameter,
    errors: Errors,
    bounds: Bounds,
) -> Float[np.ndarray, "series time parameter"]:
    """Return the derivatives of errors by each parameter."""
    size = parameters.shape[1]
    apart = _APART * (bounds[:, 1] - bounds[:, 0])
    signed = np.where(parameters + apart > bounds[:, 1], -apart, apart)
    tried = (parameters[:, None] + signed[:, :, None] * np.eye(size)).reshape(-1, size)
    made = errors_of(rows.repeat(size), tried).reshape(len(rows), size, errors.shape[1])
    slopes = (made - errors[:, None]) / signed[:, :, None]
    return np.ascontiguousarray(slopes.swapaxes(1, 2))
