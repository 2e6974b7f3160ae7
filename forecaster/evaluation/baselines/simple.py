"""Baselines that need no library and no training.

Each takes one series, a :class:`Job`. It returns forecasts (origin, horizon, quantile) in the units
of the series, each made only from the steps up to its origin. Series above zero are forecast in
logarithms.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import ndtri

WINDOW = 250
"""Number of changes that empirical quantiles are taken from."""
DECAY = 0.94
"""Decay of the variance for daily data; RiskMetrics Technical Document, J.P. Morgan (1996)."""
_LEAST = 1e-2  # share of the mean variance; a session without trade has less


class Job(NamedTuple):
    """One series to forecast.

    - ``y`` (step,): its values; ``origins``: the steps to forecast from, in order
    - ``horizon``: the number of steps ahead; ``quantiles``: the probabilities wanted, ascending
    - ``season``: the number of steps in a season
    - ``growth``: of its mean from one step to the next, as a logarithm; NaN: a baseline's own
    - ``variance`` (step,): of each session, for a baseline that sees ranges
    """

    y: np.ndarray
    origins: np.ndarray
    horizon: int
    quantiles: np.ndarray
    season: int
    growth: float = math.nan
    variance: np.ndarray | None = None


def logarithmic(y: np.ndarray) -> bool:
    """Return whether a series is forecast in logarithms."""
    return bool((y > 0).all())


def logarithms(y: np.ndarray) -> np.ndarray:
    """Return the logarithms of prices. Raises ValueError for other series."""
    if not logarithmic(y):
        raise ValueError("values of zero or below have no range in logarithms")
    return np.log(y)


def floored(job: Job) -> np.ndarray:
    """Return the variances (step,) of a job above zero, so that their logarithms are numbers.

    Raises ValueError where nothing changes up to the first origin.
    """
    assert job.variance is not None
    mean = float(job.variance[1 : job.origins[0] + 1].mean())
    if not mean > 0:
        raise ValueError("nothing changes before the first cutoff")
    return np.maximum(job.variance, _LEAST * mean)


def naive(job: Job) -> np.ndarray:
    """Forecast the last value, with the bands of a random walk of normal steps."""
    z, back = taken(job.y)
    steps = np.diff(z)
    deviation = np.sqrt(_so_far(steps**2, job.origins - 1))
    return back(_normal(job, z, deviation))


def drift(job: Job) -> np.ndarray:
    """Continue from the last value by the mean step; Hyndman & Athanasopoulos (2021), 5.2."""
    (z, back), origins = taken(job.y), job.origins
    steps = np.diff(z)
    mean = _so_far(steps, origins - 1)
    variance = _so_far(steps**2, origins - 1) - mean**2
    ahead = np.arange(1, job.horizon + 1)
    spread = np.sqrt(np.maximum(variance, 0.0)[:, None] * ahead * (1 + ahead / origins[:, None]))
    middle = z[origins][:, None] + mean[:, None] * ahead
    return back(middle[..., None] + spread[..., None] * ndtri(job.quantiles))


def seasonal_naive(job: Job) -> np.ndarray:
    """Forecast the value one season earlier, with the variance of seasonal differences so far."""
    (z, back), origins, season = taken(job.y), job.origins, job.season
    ahead = np.arange(1, job.horizon + 1)
    seasons = -(-ahead // season)
    step = origins[:, None] + ahead - season * seasons
    middle = np.where(step >= 0, z[np.maximum(step, 0)], np.nan)
    differences = z[season:] - z[:-season] if len(z) > season else np.zeros(0)
    deviation = np.sqrt(_so_far(differences**2, origins - season))
    spread = deviation[:, None] * np.sqrt(seasons)
    return back(middle[..., None] + spread[..., None] * ndtri(job.quantiles))


def empirical(job: Job) -> np.ndarray:
    """Forecast the last value, with the quantiles of the latest 250 changes over the horizon."""
    z, back = taken(job.y)
    out = np.full((len(job.origins), job.horizon, len(job.quantiles)), np.nan)
    for h in range(1, job.horizon + 1):
        changes = z[h:] - z[:-h]  # changes[i] is known at step i + h
        for position, origin in enumerate(job.origins):
            until = max(0, origin - h + 1)
            known = changes[max(0, until - WINDOW) : until]
            if len(known) > 1:
                out[position, h - 1] = z[origin] + np.quantile(known, job.quantiles)
    return back(out)


def ewma(job: Job) -> np.ndarray:
    """Forecast the last value, with normal bands of an exponentially weighted variance."""
    z, back = taken(job.y)
    variance = pd.Series(np.diff(z) ** 2).ewm(alpha=1 - DECAY).mean().to_numpy()
    deviation = np.sqrt(np.concatenate([[np.nan], variance])[job.origins])
    return back(_normal(job, z, deviation))


def taken(y: np.ndarray) -> tuple[np.ndarray, Callable[[np.ndarray], np.ndarray]]:
    """Return the series as it is forecast, in logarithms or not, and the function back."""
    return (np.log(y), np.exp) if logarithmic(y) else (np.asarray(y, float), lambda z: z)


def _normal(job: Job, z: np.ndarray, deviation: np.ndarray) -> np.ndarray:
    """Return normal quantiles of sums of independent steps, (origin, horizon, quantile)."""
    spread = deviation[:, None] * np.sqrt(np.arange(1, job.horizon + 1))
    return z[job.origins][:, None, None] + spread[..., None] * ndtri(job.quantiles)


def _so_far(values: np.ndarray, last: np.ndarray) -> np.ndarray:
    """Return the mean of all values up to each position in ``last``; NaN where there are none."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    count = np.clip(last + 1, 0, len(values))
    with np.errstate(invalid="ignore", divide="ignore"):
        return sums[count] / np.where(count > 0, count, np.nan)
