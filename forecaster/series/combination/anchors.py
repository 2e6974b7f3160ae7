"""Simple forecasts of one series, called anchors, and their combination, from which networks start.

The anchors are the last value, two smoothed levels, two trends and, for each season, the values of
earlier seasons, with and without the change of level since. None of them is right for every series.
Their weights are a power of the inverse of their recent errors (Bates & Granger 1969, Operational
Research Quarterly 20; powers above one: Stock & Watson 2004, Journal of Forecasting 23). Each step
and each stretch of the horizon has its own weights, from the errors known at that step.

Forecasts of classical models (:mod:`forecaster.series.combination.experts`) may stand beside the
anchors. The combination of anchors and each of these models then have weights of their own: at
first those that were best over a panel, and the more errors a series has, the more its own.

The combination is then shrunk towards the last value, the more the weaker the evidence for it is,
so that a random walk is forecast as one (the positive-part estimator of James & Stein 1961, Fourth
Berkeley Symposium 1). The difference from the last value is kept where past outcomes confirm it,
and dropped where they do not.

All functions take one series, or several at once as further axes. Steps that are missing at the end
of a shorter one are NaN: nothing at a step depends on later ones.
"""

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Float
from numpy.lib.stride_tricks import as_strided

from forecaster.linear_filter import linear_filter

Steps: TypeAlias = Float[np.ndarray, "*series step"]
Ahead: TypeAlias = Float[np.ndarray, "*series step horizon"]
ByStretch: TypeAlias = Float[np.ndarray, "*series step stretch"]
Shares: TypeAlias = Float[np.ndarray, "forecast stretch"]

_POWER = 6  # of the inverse errors; powers of 4 to 12 are about as good on M4 Hourly and Weekly
_MEMORY, _MEMORY_OF_HORIZON = 100, 7  # steps of the mean error: at least, and per step ahead
_STRETCHES = 6  # parts of the horizon, each with its own weights
_FAST, _SLOW = 0.7, 0.95  # decay of the smoothed levels
_TRENDS = ((0.9, 0.9), (0.98, 1.0))  # decay of the mean change, and its damping per step ahead
_FADING = 0.9  # decay per step ahead of the latest seasonal surprise
DOUBT = 0.2
"""The default of ``doubt``: up to this squared t-statistic the last value is forecast."""
_EVIDENCE, _EVIDENCE_OF_HORIZON = 300, 20  # steps of the t-statistic: at least, and per step ahead
_HANDICAP = 1.05  # on the errors of all anchors but the last value, in favour of a random walk
_OWN = 20  # independent errors with which a series' own weights count half
_PANEL_POWER = 3  # power of the inverse errors over a panel
_PANEL_PRIOR = 10  # series without a difference, which the errors over a panel are shrunk to


class Combined(NamedTuple):
    """The combination at every step of series.

    - ``base``: the forecasts made at each step; the last value before any error is known
    - ``error``: their mean absolute error so far, by horizon; NaN before the first is known
    """

    base: Ahead
    error: Ahead


def combine(
    z: Steps,
    seasons: Sequence[int],
    horizon: int,
    doubt: float = DOUBT,
    experts: Sequence[Ahead] = (),
    shares: Shares | None = None,
    alone: int | None = None,
    *,
    counts: bool = False,
) -> Combined:
    """Combine the anchors of series, without gaps, for ``1 ... horizon`` steps ahead.

    - ``z``: the observed values in order
    - ``seasons``: the steps in each season, of all these series
    - ``doubt``: the squared t-statistic up to which the last value is forecast instead
    - ``experts``: forecasts made at each step by other models; NaN where there is none
    - ``shares``: weights of the anchors and of each expert, see :func:`shares_of`; by default equal
    - ``alone``: the number of the expert whose forecast stands alone, wherever it has one
    - ``counts``: whether they are counts, of which few show a season in their second one
    """
    naive = _flat(z, horizon)
    young = _second_season(z, seasons, horizon, counts=counts)
    used = () if alone is not None else experts
    difference = _mixed(z, seasons, horizon, used, shares, young)
    evidence = _evidence(difference, z, seasons, young)
    base = naive + _kept_share(evidence, doubt, horizon) * difference
    if alone is not None and experts:
        base = np.where(np.isfinite(experts[alone]), experts[alone], base)
    return Combined(base, decayed_errors(base, z, _decay(horizon)))


