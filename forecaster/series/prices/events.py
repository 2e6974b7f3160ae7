"""Learn how much wider prices move on known days, such as days of earnings.

A covariate of zeros and ones marks days. On marked days the volatility is that of other days times
a factor, which is learned from all series of a panel, since each has few such days. Moves on marked
days are divided by the factor before they enter a series' volatility, which they would otherwise
raise for weeks. The widths of forecasts for marked days are multiplied by it.
"""

from collections.abc import Sequence
from typing import Annotated, TypeAlias

import numpy as np
from jaxtyping import Bool, Float, Int
from msgspec import Meta

from forecaster.series.calendar.inferring import times_after_rows
from forecaster.series.causal import Rows, change_features, shift
from forecaster.series.panel.histories import Histories
from forecaster.series.panel.panel import Panel

_OFTEN = 0.2  # share of the rows; a covariate that marks more rows is no event
_FEWEST = 20  # marked rows of a panel from which a factor is learned
_PRIOR = 20.0  # weight of a factor of one, in rows
_SMALLEST, _LARGEST = 0.2, 20.0  # factors
_PASSES = 3  # rounds of estimation: volatility and factors depend on each other
_FLOOR = 1e-8  # added to each variance

Factor: TypeAlias = Annotated[float, Meta(ge=_SMALLEST, le=_LARGEST)]


def event_factors(panel: Panel) -> tuple[float, ...]:
    """Return for each future covariate the factor of the volatility on the days that it marks.

    It is 1 for a covariate that holds other numbers than 0 and 1 up to the panel's end, that marks
    more than a fifth of the rows, or fewer than 20. Empty for a panel without future covariates.

    ``panel``: a panel of prices
    """
    if panel.future is None:
        return ()
    factors = np.ones(len(panel.future.columns))
    # Rows of other series, which may be listed later, do not count.
    of_each = [panel.future.at(name, panel.times) for name in panel.ids]
    zeros_and_ones = [((own == 0) | (own == 1) | np.isnan(own)).all(0) for own in of_each]
    columns = np.flatnonzero(np.all(zeros_and_ones, axis=0))
    histories = Histories.of(panel)
    marks = _marks(panel, histories.positions, columns)
    counts = marks.sum((0, 1))
    seldom = (counts >= _FEWEST) & (counts <= _OFTEN * (histories.positions >= 0).sum())
    columns, marks = columns[seldom], marks[..., seldom]
    if not len(columns):
        return tuple(factors.tolist())
    z = np.log(histories.channel(panel.target))
    change = z - shift(z, 1)
    for _ in range(_PASSES):
        factors[columns] = _estimated(change, marks, factors[columns])
    return tuple(factors.tolist())


def event_volatility(
    factors: Sequence[float], panel: Panel, positions: Int[np.ndarray, "series step"], horizon: int
) -> tuple[Rows, Float[np.ndarray, "series step horizon"]]:
    """Return the factors of events on the volatility of each step, and up to each horizon.

    Factors up to a horizon are relative to the volatility over as many steps without an event.

    - ``factors``: from :func:`event_factors`
    - ``positions``: positions of steps on the panel's time axis; -1: padding
    """
    assert panel.future is not None
    known = np.array(factors)
    columns = np.flatnonzero(known != 1)
    own = _product(_marks(panel, positions, columns), known[columns])
    ahead = np.ones((*positions.shape, horizon))
    for row, name in enumerate(panel.ids):
        there = positions[row] >= 0
        times = times_after_rows(panel.times[positions[row, there]], horizon)
        marks = panel.future.at(name, times.ravel())[:, columns] == 1
        ahead[row, there] = _product(marks.reshape(*times.shape, -1), known[columns])
    steps = np.arange(1, horizon + 1)
    return own, np.sqrt(np.cumsum(ahead**2, axis=-1) / steps)


def _estimated(
    change: Rows,
    marks: Bool[np.ndarray, "series step column"],
    factors: Float[np.ndarray, " column"],
) -> Float[np.ndarray, " column"]:
    """Return better factors: median moves on marked days, divided by those on other days.

    ``change``: change of the logarithm at each step; ``factors``: the best so far
    """
    _, scale = change_features(change / _product(marks, factors), _FLOOR)
    size = np.abs(change) / shift(scale, 1)
    known = np.isfinite(size)
    others = size[known & ~marks.any(-1)]
    usual = float(np.median(others)) if len(others) else 0.0
    if not usual > 0:  # prices that rarely change
        return factors
    better = np.ones(len(factors))
    for column in range(len(factors)):
        own = size[known & marks[..., column]]
        if len(own) >= _FEWEST:
            ratio = np.clip(np.median(own) / usual, _SMALLEST, _LARGEST)
            better[column] = np.exp(np.log(ratio) * len(own) / (len(own) + _PRIOR))
    return better


def _marks(
    panel: Panel, positions: Int[np.ndarray, "series step"], columns: Int[np.ndarray, " column"]
) -> Bool[np.ndarray, "series step column"]:
    """Return which steps of each series some covariates mark."""
    assert panel.future is not None
    out = np.zeros((*positions.shape, len(columns)), bool)
    for row, name in enumerate(panel.ids):
        there = positions[row] >= 0
        out[row, there] = panel.future.at(name, panel.times[positions[row, there]])[:, columns] == 1
    return out


def _product(
    marks: Bool[np.ndarray, "*shape column"], factors: Float[np.ndarray, " column"]
) -> Float[np.ndarray, "*shape"]:
    """Return the product of the factors of all covariates that mark each step."""
    return np.where(marks, factors, 1.0).prod(-1)
