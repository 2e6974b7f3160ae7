"""What networks and volatilities of prices see beside changes: columns, events and the market.

Features come from open, high, low, close and volume. Among them is how active a stock was at the
same time of earlier quarters, as companies report by a calendar. A day of earnings, with its volume
and its jump, recurs 13, 26, 39 and 52 weeks later, mostly on the same weekday. The market knows the
day in advance; a network learns it from past prices.

A covariate of zeros and ones marks events, such as days of earnings. On marked days the volatility
is that of other days times a factor, which is learned from all series of a panel, since each has
few such days. Moves on marked days are divided by the factor before they enter a series'
volatility, which they would otherwise raise for weeks. The widths of forecasts for marked days are
multiplied by it.

The market is a declared index such as SPY, a series that the user names, never a mean over the
panel: a series that is added or removed must not change the features of another.
"""

import functools
from collections.abc import Sequence
from typing import Annotated, TypeAlias

import numpy as np
from jaxtyping import Bool, Float, Int
from msgspec import Meta

from forecaster.errors import DataError, Kind, Skipped
from forecaster.series.calendar.inferring import times_after_rows
from forecaster.series.calendar.times import show_time
from forecaster.series.causal import FEW_CHANGES, Rows, change_features, decayed_mean, shift, squash
from forecaster.series.panel.histories import Histories
from forecaster.series.panel.panel import Panel

PRICE_FEATURES = 9
"""Features of :func:`price_features` one row ahead; one more where the horizon is longer."""
WEEKS = (13, 26, 39, 52)
_FARTHEST = 20  # rows ahead, at most


def usual_volatility(panel: Panel) -> float | None:
    """Return the median volatility of the series of a panel, from one row to the next.

    None where no series has changes enough.
    """
    found = [
        float(np.sqrt(np.square(np.diff(np.log(values))).mean()))
        for values, _ in panel.rows()
        if len(values) > FEW_CHANGES
    ]
    return float(np.median(found)) if found and np.median(found) > 0 else None


def price_features(
    panel: Panel, histories: Histories, change: Rows, scale: Rows, horizon: int
) -> list[Rows]:
    """Return features of each session; NaN where a column is missing.

    The number of features does not depend on the columns, so that no series changes the network of
    another. Volatilities from the range of a session are more exact than those from closes:
    Parkinson (1980) and Garman & Klass (1980), Journal of Business 53. They have several decays,
    like the daily, weekly and monthly volatilities of Corsi's heterogeneous autoregression (2009),
    Journal of Financial Econometrics 7. The mean of downward moves stands for leverage, the volume
    on the anniversaries of the days ahead for earnings. Tried without gain: Rogers & Satchell's
    volatility, the volatility of years, mean moves, the weekday, the end of the month, and the days
    since a jump.
    """
    before = shift(scale, 1)
    volume = np.log(np.maximum(histories.channel("volume"), 1.0))
    surprise = squash(volume - shift(decayed_mean(volume, 0.94), 1))
    active = active_days(np.clip(surprise, -2, 2), panel.times, histories.positions, horizon)
    open_, high, low, close = map(histories.channel, ("open", "high", "low", "close"))
    # Within a day, splits and dividends have no effect.
    within = np.log(close / open_)
    overnight = change - within
    span = np.log(high / low)
    parkinson = span**2 / (4 * np.log(2))
    garman_klass = np.maximum(0.5 * span**2 - (2 * np.log(2) - 1) * within**2, 0.0)
    downward = np.minimum(squash(change / before), 0.0) ** 2

    def volatility(variance: Rows, decay: float) -> Rows:
        return squash(np.log(np.sqrt(decayed_mean(variance, decay) + 1e-8) / scale))

    return [
        np.log(span / before + 0.1),
        squash(within / before),
        surprise,
        squash(overnight / before),
        volatility(parkinson, 0.6),
        volatility(parkinson, 0.94),
        volatility(garman_klass, 0.8),
        decayed_mean(downward, 0.94),
        *(2 * each for each in active),
    ]