def errors_by_doubt(
    z: Steps,
    seasons: Sequence[int],
    horizon: int,
    doubts: Sequence[float],
    experts: Sequence[Ahead] = (),
    shares: Shares | None = None,
    since: int | None = None,
    *,
    counts: bool = False,
) -> Float[np.ndarray, " doubt"]:
    """Return the error of each doubt in the later part of a series, over that of the last value.

    Errors are mean absolute errors. NaN where the series does not change.

    ``since``: the first step whose errors count; by default the middle of the series. Other
    arguments as of :func:`combine`.
    """
    naive = _flat(z, horizon)
    young = _second_season(z, seasons, horizon, counts=counts)
    difference = _mixed(z, seasons, horizon, experts, shares, young)
    squared_t = _evidence(difference, z, seasons, young)

    def error(base: Ahead) -> float:
        known = known_errors(base, z)[len(z) // 2 if since is None else since :]
        return float(np.nanmean(known)) if np.isfinite(known).any() else np.nan

    naive_error = error(naive)
    if not naive_error > 0:
        return np.full(len(doubts), np.nan)
    bases = (naive + _kept_share(squared_t, doubt, horizon) * difference for doubt in doubts)
    return np.array([error(base) / naive_error for base in bases])


def log_errors(
    z: Steps,
    seasons: Sequence[int],
    horizon: int,
    experts: Sequence[Ahead],
    since: int,
    *,
    counts: bool = False,
) -> Float[np.ndarray, "forecast stretch"]:
    """Return the logarithm of the mean errors of the anchors and of each expert, by stretch.

    They are errors of the forecasts made at ``since`` or later, in units of their geometric mean;
    NaN in all rows where one forecast has no error. Of young series, as in :func:`combine`, they
    are those after the first season. Other arguments as of :func:`combine`.
    """
    naive = _flat(z, horizon)
    anchored = naive + _from_last_value(z, seasons, horizon)
    its = _second_season(z, seasons, horizon, counts=counts)
    young = its.start < its.stop == len(z)
    uncounted = np.arange(len(z))[:, None] - np.arange(1, horizon + 1) < since
    if young:
        uncounted[: min(seasons)] = True

    def error(forecasts: Ahead) -> list[float]:
        known = np.where(uncounted, np.nan, known_errors(forecasts, z))
        parts = (known[:, a:b] for a, b in itertools.pairwise(_stretches(horizon)))
        return [float(np.nanmean(part)) if np.isfinite(part).any() else np.nan for part in parts]

    rows = [error(forecasts) for forecasts in (anchored, *experts)]
    if young:
        rows[0] = np.fmin(rows[0], error(lagged(z, min(seasons), horizon))).tolist()
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(np.array(rows))
        logs = logs - logs.mean(0)
    return np.where(np.isfinite(logs).all(0), logs, np.nan)


def shares_of(errors: Float[np.ndarray, "series forecast stretch"]) -> Shares:
    """Return the shares of anchors and experts that suit a panel, the largest of them 1.

    They are a power of the inverse of their errors over the panel, shrunk to equal shares where few
    series have errors.

    ``errors``: from :func:`log_errors`, for each series
    """
    known = np.isfinite(errors).sum(0)
    mean = np.nansum(errors, 0) / (known + _PANEL_PRIOR)
    return np.exp(-_PANEL_POWER * (mean - mean.min(0)))


def _mixed(
    z: Steps,
    seasons: Sequence[int],
    horizon: int,
    experts: Sequence[Ahead],
    shares: Shares | None,
    young: slice,
) -> Ahead:
    """Return the weighted mean of anchors and experts less the last value."""
    anchored = _from_last_value(z, seasons, horizon)
    if not experts:
        return anchored
    stretches, decay = _stretches(horizon), _decay(horizon)
    naive = _flat(z, horizon)
    # Trends that lead beyond all that was seen are cut there.
    reach = (np.maximum.accumulate(z, -1) - np.minimum.accumulate(z, -1))[..., None]
    differences = [anchored, *(np.clip(one - naive, -reach, reach) for one in experts)]
    floor = 1e-9 * np.maximum.accumulate(np.abs(z), -1)[..., None] + 1e-300
    forecasts = [naive + one for one in differences]
    errors = [
        error + floor for error in _errors_in_season(forecasts, z, seasons, stretches, decay, young)
    ]
    best = np.fmin.reduce(errors)
    middle = (stretches[:-1] + stretches[1:] + 1) / 2
    memory = max(_MEMORY, _MEMORY_OF_HORIZON * horizon)
    # Errors over several steps overlap.
    count = np.maximum(np.minimum(np.arange(int(z.shape[-1])), memory)[:, None] / middle - 1, 0.0)
    power = _POWER * count / (count + _OWN)
    total, weights = np.zeros((*z.shape, horizon)), np.zeros((*z.shape, horizon))
    for number, (difference, error) in enumerate(zip(differences, errors, strict=True)):
        with np.errstate(invalid="ignore"):
            own = np.nan_to_num(np.minimum(best / error, 1.0), nan=1.0) ** power
        weight = own if shares is None else own * shares[number]
        weight = np.repeat(weight, np.diff(stretches), axis=-1)
        usable = np.isfinite(difference)
        total += np.where(usable, weight * np.where(usable, difference, 0.0), 0.0)
        weights += np.where(usable, weight, 0.0)
    return total / weights  # the weight of the anchors is never zero


def _from_last_value(z: Steps, seasons: Sequence[int], horizon: int) -> Ahead:
    """Return the weighted mean of the anchors less the last value; 0 before any error is known."""
    stretches, decay = _stretches(horizon), _decay(horizon)
    total, weights = np.zeros((*z.shape, horizon)), np.zeros((*z.shape, horizon))
    naive = _flat(z, horizon)
    floor = 1e-9 * np.maximum.accumulate(np.abs(z), -1)[..., None] + 1e-300
    best = _recent_errors(naive, z, stretches, decay) + floor
    for number, anchor in enumerate(_anchors(z, seasons, horizon)):
        error = _recent_errors(anchor, z, stretches, decay) + floor
        # A ratio of errors, as the power of an error might overflow or vanish. An anchor without
        # errors yet has no weight.
        ratio = np.minimum(best / (error * (_HANDICAP if number else 1.0)), 1e6) ** _POWER
        weight = np.repeat(np.nan_to_num(ratio), np.diff(stretches), axis=-1)
        usable = np.isfinite(anchor)
        total += np.where(usable, weight * np.where(usable, anchor, 0.0), 0.0)
        weights += np.where(usable, weight, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(weights > 0, total / weights, naive) - naive


def _decay(horizon: int) -> float:
    """Return the decay of the errors that weigh the anchors."""
    return 1 - 1 / max(_MEMORY, _MEMORY_OF_HORIZON * horizon)


def _second_season(z: Steps, seasons: Sequence[int], horizon: int, *, counts: bool) -> slice:
    """Return the steps at which few forecasts that knew a season have an outcome; empty for none.

    Forecasts made in the first season knew of none. So errors since then count, and as evidence
    for the season those of the value one season before, which needs no weights. Counts have none.
    """
    first, steps = min(seasons, default=1), int(z.shape[-1])
    if counts or first <= 1:
        return slice(0, 0)
    return slice(min(first, steps), min(2 * first + horizon, steps))


def _errors_in_season(
    forecasts: Sequence[Ahead],
    z: Steps,
    seasons: Sequence[int],
    stretches: np.ndarray,
    decay: float,
    young: slice,
) -> list[ByStretch]:
    """Return :func:`_recent_errors`; in the second season those since the first, once known.

    ``forecasts``: of the anchors, which there count as at least as good as the value one season
    before, then of each expert
    """
    errors = [_recent_errors(one, z, stretches, decay) for one in forecasts]
    if young.start == young.stop:
        return errors
    some = z[..., : young.stop]
    later = [
        _later_errors(one[..., : young.stop, :], some, seasons, stretches, decay)
        for one in forecasts
    ]
    last = lagged(some, min(seasons), stretches[-1])
    later[0] = np.fmin(later[0], _later_errors(last, some, seasons, stretches, decay))
    for error, since in zip(errors, later, strict=True):
        at, new = error[..., young, :], since[..., young, :]
        at[...] = np.where(np.isfinite(new), new, at)
    return errors


def _later_errors(
    forecasts: Ahead, z: Steps, seasons: Sequence[int], stretches: np.ndarray, decay: float
) -> ByStretch:
    """Return the mean absolute error of the values after the first season, by stretch."""
    return decayed(_means(_after_first(known_errors(forecasts, z), seasons), stretches), decay)


def _after_first(known: Ahead, seasons: Sequence[int]) -> Ahead:
    """Return what is known of each step; NaN in the first season."""
    later = known.copy()
    later[..., : min(seasons), :] = np.nan
    return later


def _evidence(difference: Ahead, z: Steps, seasons: Sequence[int], young: slice) -> ByStretch:
    """Return :func:`_squared_t`; in the second season, of the season alone if that is larger."""
    whole = _squared_t(difference, z)
    horizon = difference.shape[-1]
    if young.start < young.stop:
        some, season = z[..., : young.stop], min(seasons)
        seasonal = lagged(some, season, horizon) - _flat(some, horizon)
        at = whole[..., young, :]
        at[...] = np.fmax(at, _squared_t(seasonal, some, season)[..., young, :])
    return whole


def _kept_share(squared_t: ByStretch, doubt: float, horizon: int) -> Ahead:
    """Return the share of the difference from the last value that is kept at each step.

    It is 1 - ``doubt`` / ``squared_t``, and at least 0; without doubt it is 1. Where no outcome is
    known for a stretch of the horizon, the one before stands for it.
    """
    if doubt == 0:
        return np.ones((*squared_t.shape[:-1], horizon))
    squared_t = squared_t.copy()
    for stretch in range(1, squared_t.shape[-1]):
        unknown = np.isnan(squared_t[..., stretch])
        squared_t[unknown, stretch] = squared_t[unknown, stretch - 1]
    with np.errstate(divide="ignore", invalid="ignore"):
        kept = np.nan_to_num(np.maximum(1 - doubt / squared_t, 0.0), nan=0.0)
    return np.repeat(kept, np.diff(_stretches(horizon)), axis=-1)


def _squared_t(difference: Ahead, z: Steps, since: int = 0) -> ByStretch:
    """Return the squared t-statistic, at each step, of past outcomes regressed on past forecasts.

    Both are differences from the last value. 0 where their signs are opposite on average, NaN
    before any outcome is known. Forecasts over several steps overlap, so the number of observations
    is the number of steps divided by the steps ahead.

    ``since``: the first step whose outcome counts
    """
    horizon = difference.shape[-1]
    stretches = _stretches(horizon)
    memory = max(_EVIDENCE, _EVIDENCE_OF_HORIZON * horizon)
    forecast = by_target_step(difference)
    outcome = z[..., None] - by_target_step(_flat(z, horizon))
    outcome[..., :since, :] = np.nan
    forecast = np.where(np.isfinite(outcome), forecast, np.nan)

    def mean(values: Ahead) -> ByStretch:
        return decayed(_means(values, stretches), 1 - 1 / memory)

    steps = np.clip(np.arange(int(z.shape[-1])) - since, 0, memory)[:, None]
    count = np.maximum(steps / ((stretches[:-1] + stretches[1:] + 1) / 2), 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        slope = np.maximum(mean(forecast * outcome), 0.0)
        return slope**2 * count / (mean(forecast**2) * mean(outcome**2))


def decayed_errors(forecasts: Ahead, z: Steps, decay: float) -> Ahead:
    """Return the exponentially weighted mean absolute error known at each step, by horizon."""
    return decayed(known_errors(forecasts, z), decay)


def _anchors(z: Steps, seasons: Sequence[int], horizon: int) -> Iterator[Ahead]:
    """Yield the forecasts of each anchor at each step, NaN before it has enough steps.

    The last value comes first. All together would take several times the memory of all else.
    """
    ahead = np.arange(1, horizon + 1)
    change = np.diff(z, prepend=z[..., :1])
    yield _flat(z, horizon)
    for decay in (_FAST, _SLOW):
        yield _flat(smoothed(z, decay), horizon)
    for decay, damping in _TRENDS:
        trend = smoothed(change, decay)
        yield z[..., None] + trend[..., None] * np.cumsum(damping**ahead)
    for season in seasons:
        if season > 1:
            yield from _seasonal(z, season, horizon)
    if len(seasons) > 1:
        short, long = min(seasons), max(seasons)
        # The latest short season, and how it changed one long season ago.
        change_then = lagged(z, long, horizon) - _lagged_both(z, short, long, horizon)
        yield lagged(z, short, horizon) + change_then


def _seasonal(z: Steps, season: int, horizon: int) -> Iterator[Ahead]:
    """Yield five anchors of one season: its last value, the mean of its last three, and variants.

    Two variants add the change of level since then. One adds the latest surprise, which fades.
    """
    ahead = np.arange(1, horizon + 1)
    level = _level(z, season)
    before = [_shifted(level, season * count) for count in (1, 2, 3)]
    rise = level - before[0]
    rise_of_mean = level - (before[0] + before[1] + before[2]) / 3
    surprise = z - _shifted(z, season)
    last = lagged(z, season, horizon)
    mean = (last + lagged(z, season, horizon, 1) + lagged(z, season, horizon, 2)) / 3
    yield last
    yield mean
    yield last + rise[..., None]
    yield mean + rise_of_mean[..., None]
    yield last + surprise[..., None] * _FADING**ahead


def _level(z: Steps, season: int) -> Steps:
    """Return the mean of the latest season, or of a seventh of it, such as a day of a week."""
    window = season // 7 if season % 7 == 0 and season > 7 else season
    return _moving_mean(z, window)


def _lagged_both(z: Steps, short: int, long: int, horizon: int) -> Ahead:
    """Return the value one long season before that of :func:`lagged` for the short season."""
    out = np.full((*z.shape, horizon), np.nan)
    for column in range(horizon):
        back = -(-(column + 1) // short) * short - (column + 1) + long
        out[..., back:, column] = z[..., : max(0, z.shape[-1] - back)]
    return out


def lagged(z: Steps, season: int, horizon: int, more: int = 0) -> Ahead:
    """Return, for each step ahead, the latest known value that lies whole seasons before it.

    ``more``: further seasons to go back
    """
    out = np.full((*z.shape, horizon), np.nan)
    for column in range(horizon):
        back = (-(-(column + 1) // season) + more) * season - (column + 1)
        out[..., back:, column] = z[..., : max(0, z.shape[-1] - back)]
    return out


def _recent_errors(forecasts: Ahead, z: Steps, stretches: np.ndarray, decay: float) -> ByStretch:
    """Return the mean absolute error known at each step, by stretch; NaN before the first.

    ``stretches``: from :func:`_stretches`.
    """
    return decayed(_means(known_errors(forecasts, z), stretches), decay)


def _means(values: Ahead, stretches: np.ndarray) -> ByStretch:
    """Return the mean of each stretch."""
    parts = [values[..., a:b].mean(-1) for a, b in itertools.pairwise(stretches)]
    return np.stack(parts, axis=-1)


def known_errors(forecasts: Ahead, z: Steps) -> Ahead:
    """Return the absolute errors of the forecasts for each step; NaN where there was none."""
    return np.abs(by_target_step(forecasts) - z[..., None])


def by_target_step(forecasts: Ahead) -> Ahead:
    """Return forecasts by the step that they are for, rather than made at; NaN for none."""
    *_, steps, horizon = forecasts.shape
    padded = np.full((*forecasts.shape[:-2], steps + horizon, horizon), np.nan)
    padded[..., horizon:, :] = forecasts
    *others, row, column = padded.strides
    # Row t, column h: the forecast for t made h + 1 steps before.
    return as_strided(padded[..., horizon - 1 :, :], forecasts.shape, (*others, row, column - row))


def decayed(values: Float[np.ndarray, "*series step column"], decay: float) -> np.ndarray:
    """Return the exponentially weighted mean up to each step, with normalised weights.

    NaN count as missing. The filter runs step by step, so that no bit depends on later steps.
    """
    known = np.isfinite(values)
    coefficients = [1 - decay], [1.0, -decay]
    total = linear_filter(*coefficients, np.where(known, values, 0.0), axis=-2)
    weight = linear_filter(*coefficients, known, axis=-2)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(weight > 0, total / weight, np.nan)


def count_of_stretches(horizon: int) -> int:
    """Return the number of stretches of a horizon, which have shares of their own."""
    return len(_stretches(horizon)) - 1


def check_shares(shares: Sequence[Sequence[float]], forecasts: int, horizon: int) -> None:
    """Raise ValueError unless shares are none, or numbers above 0 for each forecast and stretch."""
    if not shares:
        return
    stretches = count_of_stretches(horizon)
    if [len(one) for one in shares] != [stretches] * forecasts:
        raise ValueError(f"transform: shares: expected {forecasts} lists of {stretches} numbers")
    if not all(0 < share <= 1 for one in shares for share in one):
        raise ValueError("transform: shares: expected numbers above 0, and 1 at most")


def _stretches(horizon: int) -> np.ndarray:
    """Return the columns at which stretches of the horizon begin, and the end; they grow longer."""
    count = min(_STRETCHES, horizon)
    ends = np.round(horizon ** (np.arange(1, count + 1) / count)).astype(int)
    return np.unique(np.concatenate([[0], ends]))


def _flat(level: Steps, horizon: int) -> Ahead:
    return np.repeat(level[..., None], horizon, axis=-1)


def smoothed(z: Steps, decay: float) -> Steps:
    """Return the exponentially weighted mean up to each step."""
    return decayed(z[..., None], decay)[..., 0]


def _moving_mean(z: Steps, window: int) -> Steps:
    """Return the mean of the latest ``window`` values, without the rounding of a running sum."""
    out = np.full(z.shape, np.nan)
    if window <= z.shape[-1]:
        windows = np.lib.stride_tricks.sliding_window_view(z, window, axis=-1)
        out[..., window - 1 :] = windows.mean(-1)
    return out


def _shifted(values: Steps, steps: int) -> Steps:
    out = np.full(values.shape, np.nan)
    out[..., steps:] = values[..., : max(0, values.shape[-1] - steps)]
    return out
