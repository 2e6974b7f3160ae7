"""Exponential smoothing, Theta and methods for demand, by :mod:`forecaster.classical`.

A model is estimated on the data known at the first origin with enough of them, and applied
unchanged to later data, like the networks. Its quantiles are normal; their deviation is the root
mean square of all errors ``h`` steps ahead that are known at an origin. So bands hold even where a
model is wrong; but some of the errors are those it was fitted to.

``ets``, ``theta`` and ``ces`` take all series at once. ``horizon`` and ``quantiles``: as of
:mod:`forecaster.evaluation.baselines.simple`; so is what they return for each series.

``croston``, ``sba``, ``tsb`` and ``adida`` forecast the mean demand. Series of whole numbers get
the quantiles of a negative binomial distribution with this mean and the mean square of the errors
known at the origin; other series get those of a normal distribution, none of them below zero. They
raise ValueError for a series with values below zero, which are no demand.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Float, Int
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
from forecaster.evaluation.baselines.simple import taken
from forecaster.forecasting import smallest_count

_FEWEST = 4  # errors that a deviation is taken from
_FEWEST_VALUES = 5  # values that a model needs
_UNSETTLED = 3  # first steps whose forecasts do not count: Theta has no line yet

Row: TypeAlias = Float[np.ndarray, " step"]


class Series(NamedTuple):
    """A series to forecast: its values, the steps to forecast from, and the steps in a season."""

    y: Row
    origins: Int[np.ndarray, " origin"]
    season: int

    @property
    def known(self) -> int:
        """The number of first values that the model of the series is estimated on.

        These are the values known at the first origin with enough of them. At earlier origins no
        error is known and no forecast is made; so no forecast comes from a model that knows later
        values.
        """
        enough = self.origins[self.origins >= _FEWEST_VALUES - 1]
        return int(enough[0] if len(enough) else self.origins[0]) + 1


Ahead: TypeAlias = Callable[[list[Row], list[Row], int], list[Float[np.ndarray, "step horizon"]]]
"""Returns the forecasts made at every step, from rows, their known parts and a season."""


def ets(series: Sequence[Series], horizon: int, quantiles: np.ndarray) -> list[np.ndarray]:
    """Forecast by exponential smoothing, averaged over its best forms; Hyndman et al. (2008)."""

    def ahead(rows: list[Row], known: list[Row], season: int) -> list[np.ndarray]:
        return ets_ahead(rows, fit_ets(known, season), [len(row) for row in known], horizon)

    return _forecast(ahead, series, quantiles, _from_first)


def theta(series: Sequence[Series], horizon: int, quantiles: np.ndarray) -> list[np.ndarray]:
    """Forecast by the dynamic optimised Theta model.

    Fiorucci et al. (2016), International Journal of Forecasting 32.
    """

    def ahead(rows: list[Row], known: list[Row], season: int) -> list[np.ndarray]:
        return theta_ahead(rows, fit_theta(known, season), horizon)

    return _forecast(ahead, series, quantiles, _from_first)


def ces(series: Sequence[Series], horizon: int, quantiles: np.ndarray) -> list[np.ndarray]:
    """Forecast by complex exponential smoothing.

    Svetunkov, Kourentzes & Ord (2022), Naval Research Logistics 69.
    """

    def ahead(rows: list[Row], known: list[Row], season: int) -> list[np.ndarray]:
        return ces_ahead(rows, fit_ces(known, season), horizon)

    return _forecast(ahead, series, quantiles, _smoothed)  # its trend is a share of the level


def _forecast(
    ahead: Ahead,
    series: Sequence[Series],
    quantiles: np.ndarray,
    smoothed: Callable[[np.ndarray], Row],
) -> list[np.ndarray]:
    """Return the quantiles of each series; NaN where too few values are known."""
    out = [np.empty(0)] * len(series)
    for season, members in _by_season(series):
        rows = [smoothed(series[where].y) for where in members]
        known = [row[: series[where].known] for where, row in zip(members, rows, strict=True)]
        for where, z, made in zip(members, rows, ahead(rows, known, season), strict=True):
            out[where] = _with_errors(series[where], z, made, quantiles)
    return out


def _by_season(series: Sequence[Series]) -> Iterator[tuple[int, list[int]]]:
    """Yield each season, and the positions of the series that have it."""
    for season in sorted({one.season for one in series}):
        yield season, [where for where, one in enumerate(series) if one.season == season]


def _smoothed(y: np.ndarray) -> np.ndarray:
    return taken(y)[0]


def _from_first(y: np.ndarray) -> np.ndarray:
    """Return the series to smooth minus its first value, so that no second logarithm is taken."""
    return _smoothed(y) - _smoothed(y)[0]


def _with_errors(
    series: Series, z: Row, made: Float[np.ndarray, "step horizon"], quantiles: np.ndarray
) -> Float[np.ndarray, "origin horizon quantile"]:
    """Return normal quantiles of a series around its smoothed forecasts, in its own units."""
    spread = deviations(z, made)[series.origins, :, None] * ndtri(quantiles)
    units, back = taken(series.y)
    return back(made[series.origins, :, None] + spread + (units[0] - z[0]))


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


def _of_demand(
    name: str,
    y: np.ndarray,
    origins: np.ndarray,
    horizon: int,
    quantiles: np.ndarray,
    season: int,
) -> np.ndarray:
    known = y[: origins[0] + 1]
    if (known < 0).any():
        raise ValueError("its values below zero are no demand")
    demand = np.maximum(y, 0.0)
    made = np.repeat(INTERMITTENT[name](demand)[:, None], horizon, axis=1)
    mean, deviation = (of[origins][..., None] for of in (made, deviations(y, made)))
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
