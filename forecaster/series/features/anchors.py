"""Simple forecasts of one series and their combination, causal: what a network starts from.

The anchors are the last value, two smoothed levels, two trends and, for each season, what the same
season brought before, with and without the change of level since. None of them is right for every
series. They are combined with weights proportional to a power of the inverse of their recent errors
(Bates & Granger 1969, Operational Research Quarterly 20; powers above one: Stock & Watson 2004,
Journal of Forecasting 23), for each step and stretch of the horizon anew, from errors known then.

The combination is then drawn towards the last value by as much as the evidence for it is weak, so
that a random walk stays one (the positive-part estimator of James & Stein 1961, Fourth Berkeley
Symposium 1): what it forecasts beyond the last value is kept whole where past outcomes bear it out,
and dropped where they do not.
"""

import itertools
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Float
from numpy.lib.stride_tricks import as_strided

Steps: TypeAlias = Float[np.ndarray, " step"]
Ahead: TypeAlias = Float[np.ndarray, "step horizon"]

_POWER = 6  # of the inverse errors; 4 to 12 do about as well on M4's hourly and weekly series
_MEMORY, _MEMORY_OF_HORIZON = 100, 7  # steps over which errors count, at least, and by the horizon
_STRETCHES = 6  # of the horizon, each with weights of its own
_FAST, _SLOW = 0.7, 0.95  # decay of the smoothed levels
_TRENDS = ((0.9, 0.9), (0.98, 1.0))  # decay of the mean change, and its damping with each step
_FADING = 0.9  # of the latest seasonal surprise, with each step
DOUBT = 0.2
"""The squared t-statistic up to which nothing of the combination is believed, by default."""
_EVIDENCE, _EVIDENCE_OF_HORIZON = 300, 20  # steps over which it counts, as for _MEMORY
_HANDICAP = 1.05  # on the errors of all but the last value: a random walk must stay one


class Combined(NamedTuple):
    """The combination at every step of a series.

    - ``base``: the forecasts made at each step; the last value where no anchor has errors yet
    - ``error``: their mean absolute error so far, by horizon; NaN before the first is known
    """

    base: Ahead
    error: Ahead


def combine(z: Steps, seasons: Sequence[int], horizon: int, doubt: float = DOUBT) -> Combined:
    """Combine the anchors of one series, without gaps, for ``1 ... horizon`` steps ahead.

    - ``z``: the observed values in order
    - ``seasons``: steps in each of its seasons; each counts as soon as an error of it is known
    - ``doubt``: the squared t-statistic up to which the last value is forecast instead
    """
    naive = _flat(z, horizon)
    beyond = _beyond(z, seasons, horizon)
    base = naive + _kept(_squared_t(beyond, z), doubt, horizon) * beyond
    return Combined(base, decayed_errors(base, z, _decay(horizon)))


