"""Baselines that need no library and no training, and those of :mod:`forecaster.classical`.

Each takes one series, a :class:`Job`; ``ets``, ``theta`` and ``ces`` take all at once. They return
forecasts (origin, horizon, quantile) in the units of the series, each made only from the steps up
to its origin. The simple ones forecast series above zero in logarithms.

Exponential smoothing, Theta and the methods for demand are estimated on the data known at the first
origin with enough of them, and applied unchanged to later data, like the networks. Quantiles are
normal; their deviation is the root mean square of all errors ``h`` steps ahead that are known at an
origin. So bands hold even where a model is wrong; but some of the errors are those it was fitted
to.

``croston``, ``sba``, ``tsb`` and ``adida`` forecast the mean demand. Series of whole numbers get
the quantiles of a negative binomial distribution with this mean and the mean square of the errors
known at the origin; other series get those of a normal distribution, none of them below zero. They
raise ValueError for a series with values below zero, which are no demand.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.special import ndtri

from forecaster.classical import (
    INTERMITTENT,
    ces_ahead,
    ets_ahead,
    fit_ces,
    fit_ets,
    fit_theta,
    theta_ahead,
)
from forecaster.forecasting import smallest_count

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


_FEWEST = 4  # errors that a deviation is taken from
_FEWEST_VALUES = 5  # values that a model needs
_UNSETTLED = 3  # first steps whose forecasts do not count: Theta has no line yet

Row: TypeAlias = Float[np.ndarray, " step"]


Ahead: TypeAlias = Callable[[list[Row], list[Row], int], list[Float[np.ndarray, "step horizon"]]]
"""Returns the forecasts made at every step, from rows, their known parts and a season."""


def ets(jobs: Sequence[Job]) -> list[np.ndarray]:
    """Forecast by exponential smoothing, averaged over its best forms; Hyndman et al. (2008)."""

    def ahead(rows: list[Row], known: list[Row], season: int) -> list[np.ndarray]:
        return ets_ahead(rows, fit_ets(known, season), [len(row) for row in known], jobs[0].horizon)

    return _forecast(ahead, jobs, _from_first)


def theta(jobs: Sequence[Job]) -> list[np.ndarray]:
    """Forecast by the dynamic optimised Theta model.

    Fiorucci et al. (2016), International Journal of Forecasting 32.
    """

    def ahead(rows: list[Row], known: list[Row], season: int) -> list[np.ndarray]:
        return theta_ahead(rows, fit_theta(known, season), jobs[0].horizon)

    return _forecast(ahead, jobs, _from_first)


def ces(jobs: Sequence[Job]) -> list[np.ndarray]:
    """Forecast by complex exponential smoothing.

    Svetunkov, Kourentzes & Ord (2022), Naval Research Logistics 69.
    """

    def ahead(rows: list[Row], known: list[Row], season: int) -> list[np.ndarray]:
        return ces_ahead(rows, fit_ces(known, season), jobs[0].horizon)

    return _forecast(ahead, jobs, _smoothed)  # its trend is a share of the level


def _forecast(
    ahead: Ahead, jobs: Sequence[Job], smoothed: Callable[[np.ndarray], Row]
) -> list[np.ndarray]:
    """Return the quantiles of each series; NaN where too few values are known."""
    out = [np.empty(0)] * len(jobs)
    for season in sorted({job.season for job in jobs}):
        members = [where for where, job in enumerate(jobs) if job.season == season]
        rows = [smoothed(jobs[where].y) for where in members]
        known = [row[: _known(jobs[where])] for where, row in zip(members, rows, strict=True)]
        for where, z, made in zip(members, rows, ahead(rows, known, season), strict=True):
            out[where] = _with_errors(jobs[where], z, made)
    return out


def _known(job: Job) -> int:
    """Return the number of first values that the model of a series is estimated on.

    These are the values known at the first origin with enough of them. At earlier origins no error
    is known and no forecast is made; so no forecast comes from a model that knows later values.
    """
    enough = job.origins[job.origins >= _FEWEST_VALUES - 1]
    return int(enough[0] if len(enough) else job.origins[0]) + 1


def _smoothed(y: np.ndarray) -> np.ndarray:
    return taken(y)[0]


def _from_first(y: np.ndarray) -> np.ndarray:
    """Return the series to smooth minus its first value, so that no second logarithm is taken."""
    return _smoothed(y) - _smoothed(y)[0]


def _with_errors(
    job: Job, z: Row, made: Float[np.ndarray, "step horizon"]
) -> Float[np.ndarray, "origin horizon quantile"]:
    """Return normal quantiles of a series around its smoothed forecasts, in its own units."""
    spread = deviations(z, made)[job.origins, :, None] * ndtri(job.quantiles)
    units, back = taken(job.y)
    return back(made[job.origins, :, None] + spread + (units[0] - z[0]))


def deviations(
    z: Row, made: Float[np.ndarray, "step horizon"]
) -> Float[np.ndarray, "step horizon"]:
    """Return the deviation of forecasts made at each step, from errors known by then.

    Where hardly any errors are known for a number of steps ahead, the deviation for fewer steps is
    scaled up as for a random walk.
    """
    steps, horizon = made.shape
    out = np.full((steps, horizon), np.nan)
    number = np.arange(1, steps + 1)
    for ahead in range(1, horizon + 1):
        squares, first = np.zeros(steps), ahead + _UNSETTLED
        earlier = made[_UNSETTLED : max(_UNSETTLED, steps - ahead), ahead - 1]
        squares[first:] = np.square(z[first:] - earlier)
        count = np.maximum(number - first, 0)
        with np.errstate(invalid="ignore", divide="ignore"):
            known = np.sqrt(np.cumsum(squares) / count)
        if ahead > 1:
            fewer = out[:, ahead - 2] * np.sqrt(ahead / (ahead - 1))
            known = np.where(count >= _FEWEST, known, fewer)
        out[:, ahead - 1] = known
    return out


def _of_demand(name: str, job: Job) -> np.ndarray:
    y, quantiles = job.y, job.quantiles
    known = y[: job.origins[0] + 1]
    if (known < 0).any():
        raise ValueError("it has values below zero, which cannot be demand")
    made = np.repeat(INTERMITTENT[name](np.maximum(y, 0.0))[:, None], job.horizon, axis=1)
    mean, deviation = (of[job.origins][..., None] for of in (made, deviations(y, made)))
    if (known != np.rint(known)).any():
        return np.maximum(mean + deviation * ndtri(quantiles), 0.0)
    out = smallest_count(quantiles, mean, np.nan_to_num(deviation) ** 2)
    return np.where(np.isfinite(deviation), out, np.nan)


croston = partial(_of_demand, "croston")
"""The mean demand divided by the mean interval between demands; Croston (1972)."""
sba = partial(_of_demand, "sba")
"""95 % of Croston's forecast, which is too high; Syntetos & Boylan (2005)."""
tsb = partial(_of_demand, "tsb")
"""The mean demand times its probability; Teunter, Syntetos & Babai (2011)."""
adida = partial(_of_demand, "adida")
"""Sums over the mean interval, smoothed and spread evenly; Nikolopoulos et al. (2011)."""
