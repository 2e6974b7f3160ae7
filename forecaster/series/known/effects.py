"""Effects of the calendar: holidays, the ends of months, trading days, the time of year.

A series is a level that wanders, a season that changes slowly, and effects of the special steps of
its :class:`Rhythm`, such as the holidays of daily rows and the trading days of monthly ones. The
effects are estimated by generalised least squares: values and steps go through the filter of an
exponential smoothing with a season, whose errors are then regressed on the filtered columns
(Hyndman, Koehler, Ord & Snyder 2008, Forecasting with Exponential Smoothing, chapter 9). Each
series' effects are shrunk to the mean effects of the panel, by as much as the panel's series agree
(empirical Bayes; Efron & Morris 1973, JASA 68), since a series of two years has seen only one
Christmas or two.

A group of columns is used where its mean effects exceed those of mere chance (Wald's test), and
where effects learned from the earlier part of the panel made the errors of the later part smaller.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from forecaster.series.calendar.rhythms import RHYTHMS, Rhythm
from forecaster.series.known.smoothing_errors import (
    GRID,
    Columns,
    Matrix,
    Row,
    Smoothing,
    beside_start,
    deviation_of,
    filtered,
    posterior,
    solved,
    unit_of,
)

_RIDGE = 1e-6  # for special days on which no row fell
_MANY = 8  # fewest series that show how much the effects of a single day differ
_TWICE = 1.6  # squares of a column that is 1 on two days or more, after the filter
_KEPT = 1 << 25  # numbers in the filtered columns that are kept
_COMPARED = 5_000  # latest rows by which smoothings are compared
_TRAINED = 0.75  # share of the rows; the rest shows whether effects help
_SURE = 5.0  # standard deviations of chi-squared by which effects exceed those of mere chance
_LARGEST = 50.0  # deviations; a day that a shop is closed has an effect of dozens
_FARTHEST = 8.0  # deviations; errors beyond count as this when effects are judged


class CalendarPrior(NamedTuple):
    """What the series of a panel have in common, in units of their one-step errors.

    - ``groups``: the groups of the rhythm that are used
    - ``mean``: the mean effect of each column; empty where no group is used
    - ``spread``: the spread of the effects around the mean, by column
    - ``smoothing``: the number of the exponential smoothing in the grid
    - ``rhythm``: the rhythm of these series, one of :data:`RHYTHMS`
    """

    groups: tuple[str, ...] = ()
    mean: tuple[float, ...] = ()
    spread: tuple[float, ...] = ()
    smoothing: Smoothing = 0
    rhythm: str = "D"

    def fits(self) -> bool:
        """Return whether there is an effect for each column, as there may not be in a file."""
        columns: Mapping[str, int] = RHYTHMS[self.rhythm].sizes if self.rhythm in RHYTHMS else {}
        known = set(self.groups) <= set(columns) and len({*self.groups}) == len(self.groups)
        count = sum(columns[group] for group in self.groups) if known else -1
        return len(self.mean) == len(self.spread) == count


NO_EFFECTS = CalendarPrior()


class _Seen(NamedTuple):
    """The evidence of one series on its effects, in units of its one-step errors.

    - ``error``: the error of each step; 0 where there is no row
    - ``special``: the filtered columns of special steps; 0 where there is no row
    - ``unit``: the deviation of the errors
    - ``begin``: the step of the first row, counted from the panel's first
    - ``matrix``, ``side``: the normal equations of the effects
    """

    error: Row
    special: Columns
    unit: float
    begin: int
    matrix: Matrix
    side: Float[np.ndarray, " column"]

    def part(self, rows: slice) -> "_Seen":
        """Return the evidence of some rows."""
        error, special = self.error[rows], self.special[rows]
        begin = self.begin + (rows.start or 0)
        return _Seen(error, special, self.unit, begin, special.T @ special, special.T @ error)


class CalendarFilter:
    """The filtered special steps of a panel; series with the same first and last step share them.

    They are filtered from the series' own first step on. Filtered once for the whole panel, their
    last bits would depend on the steps of the other series.
    """

    def __init__(self, first: int, last: int, rhythm: Rhythm) -> None:
        self._first, self._season = first, rhythm.season
        self._raw = rhythm.special(first, last)
        self._projected: dict[tuple[int, int, int], tuple[Columns, Matrix]] = {}

    @staticmethod
    def of(steps: Sequence[Int[np.ndarray, " row"]], rhythm: Rhythm) -> "CalendarFilter":
        """Return the filter for the steps of several series."""
        first, last = min(int(own[0]) for own in steps), max(int(own[-1]) for own in steps)
        return CalendarFilter(first, last, rhythm)

    def seen(self, values: Row, steps: Int[np.ndarray, " row"], smoothing: int) -> _Seen:
        """Return the evidence of a series on its effects; it must be longer than two seasons.

        ``smoothing``: the number of the exponential smoothing in the grid
        """
        error, there = _one_step_errors(values, steps, smoothing, self._season)
        begin = int(steps[0]) - self._first
        special, matrix = self._special_of(smoothing, begin, len(error))
        unit = unit_of(error[there])
        error = np.where(there, np.clip(error / unit, -_LARGEST, _LARGEST), 0.0)
        if not there.all():
            missing = special[~there]
            special, matrix = special * there[:, None], matrix - missing.T @ missing
        return _Seen(error, special, unit, begin, matrix, special.T @ error)

    def _special_of(self, number: int, begin: int, length: int) -> tuple[Columns, Matrix]:
        """Return a series' filtered columns, whatever its initial state, and their products."""
        key = number, begin, length
        if key not in self._projected:
            special = filtered(self._raw[begin : begin + length], number, self._season)
            if sum(kept.size for kept, _ in self._projected.values()) + special.size > _KEPT:
                self._projected.clear()
            special = beside_start(special, number, self._season)
            self._projected[key] = special, special.T @ special
        return self._projected[key]