def errors_by_doubt(
    z: Steps, seasons: Sequence[int], horizon: int, doubts: Sequence[float]
) -> Float[np.ndarray, " doubt"]:
    """The mean absolute error in the later half of a series, relative to that of the last value.

    Arguments as of :func:`combine`. NaN where the series does not change.
    """
    naive = _flat(z, horizon)
    beyond = _beyond(z, seasons, horizon)
    squared_t = _squared_t(beyond, z)

    def error(base: Ahead) -> float:
        known = _known_errors(base, z)[len(z) // 2 :]
        return float(np.nanmean(known)) if np.isfinite(known).any() else np.nan

    whole = error(naive)
    if not whole > 0:
        return np.full(len(doubts), np.nan)
    bases = (naive + _kept(squared_t, doubt, horizon) * beyond for doubt in doubts)
    return np.array([error(base) / whole for base in bases])


def _beyond(z: Steps, seasons: Sequence[int], horizon: int) -> Ahead:
    """What the combination forecasts beyond the last value; 0 where no anchor has errors yet."""
    stretches, decay = _stretches(horizon), _decay(horizon)
    total = np.zeros((len(z), horizon))
    weights = np.zeros((len(z), horizon))
    naive = _flat(z, horizon)
    floor = 1e-9 * np.maximum.accumulate(np.abs(z))[:, None] + 1e-300
    best = _recent_errors(naive, z, stretches, decay) + floor
    for number, anchor in enumerate(_anchors(z, seasons, horizon)):
        error = _recent_errors(anchor, z, stretches, decay) + floor
        # As a ratio, so that the power neither overflows nor vanishes; one that has been seen for
        # less than a horizon has no error yet, and no weight.
        ratio = np.minimum(best / (error * (_HANDICAP if number else 1.0)), 1e6) ** _POWER
        weight = np.repeat(np.nan_to_num(ratio), np.diff(stretches), axis=1)
        usable = np.isfinite(anchor)
        total += np.where(usable, weight * np.where(usable, anchor, 0.0), 0.0)
        weights += np.where(usable, weight, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(weights > 0, total / weights, naive) - naive


def _decay(horizon: int) -> float:
    """Of the errors that the anchors are weighted by."""
    return 1 - 1 / max(_MEMORY, _MEMORY_OF_HORIZON * horizon)


def _kept(squared_t: Float[np.ndarray, "step stretch"], doubt: float, horizon: int) -> Ahead:
    """The share that is kept, at each step, of what is forecast beyond the last value.

    One less than all by the ``doubt`` over the squared t-statistic.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        kept = np.nan_to_num(np.maximum(1 - doubt / squared_t, 0.0), nan=0.0)
    return np.repeat(kept, np.diff(_stretches(horizon)), axis=1)


def _squared_t(beyond: Ahead, z: Steps) -> Float[np.ndarray, "step stretch"]:
    """Of past outcomes regressed on past forecasts, both counted from the last value; at each step.

    0 where they have opposite signs on average, NaN without any. Errors of forecasts over several
    steps overlap, so that there are as many observations as horizons fit into the steps.
    """
    horizon = beyond.shape[1]
    stretches = _stretches(horizon)
    memory = max(_EVIDENCE, _EVIDENCE_OF_HORIZON * horizon)
    forecast = _as_of_outcome(beyond)
    came = z[:, None] - _as_of_outcome(_flat(z, horizon))

    def mean(values: Ahead) -> Float[np.ndarray, "step stretch"]:
        parts = [values[:, a:b].mean(1) for a, b in itertools.pairwise(stretches)]
        return _decayed(np.stack(parts, axis=1), 1 - 1 / memory)

    steps = np.minimum(np.arange(len(z)), memory)[:, None]
    count = np.maximum(steps / ((stretches[:-1] + stretches[1:] + 1) / 2), 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        slope = np.maximum(mean(forecast * came), 0.0)
        return slope**2 * count / (mean(forecast**2) * mean(came**2))


def decayed_errors(forecasts: Ahead, z: Steps, decay: float) -> Ahead:
    """The exponentially weighted mean absolute error known at each step, by horizon."""
    return _decayed(_known_errors(forecasts, z), decay)


def _anchors(z: Steps, seasons: Sequence[int], horizon: int) -> list[Ahead]:
    """Forecasts made at each step, NaN without enough before it; the last value comes first."""
    ahead = np.arange(1, horizon + 1)
    change = np.diff(z, prepend=z[0])
    anchors = [_flat(z, horizon)]
    anchors += [_flat(smoothed(z, decay), horizon) for decay in (_FAST, _SLOW)]
    for decay, damping in _TRENDS:
        trend = smoothed(change, decay)
        anchors.append(z[:, None] + trend[:, None] * np.cumsum(damping**ahead))
    for season in seasons:
        if 1 < season < len(z):  # otherwise nothing of it has been seen twice
            anchors += _seasonal(z, season, horizon)
    if len(seasons) > 1:
        short, long = min(seasons), max(seasons)
        anchors.append(_lagged(z, short, horizon) + _change_of(z, short, long, horizon))
    return anchors


def _seasonal(z: Steps, season: int, horizon: int) -> list[Ahead]:
    """What the same part of the season brought, last and on average, also at today's level."""
    ahead = np.arange(1, horizon + 1)
    last = _lagged(z, season, horizon)
    mean = (last + _lagged(z, season, horizon, 1) + _lagged(z, season, horizon, 2)) / 3
    level = _level(z, season)
    before = [_shifted(level, season * count) for count in (1, 2, 3)]
    rise = level - before[0]
    rise_of_mean = level - (before[0] + before[1] + before[2]) / 3
    surprise = z - _shifted(z, season)
    return [
        last,
        mean,
        last + rise[:, None],
        mean + rise_of_mean[:, None],
        last + surprise[:, None] * _FADING**ahead,
    ]


def _level(z: Steps, season: int) -> Steps:
    """The mean of the latest stretch that holds no part of a season more often than another.

    A whole season; of long ones a seventh, a day of a week, when that is a whole number.
    """
    window = season // 7 if season % 7 == 0 and season > 7 else season
    return _moving_mean(z, window)


def _change_of(z: Steps, short: int, long: int, horizon: int) -> Ahead:
    """How the short season changed a long season ago, at the steps that are forecast."""
    return _lagged(z, long, horizon) - _lagged_both(z, short, long, horizon)


def _lagged_both(z: Steps, short: int, long: int, horizon: int) -> Ahead:
    """The value a long season before the latest one of the same part of the short season."""
    out = np.full((len(z), horizon), np.nan)
    for column in range(horizon):
        back = -(-(column + 1) // short) * short - (column + 1) + long
        out[back:, column] = z[: max(0, len(z) - back)]
    return out


def _lagged(z: Steps, season: int, horizon: int, more: int = 0) -> Ahead:
    """The latest known value of the same part of the season, or ``more`` seasons before it."""
    out = np.full((len(z), horizon), np.nan)
    for column in range(horizon):
        back = (-(-(column + 1) // season) + more) * season - (column + 1)
        out[back:, column] = z[: max(0, len(z) - back)]
    return out


def _recent_errors(
    forecasts: Ahead, z: Steps, stretches: np.ndarray, decay: float
) -> Float[np.ndarray, "step stretch"]:
    """The mean absolute error known at each step, by stretch of the horizon; NaN before the first.

    ``stretches``: the columns that each begins at, and the end.
    """
    known = _known_errors(forecasts, z)
    parts = [known[:, a:b].mean(1) for a, b in itertools.pairwise(stretches)]
    return _decayed(np.stack(parts, axis=1), decay)


def _known_errors(forecasts: Ahead, z: Steps) -> Ahead:
    """The absolute error, at each step, of the forecast made for it; NaN where there was none."""
    return np.abs(_as_of_outcome(forecasts) - z[:, None])


def _as_of_outcome(forecasts: Ahead) -> Ahead:
    """What was forecast for each step, by horizon, not at it; NaN where there was nothing."""
    steps, horizon = forecasts.shape
    padded = np.full((steps + horizon, horizon), np.nan)
    padded[horizon:] = forecasts
    row, column = padded.strides
    # Row t, column h: the forecast made h + 1 steps before t for t.
    return as_strided(padded[horizon - 1 :], (steps, horizon), (row, column - row))


def _decayed(values: Float[np.ndarray, "step column"], decay: float) -> np.ndarray:
    """The exponentially weighted mean over the steps so far, weights normalised; NaN are skipped.

    Step after step, so that a value depends bit for bit on those before it alone.
    """
    from scipy.signal import lfilter  # pyright: ignore[reportUnknownVariableType]

    known = np.isfinite(values)
    coefficients = [1 - decay], [1, -decay]
    total = np.asarray(lfilter(*coefficients, np.where(known, values, 0.0), axis=0))
    weight = np.asarray(lfilter(*coefficients, known.astype(float), axis=0))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(weight > 0, total / weight, np.nan)


def _stretches(horizon: int) -> np.ndarray:
    """The columns at which stretches of the horizon begin, and the end; short ones come first."""
    count = min(_STRETCHES, horizon)
    ends = np.round(horizon ** (np.arange(1, count + 1) / count)).astype(int)
    return np.unique(np.concatenate([[0], ends]))


def _flat(level: Steps, horizon: int) -> Ahead:
    return np.repeat(level[:, None], horizon, axis=1)


def smoothed(z: Steps, decay: float) -> Steps:
    """The exponentially weighted mean up to each step."""
    return _decayed(z[:, None], decay)[:, 0]


def _moving_mean(z: Steps, window: int) -> Steps:
    """The mean of the latest values, each summed by itself: a running sum would carry rounding."""
    out = np.full(len(z), np.nan)
    if window <= len(z):
        out[window - 1 :] = np.lib.stride_tricks.sliding_window_view(z, window).mean(1)
    return out


def _shifted(values: Steps, steps: int) -> Steps:
    out = np.full(len(values), np.nan)
    out[steps:] = values[: max(0, len(values) - steps)]
    return out
