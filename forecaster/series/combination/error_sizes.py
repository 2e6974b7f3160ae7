"""How large errors are at each phase of a season, relative to their usual size.

The net load of a grid with solar power is hard to forecast at noon and easy at night. Where the
errors of past cycles differ by phase more than chance explains, so do the expected errors.

Series of busy days and closed nights have zeros, and so no logarithm, yet their errors grow with
their level. A running mean over all steps then makes bands of open hours too narrow. Their errors
may grow with the forecast, as far as past errors one step ahead show that they do. Steps at which
a series is regularly closed count apart: they are forecast as zero, and say nothing about others.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from forecaster.linear_filter import linear_filter
from forecaster.series.causal import shift
from forecaster.series.combination.anchors import Ahead, Steps, by_target_step, decayed, lagged

_CLOSED_BEFORE = 3  # cycles that a phase was closed in, or all there are if they are fewer
_RARELY, _SOMETIMES = 0.05, 0.25  # shares of phases that change from one cycle to the next
_MEMORY, _SEASONS = 300, 7  # steps that errors are remembered: at least, and in seasons
_DOUBT = 9.0  # up to this squared t-statistic errors do not grow with the forecast
_MOST = 0.98  # growth of errors in per cent where forecasts grow by one per cent, at most
_CYCLES = 20  # cycles that the errors of a phase are remembered
_FEWEST_CYCLES = 10  # weighted by age, before errors may differ by phase: 14 without gaps
_BY_CHANCE = 3.0  # multiple of the variance by chance that phases must differ by
_OUTLIER = 3.0  # an error counts as at most this multiple of the usual one at its phase


class Sizes(NamedTuple):
    """What is known at each step of the errors of the forecasts made there.

    - ``closed``: whether the series will be closed
    - ``relative``: the expected size of an error over its usual size; 0 where it will be closed
    """

    closed: Bool[np.ndarray, "*series step horizon"]
    relative: Ahead


def error_sizes(base: Ahead, z: Steps, seasons: Sequence[int]) -> Sizes:
    """Return the relative sizes of the errors of forecasts of series without negative values.

    They are 1, bit for bit, in seasons without closed phases, and where errors do not clearly grow
    with the forecast.

    - ``base``: the forecasts made at each step
    - ``z``: the values, NaN after the end of shorter series
    """
    closed = np.zeros(base.shape, bool)
    for season in seasons:
        if 1 < season < z.shape[-1]:
            closed |= _closed(z, season, base.shape[-1])
    relative = _by_level(np.where(closed, 0.0, base), z, closed[..., 0], max(seasons, default=1))
    return Sizes(closed, np.where(closed, 0.0, relative))


def sizes_by_phase(errors: Steps, season: int, horizon: int) -> Ahead:
    """Return the sizes of errors expected at the phase of each step ahead, relative to the usual.

    The logarithm of the mean error at a phase is shrunk to that of all phases by how much phases
    differ beyond chance (empirical Bayes). So sizes are 1, bit for bit, where they hardly do.

    ``errors``: those known of each step, in units of the usual one; NaN where there is none
    """
    steps = int(errors.shape[-1])
    by_cycle = _by_cycle(errors, season)
    by_cycle = np.minimum(by_cycle, _OUTLIER * decayed(by_cycle, 1 - 1 / _CYCLES))
    mean, squared = (decayed(part, 1 - 1 / _CYCLES) for part in (by_cycle, by_cycle**2))
    count = linear_filter([1.0], [1.0, 1 / _CYCLES - 1], np.isfinite(by_cycle), axis=-2)
    mean, squared, count = (
        part.reshape(*errors.shape[:-1], -1)[..., :steps] for part in (mean, squared, count)
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        chance = _over_season((squared / mean**2 - 1) / (count - 1), season)
        known = np.where((count >= _FEWEST_CYCLES) & (mean > 0), np.log(mean), np.nan)
        known = known - _over_season(known, season)
        variance = _over_season(known**2, season)
        beyond = np.maximum(variance - _BY_CHANCE * chance, 0.0)
        shrunk = np.nan_to_num(known * beyond / (beyond + chance))
    ahead = lagged(np.exp(shrunk), season, horizon)
    return np.where(np.isfinite(ahead), ahead, 1.0)


def _by_cycle(values: Steps, season: int) -> Float[np.ndarray, "*series cycle phase"]:
    """Return values by cycle and phase, counted from the first step; NaN after the last."""
    missing = -int(values.shape[-1]) % season
    filled = np.concatenate([values, np.full((*values.shape[:-1], missing), np.nan)], axis=-1)
    return filled.reshape(*values.shape[:-1], -1, season)


def _over_season(values: Steps, season: int) -> Steps:
    """Return the mean of the latest season, of what is known; NaN before there is one."""
    known = np.isfinite(values)
    sums = np.cumsum(np.stack([np.where(known, values, 0.0), known]), axis=-1)
    total, count = sums[..., season - 1 :]
    total[..., 1:] -= sums[0, ..., :-season]
    count[..., 1:] -= sums[1, ..., :-season]
    out = np.full(values.shape, np.nan)
    out[..., season - 1 :] = total / count
    return out


def _closed(z: Steps, season: int, horizon: int) -> Bool[np.ndarray, "*series step horizon"]:
    """Return whether a series will be closed at the phase of each step ahead.

    It was zero there in the latest cycles, and had another value elsewhere in them. So far nearly
    all phases that were zero in this way stayed zero, or nearly all stayed what they were; and
    neither the zeros nor the others often changed.
    """
    steps = np.arange(int(z.shape[-1]))
    opened, zero = z > 0, z == 0
    alive = _lately(opened, season)
    expected = zero & alive
    before = zero & (alive | (steps < season))
    for cycles in range(1, _CLOSED_BEFORE):
        expected &= (steps < cycles * season) | np.roll(before, cycles * season, axis=-1)

    def counted(before: np.ndarray, now: np.ndarray) -> np.ndarray:
        """Return how many phases were of one kind until now, and how many of them are another."""
        known = (steps >= season) & np.roll(before, season, axis=-1)
        return np.cumsum(np.stack([known, known & now]), axis=-1)

    closed, others = counted(expected, opened), counted(opened, zero)
    of_closed, of_others, of_all = (
        (changed + 0.5) / (known + 1) for known, changed in (closed, others, closed + others)
    )
    sure = np.minimum(of_closed, of_all) <= _RARELY
    sure &= np.maximum(of_closed, of_others) <= _SOMETIMES
    return sure[..., None] & (lagged(expected.astype(float), season, horizon) == 1)


def _lately(true: np.ndarray, season: int) -> Bool[np.ndarray, "*series step"]:
    """Return whether something was true at any of the latest steps, as many as a season has."""
    total = np.cumsum(true, axis=-1)
    before = np.roll(total, season, axis=-1)
    return total > np.where(np.arange(int(true.shape[-1])) < season, 0, before)


def _by_level(
    base: Ahead, z: Steps, closed: Bool[np.ndarray, "*series step"], season: int
) -> Ahead:
    """Return the relative sizes of errors as a linear function of the forecast.

    It is fitted to the errors one step ahead, which do not overlap, and shrunk to 1 the more, the
    weaker the evidence is. In seasons without a closed phase errors are taken to be of one size.

    ``closed``: whether each series will be closed at the next step, which then says nothing
    """
    memory = max(_MEMORY, _SEASONS * season)
    made = np.maximum(by_target_step(base[..., :1])[..., 0], 0.0)
    made[shift(closed.astype(float), 1) == 1] = np.nan
    error = np.abs(z - made)
    made = np.where(np.isfinite(error), made, np.nan)

    def mean(values: Steps) -> Steps:
        return decayed(values[..., None], 1 - 1 / memory)[..., 0]

    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        level, usual = mean(made), mean(error)
        along = mean(made * error) - level * usual
        spread = mean(made * made) - level * level
        rest = spread * (mean(error * error) - usual * usual) - along * along
        count = np.minimum(np.cumsum(np.isfinite(error), axis=-1), memory)
        kept = np.maximum(1 - _DOUBT * rest / (along * along * count), 0.0)
        growth = kept * np.clip(along / spread * level / usual, 0.0, _MOST)
        used = np.isfinite(growth) & (rest > 0) & _lately(closed, season)
        growth = np.where(used, growth, 0.0)[..., None]
        highest = np.fmax.accumulate(z, -1)
        above = np.clip(base, 0.0, highest[..., None]) / level[..., None] - 1
        return np.where(growth > 0, 1 + growth * above, 1.0)
