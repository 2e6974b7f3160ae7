"""Causal functions of series: the value at a step depends on no later step."""

from typing import TypeAlias

import numpy as np
from jaxtyping import Float

from forecaster.classical import linear_filter, shift

Rows: TypeAlias = Float[np.ndarray, "series step"]
Steps: TypeAlias = Float[np.ndarray, "*series step"]
Ahead: TypeAlias = Float[np.ndarray, "*series step horizon"]
_CLIP = 8.0


def decayed_mean(values: Steps, decay: float) -> Steps:
    """Return the exponentially weighted mean up to each step, with normalised weights.

    What is NaN or infinite counts as missing. The filter runs step by step, so that no bit of a
    value depends on later steps.
    """
    known, coefficients = np.isfinite(values), ([1 - decay], [1.0, -decay])
    weight = linear_filter(*coefficients, known)
    total = linear_filter(*coefficients, np.where(known, values, 0.0))
    with np.errstate(invalid="ignore"):
        return np.divide(total, weight, out=total)


def latest_mean(values: Steps, width: int) -> Steps:
    """Return the mean of the latest values at each step: of ``width``, or of what there is."""
    steps = int(values.shape[-1])
    total = np.cumsum(values, -1, dtype=float)
    before = np.zeros(values.shape)
    before[..., width:] = total[..., : max(steps - width, 0)]
    return (total - before) / np.minimum(np.arange(1, steps + 1), width)


def lagged(z: Steps, season: int, horizon: int, more: int = 0) -> Ahead:
    """Return, for each step ahead, the latest known value that lies whole seasons before it.

    ``more``: further seasons to go back
    """
    out = np.full((*z.shape, horizon), np.nan)
    for column in range(horizon):
        back = (-(-(column + 1) // season) + more) * season - (column + 1)
        out[..., back:, column] = z[..., : max(0, z.shape[-1] - back)]
    return out


def by_target_step(forecasts: Ahead) -> Ahead:
    """Return forecasts by the step that they are for, rather than made at; NaN for none."""
    out = np.full_like(forecasts, np.nan)
    for column in range(int(forecasts.shape[-1])):
        out[..., column + 1 :, column] = forecasts[..., : -column - 1, column]
    return out


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


FEW_CHANGES = 10
"""The changes from which on the volatility of a price stands alone."""
_USUAL = 10.0  # weight of the usual volatility, in changes


def shrunk_to_usual(scale: Rows, change: Rows, usual: Rows | float, alone: float) -> Rows:
    """Return volatilities, shrunk to the usual one as long as few changes are known.

    ``alone``: the number of changes until which the weight of the usual volatility falls to zero;
    infinite: it always stays the same
    """
    known = np.cumsum(np.isfinite(change), axis=1)
    weight = _USUAL * np.maximum(1 - known / alone, 0.0)
    own = np.where(known > 0, np.nan_to_num(scale), 0.0) ** 2
    with np.errstate(divide="ignore", invalid="ignore"):
        shrunk = np.sqrt((known * own + weight * usual**2) / (known + weight))
    return np.where(known < alone, shrunk, scale)