def learn_calendar(
    rows: Sequence[Row], times: Sequence[Shaped[np.ndarray, " row"]], rhythm: str = "D"
) -> CalendarPrior:
    """Return what the series of a panel have in common; ``NO_EFFECTS`` where that is nothing.

    - ``rows``: the values of each series, or their logarithms
    - ``times``: their dates
    - ``rhythm``: the rhythm of the series, one of :data:`RHYTHMS`
    """
    known = RHYTHMS[rhythm]
    rows, times = _latest(rows, times, known)
    steps = [known.numbers(own) for own in times]
    enough = _in_one_era(steps, [len(own) >= known.fewest for own in steps], known)
    long = [number for number, usable in enumerate(enough) if usable]
    long = long[:: max(1, -(-len(long) // known.most))]
    if not long:
        return NO_EFFECTS
    chosen = [rows[number] for number in long], [steps[number] for number in long]
    smoothing = _best_smoothing(*chosen, known.season)
    shared = CalendarFilter.of(chosen[1], known)
    seen = [shared.seen(values, own, smoothing) for values, own in zip(*chosen, strict=True)]
    spans = [float((times[n][-1] - times[n][0]) / np.timedelta64(1, "D")) for n in long]
    years = float(np.median(spans)) / 365
    earlier = [one.part(slice(int(_TRAINED * len(one.error)))) for one in seen]
    later = [one.part(slice(int(_TRAINED * len(one.error)), None)) for one in seen]
    prior = NO_EFFECTS
    error = _judged(earlier, later, prior)
    for group, needed in known.years.items():
        if years < needed:
            continue
        groups = (*prior.groups, group)
        if _excess(seen, groups, known) < _SURE:
            continue
        tried = _prior(earlier, groups, known)
        new = _judged(earlier, later, tried)
        if np.nanmean(error - new) > 0:
            prior, error = tried, new
    if not prior.groups:
        return NO_EFFECTS
    return _prior(seen, prior.groups, known)._replace(smoothing=smoothing)


def effects_of(
    prior: CalendarPrior, rows: Sequence[Row], times: Sequence[Shaped[np.ndarray, " row"]]
) -> list[tuple[float, ...]]:
    """Return the effect of each column of special steps on each series; () for none.

    Arguments as of :func:`learn_calendar`.
    """
    known = RHYTHMS[prior.rhythm]
    rows, times = _latest(rows, times, known)
    steps = [known.numbers(own) for own in times]
    enough = _in_one_era(steps, [len(own) >= known.least for own in steps], known)
    if not prior.groups or not any(enough):
        return [()] * len(rows)
    usable_steps = [own for own, usable in zip(steps, enough, strict=True) if usable]
    shared = CalendarFilter.of(usable_steps, known)
    out: list[tuple[float, ...]] = []
    for values, own, usable in zip(rows, steps, enough, strict=True):
        if not usable:
            out.append(())
            continue
        seen = shared.seen(values, own, prior.smoothing)
        effect = _posterior(seen, prior) * seen.unit
        out.append(tuple(effect.tolist()) if np.isfinite(effect).all() else ())
    return out


def effects_on(
    effects: Sequence[float], times: Shaped[np.ndarray, "..."], rhythm: str = "D"
) -> np.ndarray:
    """Return the effects of the calendar at some times; 0 where a series has none."""
    if not len(effects) or not times.size:
        return np.zeros(times.shape)
    known = RHYTHMS[rhythm]
    steps = known.numbers(times)
    first, last = int(steps.min()), int(steps.max())
    # Not a matrix product, which rounds a step by the number of steps beside it.
    return (known.special(first, last) * np.asarray(effects)).sum(1)[steps - first]


def _latest(
    rows: Sequence[Row], times: Sequence[Shaped[np.ndarray, " row"]], rhythm: Rhythm
) -> tuple[list[Row], list[Shaped[np.ndarray, " row"]]]:
    """Return the latest rows of each series, within the steps that effects are learned from.

    If more steps are missing than present, only rows after the last gap of more than a season
    count: rows before it may have a wrong year.
    """
    begins: list[int] = []
    for own in times:
        steps = rhythm.numbers(own)
        begin = 0
        if len(steps):
            begin = int(np.argmax(steps > int(steps[-1]) - rhythm.latest))
            if int(steps[-1] - steps[begin]) > 2 * (len(steps) - begin):
                gaps: Int[np.ndarray, " gap"] = np.diff(steps[begin:])
                far = np.flatnonzero(gaps > rhythm.season)
                begin += int(far[-1]) + 1 if len(far) else 0
        begins.append(begin)
    return (
        [own[begin:] for own, begin in zip(rows, begins, strict=True)],
        [own[begin:] for own, begin in zip(times, begins, strict=True)],
    )


def _in_one_era(
    steps: Sequence[Int[np.ndarray, " row"]], usable: Sequence[bool], rhythm: Rhythm
) -> list[bool]:
    """Return which usable series do not begin long before the latest row of all.

    The special steps are computed from the first row of all to the last.
    """
    newest = max((int(own[-1]) for own, one in zip(steps, usable, strict=True) if one), default=0)
    return [
        one and int(own[0]) > newest - 2 * rhythm.latest
        for own, one in zip(steps, usable, strict=True)
    ]


def _best_smoothing(
    rows: Sequence[Row], steps: Sequence[Int[np.ndarray, " row"]], season: int
) -> int:
    """Return the number of the exponential smoothing with the smallest errors in a panel."""
    errors = [0.0] * len(GRID)
    for number in range(len(GRID)):
        for values, own in zip(rows, steps, strict=True):
            some = values[-_COMPARED:], own[-_COMPARED:]
            error, there = _one_step_errors(*some, number, season)
            errors[number] += float(np.log(unit_of(error[there])))
    return int(np.argmin(errors))


def _one_step_errors(
    values: Row, steps: Int[np.ndarray, " row"], smoothing: int, season: int
) -> tuple[Row, Bool[np.ndarray, " step"]]:
    """Return the errors at every step from the first to the last, and where there is a row.

    ``smoothing``: the number of the exponential smoothing in the grid; its initial state is the
    best one
    """
    filled, there = _on_every_step(values, steps, season)
    error = filtered(filled[:, None] - filled[0], smoothing, season)
    return beside_start(error, smoothing, season)[:, 0], there


def _prior(seen: Sequence[_Seen], groups: Sequence[str], rhythm: Rhythm) -> CalendarPrior:
    """Return the mean effects of some groups of columns and their spread, by moments."""
    columns = _columns(groups, rhythm)
    matrices = np.array([one.matrix[columns][:, columns] for one in seen])
    sides = np.array([one.side[columns] for one in seen])
    independent = _independent(seen) / len(seen)
    total = independent * matrices.sum(0) + np.eye(len(columns))
    precision = np.diagonal(matrices, axis1=1, axis2=2)
    few = len(seen) < _MANY
    rare = few & (precision.mean(0) < _TWICE)  # a single step of one series proves nothing
    mean = np.where(rare, 0.0, solved(total, independent * sides.sum(0)))
    left = sides - matrices @ mean
    at = 0
    spreads: list[float] = []
    for group in groups:
        own = slice(at, at := at + rhythm.sizes[group])
        excess = (np.square(left[:, own]) - precision[:, own]).sum(0)
        scale = np.square(precision[:, own]).sum(0)
        if few:  # few series say little about the spread of a single column
            excess, scale = np.full_like(excess, excess.mean()), np.full_like(scale, scale.mean())
        spread = np.sqrt(np.maximum(excess / (scale + 1e-12), 0.0))
        spreads += np.where(rare[own], 0.0, spread).tolist()
    return CalendarPrior(tuple(groups), tuple(mean.tolist()), tuple(spreads), rhythm=rhythm.name)


def _excess(seen: Sequence[_Seen], groups: Sequence[str], rhythm: Rhythm) -> float:
    """Return how far the mean effects of the last group exceed those of mere chance.

    It is Wald's statistic less its expectation, in its standard deviations (chi-squared).
    """
    columns = _columns(groups, rhythm)
    matrix = np.mean([one.matrix for one in seen], axis=0)[columns][:, columns]
    sides = [one.special.T @ np.clip(one.error, -_FARTHEST, _FARTHEST) for one in seen]
    side: np.ndarray = np.mean(sides, axis=0)[columns]
    inverse = solved(matrix + _RIDGE * np.eye(len(columns)), np.eye(len(columns)))
    freedom = rhythm.sizes[groups[-1]]
    effects = (inverse @ side)[-freedom:]
    alone = solved(inverse[-freedom:, -freedom:], effects)
    statistic = _independent(seen) * float(effects @ alone)
    return (statistic - freedom) / float(np.sqrt(2 * freedom))


def _posterior(seen: _Seen, prior: CalendarPrior) -> Float[np.ndarray, " column"]:
    """Return the effects of all columns on one series, in units of its errors."""
    rhythm = RHYTHMS[prior.rhythm]
    columns = _columns(prior.groups, rhythm)
    mean, spread = np.array(prior.mean), np.array(prior.spread)
    own = seen.matrix[columns][:, columns]
    out = np.zeros(rhythm.columns)
    out[columns] = posterior(own, seen.side[columns], mean, spread)
    return out


def _judged(
    earlier: Sequence[_Seen], later: Sequence[_Seen], prior: CalendarPrior
) -> Float[np.ndarray, "series step"]:
    """Return the squared errors of later rows, with effects learned from earlier ones.

    NaN at steps without a row.
    """
    left = [
        one._replace(error=one.error - one.special @ _posterior(before, prior))
        if prior.groups
        else one
        for before, one in zip(earlier, later, strict=True)
    ]
    return np.minimum(np.square(_by_step(left)), _FARTHEST**2)


def _independent(seen: Sequence[_Seen]) -> float:
    """Return how many independent series a panel is worth, as errors of one step are alike."""
    by_step = _by_step(seen)
    by_step = by_step[:, np.isfinite(by_step).any(0)]
    common = deviation_of(np.nanmean(by_step, axis=0))
    return float(np.clip(1 / max(common**2, 1e-12), 1, len(seen)))


def _by_step(seen: Sequence[_Seen]) -> Float[np.ndarray, "series step"]:
    """Return the errors of several series by step; NaN at steps without a row."""
    first = min(one.begin for one in seen)
    last = max(one.begin + len(one.error) for one in seen)
    out = np.full((len(seen), last - first), np.nan)
    for row, one in enumerate(seen):
        there = one.special.any(1) | (one.error != 0)
        out[row, one.begin - first :][: len(one.error)] = np.where(there, one.error, np.nan)
    return out


def _columns(groups: Sequence[str], rhythm: Rhythm) -> Int[np.ndarray, " column"]:
    """Return the columns of some groups, in the order of the groups."""
    sizes = list(rhythm.sizes.values())
    begins = dict(zip(rhythm.sizes, np.cumsum(sizes) - sizes, strict=True))
    parts = [begins[group] + np.arange(rhythm.sizes[group]) for group in groups]
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def _on_every_step(
    values: Row, steps: Int[np.ndarray, " row"], season: int
) -> tuple[Row, Bool[np.ndarray, " step"]]:
    """Return the values at every step from the first to the last, and where there is a row.

    A missing step has the value of the season before.
    """
    steps = steps - steps[0]
    filled = np.full(steps[-1] + 1, np.nan)
    filled[steps] = values
    there = np.isfinite(filled)
    for step in np.flatnonzero(~there):
        filled[step] = filled[step - season if step >= season else step - 1]
    return filled, there
