"""How much wider prices move on known days, such as those of earnings.

A covariate of zeros and ones marks days. The volatility of the others times a factor is that of the
marked ones; the factor is learned from all series of a panel, since each has few such days. Moves
on marked days are divided by it before they enter a series' volatility, which they would raise for
weeks, and forecasts of them are multiplied by it.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int, Shaped

from forecaster.series.calendar.ahead import times_after_rows
from forecaster.series.causal import Rows, change_features, shift
from forecaster.series.panel.covariates import Future
from forecaster.series.panel.panel import Histories, Panel

_OFTEN = 0.2  # of the rows; what is marked more often is no event
_FEWEST = 20  # marked rows of a panel from which a factor is learned
_PRIOR = 20.0  # rows that a factor of one counts for
_SMALLEST, _LARGEST = 0.2, 20.0  # factors
_PASSES = 3  # as the volatility depends on the factors, and they on it


def event_factors(panel: Panel) -> tuple[float, ...]:
    """Return for each future covariate by what it multiplies the volatility on the days it marks.

    It is 1 for a covariate that holds other numbers than 0 and 1, that marks more than a fifth of
    the rows, or fewer than 20. Empty for a panel without such covariates.

    ``panel``: of prices
    """
    if panel.future is None:
        return ()
    histories = Histories.of(panel)
    marks = _marks(panel.future, panel, histories.positions)
    known = histories.positions >= 0
    with np.errstate(invalid="ignore"):  # 0 and 1 alone, and seldom
        marking = ~((marks != 0) & (marks != 1) & np.isfinite(marks)).any((0, 1))
    marking &= (marks == 1).sum((0, 1)) <= _OFTEN * known.sum()
    marking &= (marks == 1).sum((0, 1)) >= _FEWEST
    factors = np.ones(len(marking))
    if not marking.any():
        return tuple(factors.tolist()) if len(factors) else ()
    z = np.log(histories.values[:, :, panel.channels.index(panel.target)])
    change = z - shift(z, 1)
    for _ in range(_PASSES):
        calm = change / _product(marks, factors)
        _, scale = change_features(calm, 1e-8)
        size = np.abs(change) / shift(scale, 1)
        usual = np.isfinite(size) & ~(marks == 1).any(-1)
        if not usual.any():
            break
        for column in np.flatnonzero(marking):
            own = np.isfinite(size) & (marks[..., column] == 1)
            count = int(own.sum())
            if count >= _FEWEST and np.median(size[usual]) > 0:
                ratio = np.clip(np.median(size[own]) / np.median(size[usual]), _SMALLEST, _LARGEST)
                factors[column] = np.exp(np.log(ratio) * count / (count + _PRIOR))
    return tuple(factors.tolist())


def event_volatility(
    factors: Sequence[float],
    future: Future,
    panel: Panel,
    positions: Int[np.ndarray, "series step"],
    horizon: int,
) -> tuple[Rows, Float[np.ndarray, "series step horizon"]]:
    """Return what events multiply the volatility by.

    First at each step itself, then over the steps from it to each horizon, in units of the root of
    the number of steps.

    - ``factors``: of :func:`event_factors`
    - ``positions``: of steps on the panel's time axis; -1: padding
    """
    own = _product(_marks(future, panel, positions), np.array(factors))
    ahead = np.ones((*positions.shape, horizon))
    for row, name in enumerate(panel.ids):
        there = positions[row] >= 0
        times = times_after_rows(panel.times[positions[row, there]], horizon)
        marks = future.at(name, times.ravel()).reshape(*times.shape, -1)
        ahead[row, there] = _product(marks, np.array(factors))
    steps = np.arange(1, horizon + 1)
    return own, np.sqrt(np.cumsum(ahead**2, axis=-1) / steps)


def checked_factors(factors: Sequence[float], columns: Sequence[str]) -> tuple[float, ...]:
    """Return the factors that a file holds. Raises ValueError unless there are some or none."""
    read = tuple(map(float, factors))
    if len(read) not in (0, len(columns)) or not all(
        _SMALLEST <= factor <= _LARGEST for factor in read
    ):
        raise ValueError(f"transform: events: expected {len(columns)} factors or none; got {read}")
    return read


def _marks(
    future: Future, panel: Panel, positions: Int[np.ndarray, "series step"]
) -> Float[np.ndarray, "series step column"]:
    """Return the covariates at the steps of each series; NaN where one is not known."""
    out = np.full((*positions.shape, len(future.columns)), np.nan)
    for row, name in enumerate(panel.ids):
        there = positions[row] >= 0
        times: Shaped[np.ndarray, " step"] = panel.times[positions[row, there]]
        out[row, there] = future.at(name, times)
    return out


def _product(
    marks: Float[np.ndarray, "*shape column"], factors: Float[np.ndarray, " column"]
) -> Float[np.ndarray, "*shape"]:
    """Return the product of the factors of all covariates that mark each step."""
    return np.where(marks == 1, factors, 1.0).prod(-1)
