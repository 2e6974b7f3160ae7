"""Small causal tools on rows of steps: a value at a step depends on those up to it alone."""

import math
from typing import TypeAlias

import numpy as np
from jaxtyping import Float

Rows: TypeAlias = Float[np.ndarray, "series step"]
_CLIP = 8.0
_FEW = 32


def shift(values: Rows, steps: int) -> Rows:
    """Values as they were ``steps`` ago (or will be, when negative); NaN where there are none."""
    if steps == 0:
        return values
    out = np.full_like(values, np.nan)
    if abs(steps) >= values.shape[1]:
        return out
    if steps > 0:
        out[:, steps:] = values[:, :-steps]
    else:
        out[:, :steps] = values[:, -steps:]
    return out


def decayed_mean(values: Rows, decay: float) -> Rows:
    """Exponentially weighted mean up to each step, weights normalised; NaN are skipped.

    Sequential, so that a step's value depends bit for bit on the steps before it and no others.
    """
    values = np.asarray(values, np.float64)
    if len(values) < _FEW:
        return np.array([_decayed_mean(row, decay) for row in values]).reshape(values.shape)
    total = np.zeros(values.shape[0])
    weight = np.zeros(values.shape[0])
    out = np.empty_like(values)
    for step in range(values.shape[1]):
        now = values[:, step]
        known = ~np.isnan(now)
        total = np.where(known, decay * total + (1 - decay) * np.where(known, now, 0.0), total)
        weight = np.where(known, decay * weight + (1 - decay), weight)
        out[:, step] = total / np.where(weight > 0, weight, np.nan)
    return out


def _decayed_mean(values: Float[np.ndarray, " step"], decay: float) -> list[float]:
    """The same of a row, bit for bit: for a few, NumPy's calls would take 40 times the time."""
    total = weight = 0.0
    means: list[float] = []
    for now in values.tolist():
        if not math.isnan(now):
            total = decay * total + (1 - decay) * now
            weight = decay * weight + (1 - decay)
        means.append(total / weight if weight > 0 else math.nan)
    return means


def squash(values: np.ndarray) -> np.ndarray:
    """Values without what lies far out."""
    return np.clip(values, -_CLIP, _CLIP)


_DECAYS = (0.80, 0.94, 0.985)  # volatility of about a week, a month and a quarter


def change_features(change: Rows, floor: Rows | float) -> tuple[list[Rows], Rows]:
    """Features of changes, and the volatility that future ones are counted in.

    Change over volatility, the logarithm of its size, and of the volatilities of a week over that
    of a month, and of a month over that of a quarter. ``floor``: added to each variance.
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
