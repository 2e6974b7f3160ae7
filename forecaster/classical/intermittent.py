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

All of them forecast the same mean for all steps ahead. They take one series, or several at once as
further axes, and return the forecast made at every step from the steps up to it alone. Steps that
are missing at the end of a shorter series are NaN. Smoothing begins with the first value, and
intervals are counted from one step before the first. Without any demand yet, zero is forecast.
"""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from jaxtyping import Float, Int

Steps: TypeAlias = Float[np.ndarray, "*series step"]

WEIGHT = 0.1
"""The usual weight of the latest value in a smoothed mean."""
_TRIED = tuple(sorted(np.arange(10, 31) / 100, key=lambda weight: abs(weight - 0.2)))
_AS_GOOD = 1 + 1e-9  # times the smallest errors: of weights up to this, the one nearest to 0.2


def croston(z: Steps, weight: float = WEIGHT) -> Steps:
    """Forecast the mean demand divided by the mean interval; ``weight``: of their latest values."""
    some = z > 0
    size = _smoothed(z, some, weight)
    before = np.concatenate([np.zeros((*z.shape[:-1], 1)), _latest(some)[..., :-1]], axis=-1)
    interval = _smoothed(np.arange(1, z.shape[-1] + 1) - before, some, weight)
    with np.errstate(invalid="ignore"):
        return _from_first(size / interval, z)


def sba(z: Steps, weight: float = WEIGHT) -> Steps:
    """Forecast as :func:`croston`, times one minus half of the weight."""
    return (1 - weight / 2) * croston(z, weight)


def tsb(z: Steps, weight: float = WEIGHT, weight_of_probability: float = WEIGHT) -> Steps:
    """Forecast the mean demand times the probability of any demand."""
    some = z > 0
    probability = _smoothed(some.astype(float), np.isfinite(z), weight_of_probability)
    return _from_first(_smoothed(z, some, weight) * probability, z)


def adida(z: Steps) -> Steps:
    """Forecast the smoothed sum of blocks as long as the mean interval, divided by that length.

    The blocks end at the step that the forecast is made at; what is left over at the beginning is
    not used. The weight is the one of 0.1, 0.11, ..., 0.3 with the smallest squared errors so far.
    """
    flat = np.asarray(z, float).reshape(-1, z.shape[-1])
    some = flat > 0
    # The mean interval so far, as a whole number; 0 before there is any demand.
    lengths = np.rint(_latest(some) / np.maximum(np.cumsum(some, axis=-1), 1)).astype(int)
    out = np.zeros(flat.shape)
    totals = np.concatenate([np.zeros((len(flat), 1)), np.nancumsum(flat, axis=1)], axis=1)
    for length in np.unique(lengths[lengths > 0]):
        for offset in range(min(int(length), flat.shape[1])):
            made = _aggregated(totals, int(length), offset)
            ends = slice(offset + int(length) - 1, None, int(length))
            here = lengths[:, ends] == length
            out[:, ends] = np.where(here, made, out[:, ends])
    return np.where(np.isfinite(z), out.reshape(z.shape), np.nan)


INTERMITTENT: dict[str, Callable[[Steps], Steps]] = {
    "croston": croston,
    "sba": sba,
    "tsb": tsb,
    "adida": adida,
}
"""The methods by name."""


def _aggregated(
    totals: Float[np.ndarray, "series end"], length: int, offset: int
) -> Float[np.ndarray, "series block"]:
    """Return the forecast at the end of each block of a length, the first of them after ``offset``.

    ``totals``: the sum of all values before each step
    """
    sums = np.diff(totals[:, offset::length], axis=1)
    each = np.broadcast_to(sums, (len(_TRIED), *sums.shape))
    made = _smoothed(each, np.ones(each.shape, bool), np.array(_TRIED)[:, None])
    errors = np.zeros(made.shape)
    errors[:, :, 1:] = np.square(sums[:, 1:] - made[:, :, :-1])
    errors = np.cumsum(errors, axis=-1)
    best = (errors <= errors.min(0) * _AS_GOOD).argmax(0)
    return np.take_along_axis(made, best[None], axis=0)[0] / length


def _latest(some: np.ndarray) -> Int[np.ndarray, "*series step"]:
    """Return how many steps there were up to the latest demand; ``some``: where there is any."""
    return np.maximum.accumulate(np.where(some, np.arange(1, some.shape[-1] + 1), 0), axis=-1)


def _smoothed(
    values: Steps, there: np.ndarray, weight: float | Float[np.ndarray, "weight 1"]
) -> Steps:
    """Return the smoothed mean at each step of the values that are there; NaN before the first.

    The loop goes step by step, so that no bit depends on later steps.
    """
    out = np.full(values.shape, np.nan)
    mean = np.full(values.shape[:-1], np.nan)
    for step in range(values.shape[-1]):
        now = values[..., step]
        # The first value stands for itself.
        moved = np.where(np.isnan(mean), now, weight * now + (1 - weight) * mean)
        mean = np.where(there[..., step], moved, mean)
        out[..., step] = mean
    return out


def _from_first(made: Steps, z: Steps) -> Steps:
    """Return forecasts with zero before any demand; NaN where the series is missing."""
    return np.where(np.isfinite(z), np.nan_to_num(made, nan=0.0), np.nan)
