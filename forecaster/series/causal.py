"""Causal functions of series: the value at a step depends on no later step."""

from typing import TypeAlias

import numpy as np
from jaxtyping import Bool, Float, Int

from forecaster.classical import linear_filter

Rows: TypeAlias = Float[np.ndarray, "series step"]
_CLIP = 8.0
_AT_ONCE = 64  # series whose values fit into the cache of a core


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

    NaN count as missing. The recursion is sequential, so that no bit of a value depends on later
    steps.
    """
    values = np.asarray(values, np.float64)
    # What the weights add up to depends on the number of known values alone.
    shares = np.full(values.shape[1], 1 - decay)
    weights = np.array([np.nan, *_accumulated(shares, decay)])
    means = np.empty(values.shape)
    for low in range(0, len(values), _AT_ONCE):
        some = slice(low, low + _AT_ONCE)
        means[some] = _decayed_means(values[some], decay, weights)
    return means


def _decayed_means(values: Rows, decay: float, weights: Float[np.ndarray, " count"]) -> Rows:
    """Return the means of some series.

    ``weights``: the sum of the weights, by the number of known values
    """
    known = ~np.isnan(values)
    counts = np.cumsum(known, axis=1, dtype=np.int32)
    shares = np.where(known, values, 0.0)
    shares *= 1 - decay
    totals = _accumulated(shares, decay)
    # At a missing value nothing decays, and the filter makes NaN of infinite values.
    special = np.flatnonzero((np.isinf(shares) | (~known & (counts > 0))).any(1))
    if len(special):
        totals[special] = _special_totals(shares[special], known[special], counts[special], decay)
    totals /= weights[counts]
    return totals


def _special_totals(
    shares: Rows,
    known: Bool[np.ndarray, "series step"],
    counts: Int[np.ndarray, "series step"],
    decay: float,
) -> Rows:
    """Return the totals of series with gaps or infinite values; ``counts``: of known values."""
    series, steps = np.nonzero(known)
    packed = np.zeros(shares.shape)  # the known values without gaps
    packed[series, counts[series, steps] - 1] = shares[series, steps]
    totals = _accumulated(packed, decay)
    infinite = np.isinf(packed)
    for row in np.flatnonzero(infinite.any(1)):
        first = int(infinite[row].argmax())  # from here on all totals are infinite, or NaN
        with np.errstate(invalid="ignore"):
            totals[row, first:] = np.cumsum(packed[row, first:])
    return np.take_along_axis(totals, np.maximum(counts - 1, 0), axis=1)


def _accumulated(
    shares: Float[np.ndarray, "*series step"], decay: float
) -> Float[np.ndarray, "*series step"]:
    """Return the sum up to each finite share, in which every earlier one has decayed."""
    return linear_filter([1.0], [1.0, -decay], shares)


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
