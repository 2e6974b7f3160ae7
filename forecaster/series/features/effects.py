"""Effects of the calendar on daily series: holidays, the ends of months, the time of year.

A series is a level that wanders, a week that changes slowly, and effects of the days of
:mod:`forecaster.series.calendar.special_days`. The effects are estimated by generalised least
squares: values and days go through the filter of an exponential smoothing with a season, whose
errors are then regressed on the filtered days (Hyndman, Koehler, Ord & Snyder 2008, Forecasting
with Exponential Smoothing, chapter 9). Each series' effects are shrunk to the mean effects of the
panel, by as much as the panel's series agree (empirical Bayes; Efron & Morris 1973, JASA 68), since
a series of two years has seen only one Christmas or two.

A group of days is used where its mean effects exceed those of mere chance (Wald's test), and where
effects learned from the earlier part of the panel made the errors of the later part smaller.
"""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from forecaster.series.calendar.special_days import GROUPS, WEEKS, day_numbers, special_days

Row: TypeAlias = Float[np.ndarray, " step"]
Columns: TypeAlias = Float[np.ndarray, "step column"]
Matrix: TypeAlias = Float[np.ndarray, "column column"]

COLUMNS = sum(GROUPS.values())
_GRID = [(level, season) for level in (0.02, 0.1, 0.3, 0.6, 0.95) for season in (0.02, 0.1)]
"""Smoothing of level and season; up to a random walk, whose errors otherwise resemble seasons."""
_FEWEST = 180  # rows of a series from which effects are learned
_MOST = 60  # series from which effects are learned
_LEAST = 21  # rows of a series that has effects
_RIDGE = 1e-6  # for days that never came
_MANY = 8  # fewest series that show how much the effects of a single day differ
_TWICE = 1.6  # squares of a column that is 1 on two days or more, after the filter
_STICKY = 5.0  # root mean square of errors in their unit, at most
_KEPT = 16  # filters that are kept
_TRAINED = 0.75  # of the rows; whether effects help is judged on the rest
_SURE = 5.0  # standard deviations of chi-squared by which effects exceed those of mere chance
_LARGEST = 50.0  # deviations; a day that a shop is closed has an effect of dozens
_FARTHEST = 8.0  # deviations; errors beyond count as this when effects are judged
_YEARS = {"holidays": 1.0, "month": 0.5, "year": 2.0}  # of rows that a group needs


class CalendarPrior(NamedTuple):
    """What the series of a panel have in common, in units of their one-step errors.

    - ``groups``: that are used, of :data:`GROUPS`
    - ``mean``: the mean effect of each day; empty where no group is used
    - ``spread``: of the effects around it, by day
    - ``smoothing``: the number of the exponential smoothing in the grid
    - ``week``: the days in the week of these series, 7 or 5
    """

    groups: tuple[str, ...] = ()
    mean: tuple[float, ...] = ()
    spread: tuple[float, ...] = ()
    smoothing: int = 0
    week: int = 7

    @staticmethod
    def from_json(fields: Sequence[Any]) -> "CalendarPrior":
        """Read three lists and two numbers. Raises TypeError or ValueError for anything else."""
        groups, mean, spread, smoothing, week = fields
        prior = CalendarPrior(
            tuple(groups), tuple(map(float, mean)), tuple(map(float, spread)), smoothing, week
        )
        known = set(prior.groups) <= set(GROUPS) and len(set(prior.groups)) == len(prior.groups)
        count = sum(GROUPS[group] for group in prior.groups) if known else -1
        sizes = len(prior.mean) == len(prior.spread) == count
        sizes = sizes and type(smoothing) is int and 0 <= smoothing < len(_GRID)
        sizes = sizes and type(week) is int and week in WEEKS
        if not (sizes and np.isfinite([*prior.mean, *prior.spread]).all()):
            raise ValueError(f"transform: calendar: {list(fields)!r:.100}")
        return prior


NO_EFFECTS = CalendarPrior()


class _Seen(NamedTuple):
    """What one daily series says of its effects, in units of its one-step errors.

    - ``error``: of each day; 0 where there is no row
    - ``days``: the filtered special days; 0 where there is no row
    - ``unit``: the deviation of the errors
    - ``begin``: the day of the first row, counted from the panel's first
    - ``matrix``, ``side``: the normal equations of the effects
    """

    error: Row
    days: Columns
    unit: float
    begin: int
    matrix: Matrix
    side: Float[np.ndarray, " column"]

    def part(self, rows: slice) -> "_Seen":
        """Return what some rows say."""
        error, days = self.error[rows], self.days[rows]
        begin = self.begin + (rows.start or 0)
        return _Seen(error, days, self.unit, begin, days.T @ days, days.T @ error)


