"""The dynamic optimised Theta model, of all series at once.

Fiorucci, Pellegrini, Louzada, Petropoulos & Koehler (2016), International Journal of Forecasting
32. The mean of a value is a smoothed level and a share of a line that is fitted anew to all values
before it::

    mu[t] = l[t-1] + (1 - 1/theta) ((1-a)^t A[t-1] + (1 - (1-a)^(t+1))/a B[t-1])

For a given smoothing parameter a this is linear in the initial level and in the share 1 - 1/theta,
so both are solved for exactly. Series with a season are adjusted first, by classical decomposition.
"""

from collections.abc import Sequence
from typing import Annotated, NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Float, Int
from msgspec import Meta

from forecaster.classical.ets import MOST_SEASON, Lengths, Values
from forecaster.classical.models import Functions
from forecaster.classical.rows import batches, linear_filter

Row: TypeAlias = Float[np.ndarray, " time"]
PerSeries: TypeAlias = Float[np.ndarray, " series"]

_SMOOTHING = np.linspace(0.1, 0.99, 31)
_UNSCORED = 3  # first errors, which do not count: the line has hardly been seen before them
_SEASONAL = 1.645  # a larger autocorrelation, in its standard errors, shows a season
_LEAST_FACTOR = 0.01  # smallest factor of a season; otherwise the pattern is added
_FEWEST = 4  # values


class Theta(NamedTuple):
    """The model of one series.

    - ``smoothing``: a
    - ``share``: the share of the line, 1 - 1/theta
    - ``level``: the level before the first value
    - ``pattern``: the pattern of the season, from the first value on; empty without a season
    - ``multiplied``: whether the pattern multiplies the adjusted values; otherwise it is added
    """

    smoothing: float
    share: float
    level: float
    pattern: Annotated[tuple[float, ...], Meta(max_length=MOST_SEASON)] = ()
    multiplied: bool = False


def fit_theta(rows: Sequence[Row], season: int) -> list[Theta | None]:
    """Return the model of each series with the least squared errors; None where it is too short.

    - ``rows``: the values of each series, without gaps
    - ``season``: steps in a season; 1 for none
    """
    fitted: list[Theta | None] = [None] * len(rows)
    patterns = [seasonal_pattern(row, season) for row in rows]
    adjusted = [_adjusted(row, *pattern) for row, pattern in zip(rows, patterns, strict=True)]
    for batch in batches(adjusted):
        smoothing, share, level = _least_squares(batch.values, batch.lengths)
        for row, where in enumerate(batch.where):
            if batch.lengths[row] >= _FEWEST:
                fitted[where] = Theta(
                    float(smoothing[row]), float(share[row]), float(level[row]), *patterns[where]
                )
    return fitted


def theta_ahead(
    rows: Sequence[Row], models: Sequence[Theta | None], horizon: int
) -> list[Float[np.ndarray, "time horizon"]]:
    """Return the forecasts made at every value of each series; NaN where there is no model.

    ``rows``: the values, which may go on after those that the models were fitted on.
    """
    out = [np.full((len(row), horizon), np.nan) for row in rows]
    there = [(where, model) for where, model in enumerate(models) if model is not None]
    adjusted = [_adjusted(rows[where], model.pattern, model.multiplied) for where, model in there]
    for batch in batches(adjusted):
        chosen = [there[position] for position in batch.where]
        made = _ahead(batch.values, [model for _, model in chosen], horizon)
        for row, (where, model) in enumerate(chosen):
            steps = len(rows[where])
            out[where] = made[row, :steps]
            if model.pattern:
                step = np.arange(steps)[:, None] + np.arange(1, horizon + 1)
                season = np.array(model.pattern)[step % len(model.pattern)]
                out[where] = out[where] * season if model.multiplied else out[where] + season
    return out


def seasonal_pattern(row: Row, season: int) -> tuple[tuple[float, ...], bool]:
    """Return the pattern of a season by classical decomposition, and whether it multiplies.

    Empty unless the autocorrelation at the season shows one (Fiorucci et al. 2016, section 3).
    """
    if season < 2 or len(row) < 2 * season + 1 or not _is_seasonal(row, season):
        return (), False
    middle, trend, part = _around_trend(row, season)
    if (row > 0).all():
        factors = np.bincount(part, middle / trend, season) / np.bincount(part, None, season)
        factors = factors / factors.mean()
        if factors.min() >= _LEAST_FACTOR:
            return tuple(factors.tolist()), True
    return tuple(seasonal_terms(row, season).tolist()), False


def seasonal_terms(row: Row, season: int) -> Float[np.ndarray, " season"]:
    """Return what a season adds, from the first value on, by classical decomposition.

    ``row``: at least two seasons
    """
    middle, trend, part = _around_trend(row, season)
    terms = np.bincount(part, middle - trend, season) / np.bincount(part, None, season)
    return terms - terms.mean()


def _around_trend(row: Row, season: int) -> tuple[Row, Row, Int[np.ndarray, " time"]]:
    """Return the values with a centred mean over a season, those means, and parts of the season."""
    weights = np.full(season, 1 / season)
    if season % 2 == 0:
        weights = np.concatenate([[0.5 / season], weights[1:], [0.5 / season]])
    trend = np.convolve(row, weights, "valid")
    begin = (len(weights) - 1) // 2
    return row[begin : begin + len(trend)], trend, (np.arange(len(trend)) + begin) % season


