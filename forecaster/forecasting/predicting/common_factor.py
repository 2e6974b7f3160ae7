"""The common factor of the errors of prices, and how large it is now.

The common factor is the mean error of all series at one time. Its share of the errors changes: in a
crisis stocks move together, in calm years each for itself. So before past errors are ranked for
sample paths, their common part is scaled to a forecast of its variance, an exponentially weighted
mean of its squares (RiskMetrics Technical Document, 1996), and the rest of each error so that the
total stays. Only ranks are taken from the result: the distribution of each series by itself does
not change.

The figures that this was chosen by are in ``docs/evaluation.md``.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

_HALF_LIFE = 10.0  # number of times after which the weight of a square has halved
_PRIOR = 10.0  # weight of the mean of all squares, as a number of times
_LARGEST = 0.95  # largest share of the factor in the variance of errors
_ENOUGH = 0.5  # share of the series that must have an error, for a time to have a factor


class Factor(NamedTuple):
    """The common factor of errors.

    - ``values``: the mean error by time and step ahead, NaN where it is unknown
    - ``series``: the mean number of series over which it is taken
    - ``time``: the row of ``values`` that each error belongs to
    """

    values: Float[np.ndarray, "time horizon"]
    series: float
    time: Int[np.ndarray, "series origin"]


def scaled_to_now(
    units: Float[np.ndarray, "series origin horizon"], positions: Int[np.ndarray, "series origin"]
) -> Float[np.ndarray, "series origin horizon"]:
    """Return past errors with the variance of their common factor that is forecast for now.

    The forecast is made from errors one step ahead, which are known first, and holds for all steps.
    Errors of a single series, and of series that move independently, stay as they are.

    - ``units``: errors in units of their spread, NaN where unknown
    - ``positions``: positions of their origins on the panel's time axis, in order of time
    """
    errors = units[:, :, 0][np.isfinite(units[:, :, 0])]
    if not len(errors):
        return units
    factor = factor_of(units, positions)
    squares = factor.values[:, 0] ** 2
    squares = squares[np.isfinite(squares)]
    total = float((errors**2).mean())
    usual = min(float(squares.mean()), _LARGEST * total)
    now = min(_variance_now(squares, usual, total / factor.series), _LARGEST * total)
    if now == usual:
        return units
    common = np.nan_to_num(factor.values)[factor.time]
    own = np.sqrt((total - now) / (total - usual))
    return own * (units - common) + np.sqrt(now / usual) * common


def factor_of(
    units: Float[np.ndarray, "series origin horizon"], positions: Int[np.ndarray, "series origin"]
) -> Factor:
    """Return the common factor; arguments as for :func:`scaled_to_now`."""
    times, time = np.unique(positions, return_inverse=True)
    time = time.reshape(positions.shape)
    known = np.isfinite(units)
    total, count = np.zeros((2, len(times), units.shape[2]))
    np.add.at(total, time, np.where(known, units, 0.0))
    np.add.at(count, time, known)
    enough = count >= np.maximum(_ENOUGH * count.max(), 1)
    values = np.where(enough, total / np.maximum(count, 1), np.nan)
    return Factor(values, float(count[enough[:, 0], 0].mean()), time)


def _variance_now(squares: Float[np.ndarray, " time"], usual: float, alone: float) -> float:
    """Return the forecast of the factor's square.

    - ``squares``: squares of the factor, in order of time
    - ``usual``: their mean
    - ``alone``: the mean if series were independent; this part of ``usual`` does not change
    """
    weights = 0.5 ** (np.arange(len(squares))[::-1] / _HALF_LIFE)
    recent = (_PRIOR * usual + weights @ squares) / (_PRIOR + weights.sum())
    shared = max(0.0, 1 - alone / usual) if usual > 0 else 0.0
    return usual + shared * (recent - usual)