def active_days(
    activity: Rows, times: np.ndarray, positions: Int[np.ndarray, "series step"], horizon: int
) -> list[Rows]:
    """Return the activity on the anniversaries of the rows ahead, averaged over :data:`WEEKS`.

    - ``activity``: how much happened at each step, such as the surprise in its volume; NaN where
      unknown
    - ``times``: the time axis; whole numbers have no anniversaries
    - ``positions``: positions of the steps on the time axis; -1 in the padding
    - ``horizon``: the number of rows ahead

    The first feature is the activity of the next row, averaged with its neighbours at half the
    weight. Where the horizon is longer than one row, the second is the highest activity of the
    later rows. NaN where no anniversary is known.
    """
    features = [np.full(activity.shape, np.nan) for _ in range(min(2, horizon))]
    if times.dtype.kind != "M":
        return features
    alike: dict[bytes, list[int]] = {}  # series that have the same days
    for series, own in enumerate(positions):
        alike.setdefault(own.tobytes(), []).append(series)
    for rows in alike.values():
        begin = int((positions[rows[0]] < 0).sum())
        sources = _anniversaries(times[positions[rows[0], begin:]], min(horizon, _FARTHEST))
        values = np.pad(activity[rows, begin:], ((0, 0), (0, 1)), constant_values=np.nan)
        known = ~np.isnan(values)
        values[~known] = 0.0
        with np.errstate(invalid="ignore"):
            means = (
                sum(values[:, at] for at in weeks) / sum(known[:, at] for at in weeks)
                for weeks in sources
            )
            before, at, after = (next(means) for _ in range(3))
            features[0][rows, begin:] = before / 2 + at + after / 2
            if horizon > 1:
                features[1][rows, begin:] = functools.reduce(np.fmax, means, after)
    return features


def _anniversaries(times: np.ndarray, horizon: int) -> Int[np.ndarray, "offset week step"]:
    """Return the rows beside the latest one that is at least a number of weeks old, at each step.

    They are that row, the next one, and at least one more, up to a horizon. Where there is none, or
    it is later than the step, the number of rows stands for it.
    """
    before = [times - np.timedelta64(weeks, "W") for weeks in WEEKS]
    latest = np.stack([np.searchsorted(times, each, side="right") - 1 for each in before])
    rows = latest + np.arange(max(3, horizon + 1))[:, None, None]
    return np.where((latest >= 0) & (rows <= np.arange(len(times))), rows, len(times))


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
    histories = Histories.from_panel(panel)
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
    stated = panel.frequency if panel.frequency.stated else None
    for row, name in enumerate(panel.ids):
        there = positions[row] >= 0
        times = times_after_rows(panel.times[positions[row, there]], horizon, stated)
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


MARKET_FEATURES = 5  # of each index
_MOST_BEHIND = 3  # rows that a series may have after the latest of the index


def market_features(
    panel: Panel, positions: Int[np.ndarray, "series step"], scale: Rows
) -> list[Rows]:
    """Return features of each index at the steps of each series; NaN before its first row.

    They are those of :func:`change_features`, and the index's volatility over that of the series,
    from the latest row of the index at or before the time of the step.

    - ``positions``: positions of steps on the panel's time axis; -1: padding
    - ``scale``: the volatility of each series
    """
    made: list[Rows] = []
    times = panel.times
    for values, index_times in _observed(panel).values():
        if not len(values):
            made += [np.full(scale.shape, np.nan)] * MARKET_FEATURES
            continue
        z = np.log(values)[None]
        features, volatility = change_features(z - shift(z, 1), 1e-8)
        latest = np.searchsorted(index_times, times[positions], side="right") - 1
        known = (latest >= 0) & (positions >= 0)
        *own, volatility = (
            np.where(known, row[0, latest], np.nan) for row in (*features, volatility)
        )
        made += [*own, squash(np.log(volatility / scale))]
    return made


def behind_market(panel: Panel) -> dict[str, Skipped]:
    """Return the series with more than a few rows after an index's latest, with the reason."""
    reasons: dict[str, Skipped] = {}
    for name, (_, index_times) in _observed(panel).items():
        for series, times in panel.times_of_rows().items():
            if series in reasons or not len(times):
                continue
            latest = show_time(times[-1])
            if not len(index_times):
                reasons[series] = Skipped(Kind.BEFORE_MARKET, market=name, first=latest)
            elif (times > index_times[-1]).sum() > _MOST_BEHIND:
                end = show_time(index_times[-1])
                reasons[series] = Skipped(Kind.BEHIND_MARKET, market=name, first=latest, last=end)
    return reasons


def check_market(panel: Panel) -> None:
    """Raise DataError for a series of :func:`behind_market`."""
    for name, reason in behind_market(panel).items():
        raise DataError(f"{name}: {reason}")


def _observed(panel: Panel) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return the values above zero of each index, and their times."""
    if panel.market is None:
        return {}
    values = panel.market.channel(panel.target)
    seen = panel.market.mask & (values > 0)
    return {
        name: (own[there], panel.market.times[there])
        for name, own, there in zip(panel.market.ids, values, seen, strict=True)
    }