class CalendarFilter:
    """The filtered special days of a panel; series that begin on the same day share them."""

    def __init__(self, first: int, last: int, week: int) -> None:
        self._first, self._week = first, week
        self._raw = special_days(first, last, week)
        self._filtered: dict[int, np.ndarray] = {}
        self._projected: dict[tuple[int, int, int], tuple[Columns, Matrix]] = {}

    @staticmethod
    def of(days: Sequence[Int[np.ndarray, " row"]], week: int) -> "CalendarFilter":
        """Return that of the days of several series."""
        return CalendarFilter(min(int(d[0]) for d in days), max(int(d[-1]) for d in days), week)

    def seen(self, values: Row, days: Int[np.ndarray, " row"], smoothing: int) -> _Seen:
        """Return what a series of at least three weeks says of its effects.

        ``smoothing``: the number of the exponential smoothing in the grid
        """
        error, there = _one_step_errors(values, days, smoothing, self._week)
        begin = int(days[0]) - self._first
        special, matrix = self._special_of(smoothing, begin, len(error))
        unit = _unit(error[there])
        error = np.where(there, np.clip(error / unit, -_LARGEST, _LARGEST), 0.0)
        if not there.all():
            missing = special[~there]
            special, matrix = special * there[:, None], matrix - missing.T @ missing
        return _Seen(error, special, unit, begin, matrix, special.T @ error)

    def _special_of(self, number: int, begin: int, length: int) -> tuple[Columns, Matrix]:
        """Return the filtered special days of a series, beside any initial state; their squares."""
        if number not in self._filtered:
            self._filtered[number] = _filtered(self._raw, number, self._week)
        key = number, begin, length
        if key not in self._projected:
            special = self._filtered[number][begin : begin + length]
            if len(self._projected) > _KEPT:
                self._projected.clear()
            special = _beside_start(special, number, self._week)
            self._projected[key] = special, special.T @ special
        return self._projected[key]