def _is_seasonal(row: Row, season: int) -> bool:
    centred = row - row.mean()
    squares = (centred**2).sum()
    if not squares > 0:
        return False
    lagged = [(centred[lag:] * centred[:-lag]).sum() / squares for lag in range(1, season + 1)]
    error = np.sqrt((1 + 2 * (np.array(lagged[:-1]) ** 2).sum()) / len(row))
    return bool(abs(lagged[-1]) > _SEASONAL * error)


def _adjusted(row: Row, pattern: tuple[float, ...], multiplied: bool) -> Row:  # noqa: FBT001
    if not pattern:
        return row
    season = np.array(pattern)[np.arange(len(row)) % len(pattern)]
    return row / season if multiplied else row - season


def _least_squares(values: Values, lengths: Lengths) -> tuple[PerSeries, PerSeries, PerSeries]:
    """Return smoothing, share and initial level of each series."""
    series, steps = values.shape
    intercept, slope, _ = _lines(values)
    at, before = np.arange(steps), np.pad(values[:, :-1], ((0, 0), (1, 0)))
    counted = (at >= _UNSCORED) & (at < lengths[:, None])
    least = np.full(series, np.inf)
    best = np.zeros((3, series))
    for smoothing in _SMOOTHING:
        smoothed = linear_filter([smoothing], [1.0, smoothing - 1], before, axis=1)
        fade = (1 - smoothing) ** at * counted
        line = _line(intercept, slope, smoothing, at) * counted
        target = (values - smoothed) * counted
        share = _share(target, fade, line)
        level = ((target - share[:, None] * line) * fade).sum(1) / ((fade**2).sum(1) + 1e-300)
        squares = ((target - level[:, None] * fade - share[:, None] * line) ** 2).sum(1)
        better = squares < least
        least = np.where(better, squares, least)
        best = np.where(better, [np.full(series, smoothing), share, level], best)
    return best[0], best[1], best[2]


def _share(target: Values, fade: Values, line: Values) -> PerSeries:
    """Return the line's share, between 0 and 1, in the best sum of a fading level and a line."""
    aa, ab, bb = (fade**2).sum(1), (fade * line).sum(1), (line**2).sum(1)
    ya, yb = (target * fade).sum(1), (target * line).sum(1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.nan_to_num(np.clip((aa * yb - ab * ya) / (aa * bb - ab**2), 0, 1))


def _lines(values: Values) -> tuple[Values, Values, Values]:
    """Return intercept and slope of the line through the values before each, and their mean."""
    series, steps = values.shape
    intercept, slope, mean = (np.zeros((series, steps + 1)) for _ in range(3))
    for step in range(steps):
        before = mean[:, step], slope[:, step]
        after = _with_value(values[:, step], np.array(step), *before)
        mean[:, step + 1], intercept[:, step + 1], slope[:, step + 1] = after
    intercept[:, 0] = values[:, 0]  # before there is a line the first value stands for it
    return intercept[:, :-1], slope[:, :-1], mean


def _with_value(
    value: np.ndarray, step: np.ndarray, mean: np.ndarray, slope: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return mean, intercept and slope after one more value, which ``step`` values precede."""
    new_mean = (step * mean + value) / (step + 1)
    slope = np.where(
        step == 0, 0.0, ((step - 1) * slope + 6 * (value - mean) / (step + 1)) / (step + 2)
    )
    return new_mean, np.where(step == 0, value, new_mean - slope * (step + 2) / 2), slope


def _line(
    intercept: np.ndarray, slope: np.ndarray, smoothing: np.ndarray | float, at: np.ndarray
) -> np.ndarray:
    """Return what the line, with a share of 1, adds to the mean of the value at a step."""
    fade = (1 - smoothing) ** at
    return fade * intercept + (1 - fade * (1 - smoothing)) / smoothing * slope


def _ahead(
    values: Values, models: Sequence[Theta], horizon: int
) -> Float[np.ndarray, "series time horizon"]:
    """Return the forecasts made at every value; each is used as a value for the next one."""
    smoothing = np.array([model.smoothing for model in models])
    share = np.array([model.share for model in models])[:, None]
    level, now = np.empty(values.shape), np.array([model.level for model in models])
    for at in range(values.shape[1]):
        level[:, at] = now = smoothing * values[:, at] + (1 - smoothing) * now
    intercept, slope, mean = _lines(np.pad(values, ((0, 0), (0, 1))))
    intercept, slope, mean = intercept[:, 1:], slope[:, 1:], mean[:, 1:-1]
    step = np.arange(1, values.shape[1] + 1)
    out = np.empty((*values.shape, horizon))
    for ahead in range(horizon):
        value = level + share * _line(intercept, slope, smoothing[:, None], step + ahead)
        out[:, :, ahead] = value
        level = smoothing[:, None] * value + (1 - smoothing[:, None]) * level
        mean, intercept, slope = _with_value(value, step + ahead, mean, slope)
    return out


MODEL = Functions(
    fit_theta, lambda rows, models, _, horizon: theta_ahead(rows, models, horizon), Theta | None
)
