"""Forecast demand that is zero at most steps: Croston's method, those after it, and aggregation.

- Croston (1972), Operational Research Quarterly 23: the mean size of demands above zero, divided by
  the mean interval between them. Both means are smoothed whenever there is demand.
- SBA: Syntetos & Boylan (2005), International Journal of Forecasting 21: Croston's forecast times
  one minus half of the smoothing weight, since the ratio of two means is too large.
- TSB: Teunter, Syntetos & Babai (2011), European Journal of Operational Research 214: the mean
  demand times the probability of any demand. This probability is smoothed at every step, so that
  goods without further demand are no longer forecast.
- ADIDA: Nikolopoulos et al. (2011), Journal of the Operational Research Society 62: sums over the
  mean interval are smoothed, and spread evenly.

All of them forecast the same mean for all steps ahead. They take one series, and return the
forecast made at every step from the steps up to it alone. Smoothing begins with the first value,
and intervals are counted from one step before the first. Without any demand yet, zero is forecast.
"""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from jaxtyping import Float, Int

Steps: TypeAlias = Float[np.ndarray, " step"]

WEIGHT = 0.1
"""The usual weight of the latest value in a smoothed mean."""
_TRIED = np.array(sorted(np.arange(10, 31) / 100, key=lambda weight: abs(weight - 0.2)))
_AS_GOOD = 1 + 1e-9  # times the smallest errors: of weights up to this, the one nearest to 0.2


def croston(z: Steps) -> Steps:
    """Forecast the mean demand divided by the mean interval."""
    some = z > 0
    before = np.r_[0, _latest(some)[:-1]]
    intervals = np.arange(1, len(z) + 1) - before
    return np.nan_to_num(_smoothed(z, some) / _smoothed(intervals, some))


def sba(z: Steps) -> Steps:
    """Forecast as :func:`croston`, times one minus half of the weight."""
    return (1 - WEIGHT / 2) * croston(z)


def tsb(z: Steps) -> Steps:
    """Forecast the mean demand times the probability of any demand."""
    some = z > 0
    probability = _smoothed(some.astype(float), np.ones(len(z), bool))
    return np.nan_to_num(_smoothed(z, some) * probability)


def adida(z: Steps) -> Steps:
    """Forecast the smoothed sum of blocks as long as the mean interval, divided by that length.

    The blocks end at the step that the forecast is made at; what is left over at the beginning is
    not used. The weight is the one of 0.1, 0.11, ..., 0.3 with the smallest squared errors so far.
    """
    some = z > 0
    # The mean interval so far, as a whole number; 0 before there is any demand.
    lengths = np.rint(_latest(some) / np.maximum(np.cumsum(some), 1)).astype(int)
    out, totals = np.zeros(len(z)), np.r_[0.0, np.cumsum(z)]
    for length in np.unique(lengths[lengths > 0]).tolist():
        for offset in range(min(length, len(z))):
            ends = slice(offset + length - 1, None, length)
            made = _aggregated(totals[offset::length], length)
            out[ends] = np.where(lengths[ends] == length, made, out[ends])
    return out


INTERMITTENT: dict[str, Callable[[Steps], Steps]] = {
    "croston": croston,
    "sba": sba,
    "tsb": tsb,
    "adida": adida,
}
"""The methods by name."""


def _aggregated(totals: Float[np.ndarray, " end"], length: int) -> Float[np.ndarray, " block"]:
    """Return the forecast at the end of each block; ``totals``: of all values before each end."""
    sums = np.diff(totals)
    each = np.broadcast_to(sums, (len(_TRIED), len(sums)))
    made = _smoothed(each, np.ones(each.shape, bool), _TRIED)
    errors = np.zeros(made.shape)
    errors[:, 1:] = np.square(sums[1:] - made[:, :-1])
    errors = np.cumsum(errors, axis=-1)
    best = (errors <= errors.min(0) * _AS_GOOD).argmax(0)
    return np.take_along_axis(made, best[None], axis=0)[0] / length


def _latest(some: np.ndarray) -> Int[np.ndarray, " step"]:
    """Return how many steps there were up to the latest demand; ``some``: where there is any."""
    return np.maximum.accumulate(np.where(some, np.arange(1, len(some) + 1), 0))


def _smoothed(
    values: np.ndarray, there: np.ndarray, weight: float | Float[np.ndarray, " weight"] = WEIGHT
) -> np.ndarray:
    """Return the smoothed mean at each step of the values that are there; NaN before the first.

    The loop goes step by step, so that no bit depends on later steps.
    """
    out = np.full(values.shape, np.nan)
    mean = np.full(values.shape[:-1], np.nan)
    for step in range(values.shape[-1]):
        now = values[..., step]
        # The first value stands for itself.
        moved = np.where(np.isnan(mean), now, weight * now + (1 - weight) * mean)
        out[..., step] = mean = np.where(there[..., step], moved, mean)
    return out