def learn_calendar(
    rows: Sequence[Row], times: Sequence[Shaped[np.ndarray, " row"]], week: int = 7
) -> CalendarPrior:
    """Return what the daily series of a panel have in common; ``NO_EFFECTS`` where that is nothing.

    - ``rows``: the values of each series, or their logarithms
    - ``times``: their dates
    - ``week``: the days in their week, 7 or 5
    """
    days = [day_numbers(own, week) for own in times]
    long = [number for number, own in enumerate(days) if len(own) >= _FEWEST]
    long = long[:: max(1, -(-len(long) // _MOST))]
    if not long:
        return NO_EFFECTS
    smoothing = _best_smoothing([rows[n] for n in long], [days[n] for n in long], week)
    shared = CalendarFilter.of([days[number] for number in long], week)
    seen = [shared.seen(rows[number], days[number], smoothing) for number in long]
    spans = [float((times[n][-1] - times[n][0]) / np.timedelta64(1, "D")) for n in long]
    years = float(np.median(spans)) / 365
    earlier = [one.part(slice(int(_TRAINED * len(one.error)))) for one in seen]
    later = [one.part(slice(int(_TRAINED * len(one.error)), None)) for one in seen]
    prior = NO_EFFECTS
    error = _judged(earlier, later, prior)
    for group, needed in _YEARS.items():
        if years < needed:
            continue
        groups = (*prior.groups, group)
        if _excess(seen, groups) < _SURE:
            continue
        tried = _prior(earlier, groups)
        new = _judged(earlier, later, tried)
        if np.nanmean(error - new) > 0:
            prior, error = tried, new
    if not prior.groups:
        return NO_EFFECTS
    return _prior(seen, prior.groups)._replace(smoothing=smoothing, week=week)


def effects_of(
    prior: CalendarPrior, rows: Sequence[Row], times: Sequence[Shaped[np.ndarray, " row"]]
) -> list[tuple[float, ...]]:
    """Return the effect of each special day on each series; () for none.

    Arguments as of :func:`learn_calendar`.
    """
    days = [day_numbers(own, prior.week) for own in times]
    enough = [len(own) >= _LEAST for own in days]
    if not prior.groups or not any(enough):
        return [()] * len(rows)
    usable_days = [own for own, usable in zip(days, enough, strict=True) if usable]
    shared = CalendarFilter.of(usable_days, prior.week)
    out: list[tuple[float, ...]] = []
    for values, own, usable in zip(rows, days, enough, strict=True):
        if not usable:
            out.append(())
            continue
        seen = shared.seen(values, own, prior.smoothing)
        effect = _posterior(seen, prior) * seen.unit
        out.append(tuple(effect.tolist()) if np.isfinite(effect).all() else ())
    return out


def effects_on(
    effects: Sequence[float], times: Shaped[np.ndarray, "..."], week: int = 7
) -> np.ndarray:
    """Return the effects of the calendar at some times; 0 where a series has none."""
    if not len(effects) or not times.size:
        return np.zeros(times.shape)
    days = day_numbers(times, week)
    first, last = int(days.min()), int(days.max())
    # Not a matrix product, which rounds a day by the number of days beside it.
    return (special_days(first, last, week) * np.asarray(effects)).sum(1)[days - first]


def _best_smoothing(rows: Sequence[Row], days: Sequence[Int[np.ndarray, " row"]], week: int) -> int:
    """Return the number of the exponential smoothing with the smallest errors in a panel."""
    errors = [0.0] * len(_GRID)
    for number in range(len(_GRID)):
        for values, own in zip(rows, days, strict=True):
            error, there = _one_step_errors(values, own, number, week)
            errors[number] += float(np.log(_unit(error[there])))
    return int(np.argmin(errors))


def _one_step_errors(
    values: Row, days: Int[np.ndarray, " row"], smoothing: int, week: int
) -> tuple[Row, Bool[np.ndarray, " step"]]:
    """Return the one-step errors of every day from the first to the last, and where there is a row.

    ``smoothing``: the number of the exponential smoothing in the grid; its initial state is the
    best one
    """
    filled, there = _on_every_day(values, days, week)
    error = _filtered(filled[:, None] - filled[0], smoothing, week)
    return _beside_start(error, smoothing, week)[:, 0], there


def checked_effects(effects: Sequence[Any]) -> tuple[float, ...]:
    """Return effects that a file holds. Raises TypeError or ValueError unless they are numbers."""
    read = tuple(map(float, effects))
    if len(read) not in (0, COLUMNS) or not np.isfinite(read).all():
        raise ValueError(f"effects: expected {COLUMNS} numbers or none; got {len(read)}")
    return read


def _prior(seen: Sequence[_Seen], groups: Sequence[str]) -> CalendarPrior:
    """Return the mean effects of some groups of days and their spread, by moments."""
    columns = _columns(groups)
    matrices = np.array([one.matrix[columns][:, columns] for one in seen])
    sides = np.array([one.side[columns] for one in seen])
    independent = _independent(seen) / len(seen)
    total = independent * matrices.sum(0) + np.eye(len(columns))
    precision = np.diagonal(matrices, axis1=1, axis2=2)
    few = len(seen) < _MANY
    rare = few & (precision.mean(0) < _TWICE)  # one day of one series may have been anything
    mean = np.where(rare, 0.0, _solved(total, independent * sides.sum(0)))
    left = sides - matrices @ mean
    at = 0
    spreads: list[float] = []
    for group in groups:
        own = slice(at, at := at + GROUPS[group])
        excess = (np.square(left[:, own]) - precision[:, own]).sum(0)
        scale = np.square(precision[:, own]).sum(0)
        if few:  # they say little of the spread of a single day
            excess, scale = np.full_like(excess, excess.mean()), np.full_like(scale, scale.mean())
        spread = np.sqrt(np.maximum(excess / (scale + 1e-12), 0.0))
        spreads += np.where(rare[own], 0.0, spread).tolist()
    return CalendarPrior(tuple(groups), tuple(mean.tolist()), tuple(spreads))


def _excess(seen: Sequence[_Seen], groups: Sequence[str]) -> float:
    """Return how far the mean effects of the last group exceed those of mere chance.

    It is Wald's statistic less its expectation, in its standard deviations (chi-squared).
    """
    columns = _columns(groups)
    matrix = np.mean([one.matrix for one in seen], axis=0)[columns][:, columns]
    sides = [one.days.T @ np.clip(one.error, -_FARTHEST, _FARTHEST) for one in seen]
    side: np.ndarray = np.mean(sides, axis=0)[columns]
    inverse = _solved(matrix + _RIDGE * np.eye(len(columns)), np.eye(len(columns)))
    freedom = GROUPS[groups[-1]]
    effects = (inverse @ side)[-freedom:]
    alone = _solved(inverse[-freedom:, -freedom:], effects)
    statistic = _independent(seen) * float(effects @ alone)
    return (statistic - freedom) / float(np.sqrt(2 * freedom))


def _posterior(seen: _Seen, prior: CalendarPrior) -> Float[np.ndarray, " column"]:
    """Return the effects of all special days on one series, in units of its errors."""
    columns = _columns(prior.groups)
    mean, spread = np.array(prior.mean), np.array(prior.spread)
    own = seen.matrix[columns][:, columns]
    # With S the spread: mean + S (S A S + 1)^-1 S (c - A mean), also where S is 0.
    inner = spread[:, None] * own * spread + np.eye(len(columns))
    out = np.zeros(COLUMNS)
    out[columns] = mean + spread * _solved(inner, spread * (seen.side[columns] - own @ mean))
    return out


def _judged(
    earlier: Sequence[_Seen], later: Sequence[_Seen], prior: CalendarPrior
) -> Float[np.ndarray, "series day"]:
    """Return the squared errors of later rows, with effects learned from earlier ones.

    NaN on days without a row.
    """
    left = [
        one._replace(error=one.error - one.days @ _posterior(before, prior))
        if prior.groups
        else one
        for before, one in zip(earlier, later, strict=True)
    ]
    return np.minimum(np.square(_by_day(left)), _FARTHEST**2)


def _independent(seen: Sequence[_Seen]) -> float:
    """Return how many independent series a panel stands for, as errors of one day are alike."""
    by_day = _by_day(seen)
    by_day = by_day[:, np.isfinite(by_day).any(0)]
    common = _deviation(np.nanmean(by_day, axis=0))
    return float(np.clip(1 / max(common**2, 1e-12), 1, len(seen)))


def _by_day(seen: Sequence[_Seen]) -> Float[np.ndarray, "series day"]:
    """Return the errors of several series by day; NaN on days without a row."""
    first = min(one.begin for one in seen)
    last = max(one.begin + len(one.error) for one in seen)
    out = np.full((len(seen), last - first), np.nan)
    for row, one in enumerate(seen):
        there = one.days.any(1) | (one.error != 0)
        out[row, one.begin - first :][: len(one.error)] = np.where(there, one.error, np.nan)
    return out


def _solved(matrix: Matrix, side: np.ndarray) -> np.ndarray:
    """Solve ``matrix @ x = side`` for x."""
    return np.asarray(np.linalg.solve(matrix, side), float)


def _columns(groups: Sequence[str]) -> Int[np.ndarray, " column"]:
    """Return the columns of some groups, in the order of the groups."""
    ends = np.cumsum(list(GROUPS.values()))
    begins = dict(zip(GROUPS, ends - list(GROUPS.values()), strict=True))
    parts = [begins[group] + np.arange(GROUPS[group]) for group in groups]
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def _filtered(columns: Columns, number: int, week: int) -> Columns:
    """Return the one-step errors of an exponential smoothing that starts at zero.

    ``number``: of its smoothing parameters in the grid
    """
    from scipy.signal import lfilter  # pyright: ignore[reportUnknownVariableType]

    level, season = _GRID[number]
    above, below = np.zeros(week + 2), np.zeros(week + 2)
    above[[0, 1, week, week + 1]] = 1, -1, -1, 1
    below[[0, 1, week, week + 1]] = 1, level - 1, season - 1, 1 - level - season
    return np.asarray(lfilter(above, below, columns, axis=0))


def _beside_start(columns: Columns, number: int, week: int) -> Columns:
    """Return filtered columns less what a change of the initial state would explain."""
    free = _start(len(columns), number, week)
    return columns - free @ (free.T @ columns)


@functools.lru_cache(maxsize=16)
def _start(length: int, number: int, week: int) -> Columns:
    """Return how errors depend on the initial state, as orthonormal columns."""
    days = np.arange(length)[:, None] % week == np.arange(week)
    return np.linalg.qr(_filtered(days.astype(float), number, week))[0]


def _on_every_day(
    values: Row, days: Int[np.ndarray, " row"], week: int
) -> tuple[Row, Bool[np.ndarray, " step"]]:
    """Return the values on every day from the first to the last, and where there is a row.

    A missing day has the value of the week before.
    """
    steps = days - days[0]
    filled = np.full(steps[-1] + 1, np.nan)
    filled[steps] = values
    there = np.isfinite(filled)
    for step in np.flatnonzero(~there):
        filled[step] = filled[step - week if step >= week else step - 1]
    return filled, there


def _unit(errors: Row) -> float:
    """Return the deviation of errors, also of a series that rarely changes."""
    largest = float(np.abs(errors).max())
    if not largest > 0:
        return 1.0
    scaled = errors / largest  # whose squares are numbers
    return largest * max(_deviation(scaled), float(np.sqrt(np.square(scaled).mean())) / _STICKY)


def _deviation(errors: Row) -> float:
    """Return the standard deviation of errors, but for a few far ones."""
    return 1.4826 * float(np.median(np.abs(errors)))
