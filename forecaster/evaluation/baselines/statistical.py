"""Exponential smoothing, Theta and methods for demand, by :mod:`forecaster.classical`.

A model is estimated on the data known at the first origin with enough of them, and applied
unchanged to later data, like the networks. Its quantiles are normal; their deviation is the root
mean square of all errors ``h`` steps ahead that are known at an origin. So bands hold even where a
model is wrong; but some of the errors are those it was fitted to.

``ets``, ``theta`` and ``ces`` take all series at once, and return forecasts of each, like the
functions of :mod:`forecaster.evaluation.baselines.simple`.

``croston``, ``sba``, ``tsb`` and ``adida`` forecast the mean demand. Series of whole numbers get
the quantiles of a negative binomial distribution with this mean and the mean square of the errors
known at the origin; other series get those of a normal distribution, none of them below zero. They
raise ValueError for a series with values below zero, which are no demand.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

import numpy as np
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
from forecaster.evaluation.baselines.simple import Job, taken
from forecaster.forecasting import smallest_count

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
