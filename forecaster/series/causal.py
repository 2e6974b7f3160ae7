"""Causal functions of series: the value at a step depends on no later step."""

import itertools
from typing import TypeAlias

import numpy as np
from jaxtyping import Float

Rows: TypeAlias = Float[np.ndarray, "series step"]
_CLIP = 8.0
_FEW = 12  # series; for fewer, a loop over each is faster than NumPy's calls for each step


def shift(
    values: Float[np.ndarray, "*series step"], steps: int
) -> Float[np.ndarray, "*series step"]:
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


def decayed_mean(values: Rows, decay: float) -> Rows:
    """Return the exponentially weighted mean up to each step, with normalised weights.

    NaN count as missing. The loop is sequential, so that no bit of a value depends on later steps.
    """
    values = np.asarray(values, np.float64)
    if len(values) < _FEW:
        weights = _accumulated([1 - decay] * values.shape[1], decay)
        rows = [_decayed_mean(row, decay, weights) for row in values]
        return np.array(rows).reshape(values.shape)
    by_step = np.ascontiguousarray(values.T)  # in this order a step's values lie together
    known = ~np.isnan(by_step)
    totals = (1 - decay) * np.where(known, by_step, 0.0)
    whole = np.asarray(known.all(1))  # the steps at which all values are known
    total = np.zeros(len(values))
    for step, now in enumerate(totals):
        after = decay * total + now
        total = after if whole[step] else np.where(known[step], after, total)
        now[:] = total
    # What the weights add up to depends on the number of known values alone.
    weights = np.array([np.nan, *_accumulated([1 - decay] * values.shape[1], decay)])
    return np.ascontiguousarray((totals / weights[np.cumsum(known, 0)]).T)


def _decayed_mean(
    values: Float[np.ndarray, " step"], decay: float, weights: Float[np.ndarray, " step"]
) -> Float[np.ndarray, " step"]:
    """Return the same mean of one row, bit for bit.

    ``weights``: the sum of the weights by the number of known values
    """
    known = ~np.isnan(values)
    totals = _accumulated(((1 - decay) * values[known]).tolist(), decay)
    means = np.append(totals / weights[: len(totals)], np.nan)
    return means[np.cumsum(known) - 1]  # the last one, NaN, where nothing is known yet


def _accumulated(shares: list[float], decay: float) -> Float[np.ndarray, " share"]:
    """Return the sum up to each share, in which every earlier one has decayed."""
    sums = itertools.accumulate(shares, lambda sum_, one: decay * sum_ + one, initial=0.0)
    return np.array(list(sums)[1:])


def squash(values: np.ndarray) -> np.ndarray:
    """Return the values clipped to -8 and 8."""
    return np.clip(values, -_CLIP, _CLIP)


_DECAYS = (0.80, 0.94, 0.985)  # volatility of about a week, a month and a quarter


def change_features(change: Rows, floor: Rows | float) -> tuple[list[Rows], Rows]:
    """Return four features of changes, and the volatility that scales future changes.

    The features are the change over the volatility before it, the logarithm of its size, and the
    logarithms of two ratios of volatilities: week over month, and month over quarter.

    ``floor``: added to each variance.
    """
    variances = [decayed_mean(change**2, decay) for decay in _DECAYS]
    weekly, monthly, quarterly = (np.sqrt(v + floor) for v in variances)
    scale = np.sqrt((monthly**2 + quarterly**2) / 2)
    features = [
        squash(change / shift(scale, 1)),
        np.log(np.abs(change) / shift(scale, 1) + 0.1),
        np.log(weekly / monthly),
        np.log(monthly / quarterly),
    ]
    return features, scale
