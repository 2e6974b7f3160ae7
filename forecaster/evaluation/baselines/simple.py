"""Baselines that need no library and no training.

Each takes one series ``y`` (step,), the ``origins`` to forecast from (steps, in order), the
horizon, the ``quantiles`` wanted and the length of a season in steps. It returns forecasts (origin,
horizon, quantile) in the units of ``y``, each made only from the steps up to its origin. Series
above zero are forecast in logarithms.
"""

from collections.abc import Callable

import numpy as np
import pandas as pd
from scipy.special import ndtri

WINDOW = 250
"""Number of changes that empirical quantiles are taken from."""
DECAY = 0.94
"""Decay of the variance for daily data; RiskMetrics Technical Document, J.P. Morgan (1996)."""
_LEAST = 1e-2  # share of the mean variance; a session without trade has less


def logarithmic(y: np.ndarray) -> bool:
    """Return whether a series is forecast in logarithms."""
    return bool((y > 0).all())


def logarithms(y: np.ndarray) -> np.ndarray:
    """Return the logarithms of prices. Raises ValueError for other series."""
    if not logarithmic(y):
        raise ValueError("values of zero or below have no range in logarithms")
    return np.log(y)


def floored(variance: np.ndarray, known: int) -> np.ndarray:
    """Return variances (step,) above zero, whose logarithm is a number.

    ``known``: the first step that one forecasts from. Raises ValueError where nothing changes.
    """
    mean = float(variance[1 : known + 1].mean())
    if not mean > 0:
        raise ValueError("nothing changes before the first cutoff")
    return np.maximum(variance, _LEAST * mean)


def naive(
    y: np.ndarray, origins: np.ndarray, horizon: int, quantiles: np.ndarray, season: int
) -> np.ndarray:
    """Forecast the last value, with the bands of a random walk of normal steps."""
    z, back = taken(y)
    steps = np.diff(z)
    deviation = np.sqrt(_so_far(steps**2, origins - 1))
    return back(_normal(z[origins], deviation, horizon, quantiles))


def drift(
    y: np.ndarray, origins: np.ndarray, horizon: int, quantiles: np.ndarray, season: int
) -> np.ndarray:
    """Continue from the last value by the mean step; Hyndman & Athanasopoulos (2021), 5.2."""
    z, back = taken(y)
    steps = np.diff(z)
    mean = _so_far(steps, origins - 1)
    variance = _so_far(steps**2, origins - 1) - mean**2
    ahead = np.arange(1, horizon + 1)
    spread = np.sqrt(np.maximum(variance, 0.0)[:, None] * ahead * (1 + ahead / origins[:, None]))
    middle = z[origins][:, None] + mean[:, None] * ahead
    return back(middle[..., None] + spread[..., None] * ndtri(quantiles))


def seasonal_naive(
    y: np.ndarray, origins: np.ndarray, horizon: int, quantiles: np.ndarray, season: int
) -> np.ndarray:
    """Forecast the value one season earlier, with the variance of seasonal differences so far."""
    z, back = taken(y)
    ahead = np.arange(1, horizon + 1)
    seasons = -(-ahead // season)
    step = origins[:, None] + ahead - season * seasons
    middle = np.where(step >= 0, z[np.maximum(step, 0)], np.nan)
    differences = z[season:] - z[:-season] if len(z) > season else np.zeros(0)
    deviation = np.sqrt(_so_far(differences**2, origins - season))
    spread = deviation[:, None] * np.sqrt(seasons)
    return back(middle[..., None] + spread[..., None] * ndtri(quantiles))


def empirical(
    y: np.ndarray, origins: np.ndarray, horizon: int, quantiles: np.ndarray, season: int
) -> np.ndarray:
    """Forecast the last value, with the quantiles of the latest 250 changes over the horizon."""
    z, back = taken(y)
    out = np.full((len(origins), horizon, len(quantiles)), np.nan)
    for h in range(1, horizon + 1):
        changes = z[h:] - z[:-h]  # changes[i] is known at step i + h
        for position, origin in enumerate(origins):
            until = max(0, origin - h + 1)
            known = changes[max(0, until - WINDOW) : until]
            if len(known) > 1:
                out[position, h - 1] = z[origin] + np.quantile(known, quantiles)
    return back(out)


def ewma(
    y: np.ndarray, origins: np.ndarray, horizon: int, quantiles: np.ndarray, season: int
) -> np.ndarray:
    """Forecast the last value, with normal bands of an exponentially weighted variance."""
    z, back = taken(y)
    variance = pd.Series(np.diff(z) ** 2).ewm(alpha=1 - DECAY).mean().to_numpy()
    deviation = np.sqrt(np.concatenate([[np.nan], variance])[origins])
    return back(_normal(z[origins], deviation, horizon, quantiles))


def taken(y: np.ndarray) -> tuple[np.ndarray, Callable[[np.ndarray], np.ndarray]]:
    """Return the series as it is forecast, in logarithms or not, and the function back."""
    return (np.log(y), np.exp) if logarithmic(y) else (np.asarray(y, float), lambda z: z)


def _normal(
    middle: np.ndarray, deviation: np.ndarray, horizon: int, quantiles: np.ndarray
) -> np.ndarray:
    """Return normal quantiles of sums of independent steps, (origin, horizon, quantile)."""
    spread = deviation[:, None] * np.sqrt(np.arange(1, horizon + 1))
    return middle[:, None, None] + spread[..., None] * ndtri(quantiles)


def _so_far(values: np.ndarray, last: np.ndarray) -> np.ndarray:
    """Return the mean of all values up to each position in ``last``; NaN where there are none."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    count = np.clip(last + 1, 0, len(values))
    with np.errstate(invalid="ignore", divide="ignore"):
        return sums[count] / np.where(count > 0, count, np.nan)
