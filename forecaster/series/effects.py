"""Effects of what is known in advance: special steps of the calendar, and covariates.

The special steps of a :class:`Rhythm` are holidays, the ends of months and the like. The response
to a covariate, such as a promotion or a price, is a share of the level of a series: a change of its
logarithm, or a multiple of its mean absolute value.

Both are coefficients of columns, learned from the one-step errors of all series of a panel.
A series is a level that wanders, a season that changes slowly, and the effects of its columns. The
errors of exponential smoothing with a season are nearly independent, so that least squares on them
is generalised least squares on the values (Hyndman, Koehler, Ord & Snyder 2008, Forecasting with
Exponential Smoothing, chapter 9). Each series' coefficients are shrunk to the mean of the panel, by
as much as its series agree (empirical Bayes; Efron & Morris 1973, JASA 68): a series of two years
has seen only one Christmas or two, and one that was hardly ever promoted responds as the others do.

A group of columns is used where the mean coefficients exceed those of mere chance (Wald's test),
and where those learned from the earlier part of the panel made the errors of the later part
smaller.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped
from msgspec import Meta

from forecaster.classical import linear_filter
from forecaster.series.calendar.rhythms import RHYTHMS, Rhythm
from forecaster.series.calendar.spacing import fill

Row: TypeAlias = Float[np.ndarray, " step"]
Columns: TypeAlias = Float[np.ndarray, "step column"]
Matrix: TypeAlias = Float[np.ndarray, "column column"]
GRID = [(level, season) for level in (0.02, 0.1, 0.3, 0.6, 0.95) for season in (0.02, 0.1)]
"""Smoothing of level and season; up to a random walk, whose errors otherwise resemble seasons."""
Smoothing: TypeAlias = Annotated[int, Meta(ge=0, lt=len(GRID))]
"""The number of an exponential smoothing in the grid."""
_STICKY = 5.0  # largest root mean square of errors, in their unit
_RIDGE = 1e-6  # for columns that are zero on every row
_MANY = 8  # fewest series that show how much the coefficients of a single column differ
_TWICE = 1.6  # squares of a column that is 1 on two steps or more, after the filter
_TRAINED = 0.75  # share of the rows; the rest shows whether coefficients help
_SURE = 5.0  # standard deviations of chi-squared by which they exceed those of mere chance
_LARGEST = 50.0  # deviations; a day that a shop is closed, or a promotion, has an effect of dozens
_FARTHEST = 8.0  # deviations; errors beyond count as this when coefficients are judged


class Seen(NamedTuple):
    """The evidence of one series on its coefficients, in units of its one-step errors.

    - ``error``: the error of each step; 0 where there is no row
    - ``columns``: the filtered columns; 0 where there is no row
    - ``unit``: the deviation of the errors
    - ``begin``: the number of the first step, by which series stand side by side
    - ``matrix``, ``side``: the normal equations
    """

    error: Row
    columns: Columns
    unit: float
    begin: int
    matrix: Matrix
    side: Float[np.ndarray, " column"]

    @staticmethod
    def from_errors(error: Row, columns: Columns, unit: float, begin: int) -> "Seen":
        """Return the evidence of errors in any unit, and of columns in theirs."""
        error = np.clip(error / unit, -_LARGEST, _LARGEST)
        return Seen(error, columns, unit, begin, columns.T @ columns, columns.T @ error)

    def part(self, rows: slice) -> "Seen":
        """Return the evidence of some rows."""
        begin = self.begin + (rows.start or 0)
        return Seen.from_errors(self.error[rows], self.columns[rows], 1.0, begin)


class Shrunk(NamedTuple):
    """What the coefficients of some groups of columns have in common, over the panel.

    - ``groups``: the groups that are used
    - ``mean``, ``spread``: of each of their columns
    """

    groups: tuple[str, ...] = ()
    mean: tuple[float, ...] = ()
    spread: tuple[float, ...] = ()


def learn_coefficients(
    seen: Sequence[Seen], sizes: Mapping[str, int], allowed: Sequence[str]
) -> Shrunk:
    """Return what is common to coefficients, of those groups of columns that help.

    ``sizes``: the number of columns of each group, in order; ``allowed``: the groups to try
    """
    cuts = [int(_TRAINED * len(one.error)) for one in seen]
    earlier = [one.part(slice(cut)) for one, cut in zip(seen, cuts, strict=True)]
    later = [one.part(slice(cut, None)) for one, cut in zip(seen, cuts, strict=True)]
    found = Shrunk()
    error = _errors_left(earlier, later, found, sizes)
    for group in allowed:
        groups = (*found.groups, group)
        if _excess(seen, groups, sizes) < _SURE:
            continue
        tried = _common(earlier, groups, sizes)
        new = _errors_left(earlier, later, tried, sizes)
        if np.nanmean(error - new) > 0:
            found, error = tried, new
    return _common(seen, found.groups, sizes) if found.groups else found


def coefficients_of(
    seen: Seen, common: Shrunk, sizes: Mapping[str, int]
) -> Float[np.ndarray, " column"]:
    """Return the coefficients of all columns for one series, in units of its errors.

    With S the spread they are mean + S (S A S + 1)^-1 S (c - A mean), also where S is 0.
    """
    columns = _columns(common.groups, sizes)
    mean, spread = np.array(common.mean), np.array(common.spread)
    own, side = seen.matrix[columns][:, columns], seen.side[columns]
    inner = spread[:, None] * own * spread + np.eye(len(mean))
    out = np.zeros(sum(sizes.values()))
    out[columns] = mean + spread * _solved(inner, spread * (side - own @ mean))
    return out


def best_smoothing(units: Callable[[int], Sequence[float]]) -> int:
    """Return the number of the smoothing with the smallest errors in a panel.

    ``units``: returns the deviation of each series' errors for the number of a smoothing
    """
    return int(np.argmin([np.log(units(number)).sum() for number in range(len(GRID))]))


def _filtered(columns: Columns, number: int, season: int) -> Columns:
    """Return the one-step errors of an exponential smoothing that starts at zero.

    - ``number``: the number of its smoothing parameters in the grid
    - ``season``: steps in a season; 1 for none
    """
    of_level, of_season = GRID[number]
    if season == 1:
        return linear_filter([1.0, -1.0], [1.0, of_level - 1], columns, axis=0)
    above, below = np.zeros(season + 2), np.zeros(season + 2)
    above[[0, 1, season, season + 1]] = 1, -1, -1, 1
    below[[0, 1, season, season + 1]] = 1, of_level - 1, of_season - 1, 1 - of_level - of_season
    return linear_filter(above, below, columns, axis=0)


def step_errors(columns: Columns, number: int, season: int) -> Columns:
    """Return the one-step errors of an exponential smoothing, whatever its initial state was."""
    (free, gram), made = _start(len(columns), number, season), _filtered(columns, number, season)
    return made - free @ _solved(gram, free.T @ made)


@functools.lru_cache(maxsize=16)
def _start(length: int, number: int, season: int) -> tuple[Columns, Matrix]:
    """Return how errors depend on the initial state, and the products of these columns.

    A column is that of the step before, a step later.
    """
    steps = np.arange(length)[:, None] % season == 0
    padded = np.pad(_filtered(steps.astype(float), number, season)[:, 0], (season - 1, 0))
    free = np.lib.stride_tricks.sliding_window_view(padded, season)[:, ::-1].copy()
    return free, free.T @ free


def _solved(matrix: Matrix, side: np.ndarray) -> np.ndarray:
    """Solve ``matrix @ x = side`` for x."""
    return np.asarray(np.linalg.solve(matrix, side), float)


def unit_of(errors: Row) -> float:
    """Return the deviation of errors, also of a series that rarely changes."""
    largest = float(np.abs(errors).max())
    if not largest > 0:
        return 1.0
    scaled = errors / largest  # so that squares do not overflow
    return largest * max(_deviation_of(scaled), float(np.sqrt(np.square(scaled).mean())) / _STICKY)


def _deviation_of(errors: Row) -> float:
    """Return the standard deviation of errors, without a few extreme ones."""
    return 1.4826 * float(np.median(np.abs(errors)))


def _common(seen: Sequence[Seen], groups: Sequence[str], sizes: Mapping[str, int]) -> Shrunk:
    """Return the mean coefficients of some groups of columns and their spread, by moments."""
    columns = _columns(groups, sizes)
    matrices = np.array([one.matrix[columns][:, columns] for one in seen])
    sides = np.array([one.side[columns] for one in seen])
    independent = _independent(seen) / len(seen)
    total = independent * matrices.sum(0) + np.eye(len(columns))
    precision = np.diagonal(matrices, axis1=1, axis2=2)
    few = len(seen) < _MANY
    rare = few & (precision.mean(0) < _TWICE)  # a single step of one series proves nothing
    mean = np.where(rare, 0.0, _solved(total, independent * sides.sum(0)))
    left = sides - matrices @ mean
    at = 0
    spreads: list[float] = []
    for group in groups:
        own = slice(at, at := at + sizes[group])
        excess = (np.square(left[:, own]) - precision[:, own]).sum(0)
        scale = np.square(precision[:, own]).sum(0)
        if few:  # few series say little about the spread of a single column
            excess, scale = np.full_like(excess, excess.mean()), np.full_like(scale, scale.mean())
        spread = np.sqrt(np.maximum(excess / (scale + 1e-12), 0.0))
        spreads += np.where(rare[own], 0.0, spread).tolist()
    return Shrunk(tuple(groups), tuple(mean.tolist()), tuple(spreads))


def _excess(seen: Sequence[Seen], groups: Sequence[str], sizes: Mapping[str, int]) -> float:
    """Return how far the mean coefficients of the last group exceed those of mere chance.

    It is Wald's statistic less its expectation, in its standard deviations (chi-squared).
    """
    columns = _columns(groups, sizes)
    matrix = np.mean([one.matrix for one in seen], axis=0)[columns][:, columns]
    sides = [one.columns.T @ np.clip(one.error, -_FARTHEST, _FARTHEST) for one in seen]
    side: np.ndarray = np.mean(sides, axis=0)[columns]
    inverse = _solved(matrix + _RIDGE * np.eye(len(columns)), np.eye(len(columns)))
    freedom = sizes[groups[-1]]
    effects = (inverse @ side)[-freedom:]
    alone = _solved(inverse[-freedom:, -freedom:], effects)
    statistic = _independent(seen) * float(effects @ alone)
    return (statistic - freedom) / float(np.sqrt(2 * freedom))


def _errors_left(
    earlier: Sequence[Seen], later: Sequence[Seen], common: Shrunk, sizes: Mapping[str, int]
) -> Float[np.ndarray, "series step"]:
    """Return the squared errors of later rows, with coefficients learned from earlier ones.

    NaN at steps without a row.
    """
    left = [
        one._replace(error=one.error - one.columns @ coefficients_of(before, common, sizes))
        for before, one in zip(earlier, later, strict=True)
    ]
    return np.minimum(np.square(_by_step(left)), _FARTHEST**2)


def _independent(seen: Sequence[Seen]) -> float:
    """Return how many independent series a panel is worth, as errors of one step are alike."""
    by_step = _by_step(seen)
    by_step = by_step[:, np.isfinite(by_step).any(0)]
    common = _deviation_of(np.nanmean(by_step, axis=0)) if by_step.size else 0.0
    return float(np.clip(1 / max(common**2, 1e-12), 1, len(seen)))


def _by_step(seen: Sequence[Seen]) -> Float[np.ndarray, "series step"]:
    """Return the errors of several series by step; NaN at steps without a row."""
    first = min(one.begin for one in seen)
    last = max(one.begin + len(one.error) for one in seen)
    out = np.full((len(seen), last - first), np.nan)
    for row, one in enumerate(seen):
        there = one.columns.any(1) | (one.error != 0)
        out[row, one.begin - first :][: len(one.error)] = np.where(there, one.error, np.nan)
    return out


def _columns(groups: Sequence[str], sizes: Mapping[str, int]) -> Int[np.ndarray, " column"]:
    """Return the columns of some groups, in the order of the groups."""
    ends = np.cumsum(list(sizes.values()))
    end_of = dict(zip(sizes, ends, strict=True))
    parts = [end_of[group] - sizes[group] + np.arange(sizes[group]) for group in groups]
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


_COMPARED = 5_000  # latest rows by which smoothings are compared
_YEAR = np.timedelta64(365, "D")


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


def learn_calendar(
    rows: Sequence[tuple[Row, Shaped[np.ndarray, " row"]]], rhythm: str = "D"
) -> CalendarPrior:
    """Return what the series of a panel have in common; ``NO_EFFECTS`` where that is nothing.

    - ``rows``: the values of each series, or their logarithms, and their dates
    - ``rhythm``: the rhythm of the series, one of :data:`RHYTHMS`
    """
    known = RHYTHMS[rhythm]
    long = [_latest(*one, known) for one in rows]
    long = [one for one in long if len(one[-1]) >= known.fewest]
    long = long[:: max(1, -(-len(long) // known.most))]
    if not long:
        return NO_EFFECTS

    def units(smoothing: int) -> list[float]:
        made = (
            _calendar_errors(z[-_COMPARED:], own[-_COMPARED:], smoothing, known)
            for z, _, own in long
        )
        return [unit_of(error[there]) for error, there in made]

    smoothing = best_smoothing(units)
    seen = [_calendar_seen(z, own, smoothing, known) for z, _, own in long]
    years = np.median([np.ptp(times) / _YEAR for _, times, _ in long])
    allowed = [group for group, needed in known.years.items() if years >= needed]
    found = learn_coefficients(seen, known.sizes, allowed)
    return CalendarPrior(*found, smoothing, rhythm) if found.groups else NO_EFFECTS


def effects_of(
    prior: CalendarPrior, values: Row, times: Shaped[np.ndarray, " row"]
) -> tuple[float, ...]:
    """Return the effect of each column of special steps on a series; () for a short one.

    ``values``: of the series, or their logarithms; ``times``: their dates
    """
    known = RHYTHMS[prior.rhythm]
    values, _, steps = _latest(values, times, known)
    if len(steps) < known.least:
        return ()
    seen = _calendar_seen(values, steps, prior.smoothing, known)
    effect = coefficients_of(seen, Shrunk(*prior[:3]), known.sizes) * seen.unit
    return tuple(effect.tolist()) if np.isfinite(effect).all() else ()


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
    values: Row, times: Shaped[np.ndarray, " row"], rhythm: Rhythm
) -> tuple[Row, Shaped[np.ndarray, " row"], Int[np.ndarray, " row"]]:
    """Return values, dates and steps of the latest rows, which effects are learned from.

    If more steps are missing than present, only rows after the last gap of more than a season
    count: rows before it may have a wrong year.
    """
    steps = rhythm.numbers(times)
    steps = steps[steps > steps[-1:] - rhythm.latest]
    if len(steps) and steps[-1] - steps[0] > 2 * len(steps):
        far = np.flatnonzero(np.diff(steps) > rhythm.season)
        steps = steps[far[-1] + 1 :] if len(far) else steps
    return values[-len(steps) :], times[-len(steps) :], steps


def _calendar_seen(
    values: Row, steps: Int[np.ndarray, " row"], smoothing: int, rhythm: Rhythm
) -> Seen:
    """Return the evidence of a series on its effects; it must be longer than two seasons."""
    error, there = _calendar_errors(values, steps, smoothing, rhythm)
    special = _special(rhythm.name, smoothing, int(steps[0]), len(error))
    special = special if there.all() else special * there[:, None]
    return Seen.from_errors(error * there, special, unit_of(error[there]), int(steps[0]))


@functools.lru_cache(maxsize=4)
def _special(name: str, smoothing: int, first: int, length: int) -> Columns:
    """Return the filtered special steps from one on, whatever the initial state.

    Cached, as most series of a panel have the same steps.
    """
    raw = RHYTHMS[name].special(first, first + length - 1)
    return step_errors(raw, smoothing, RHYTHMS[name].season)


def _calendar_errors(
    values: Row, steps: Int[np.ndarray, " row"], smoothing: int, rhythm: Rhythm
) -> tuple[Row, Bool[np.ndarray, " step"]]:
    """Return the errors at every step from the first to the last, and where there is a row.

    A missing step has the value of the season before. The initial state is the best one.
    """
    filled = np.full(steps[-1] - steps[0] + 1, np.nan)
    filled[steps - steps[0]] = values
    there = np.isfinite(filled)
    fill(filled, rhythm.season)
    return step_errors(filled[:, None] - filled[0], smoothing, rhythm.season)[:, 0], there


_ALL = "covariates"  # all columns are tried together
_FEWEST = 16  # rows of a series that responses are learned from
_FEWEST_OWN = 4  # rows with which a series' own errors count
_MOST_ROWS = 5_000  # latest rows that count
_MOST_SERIES = 250  # from which a panel's responses are learned
_MOST_COLUMNS = 50  # networks alone learn from more
_PERSISTENT, _MOST_PERSISTENT = 0.2, 0.99  # least correlation of errors that matters; the most
_QUIETEST = 1e-3  # least deviation of errors, as a share of the level; smaller ones overflow


class ResponsePrior(NamedTuple):
    """What the responses of a panel's series have in common, by column.

    - ``mean``: the mean response to a change by one deviation, in units of a series' level
    - ``spread``: the spread of the responses around the mean
    - ``deviation``: the deviation of each column within the series
    - ``smoothing``: the number of the exponential smoothing in the grid
    - ``persistence``: the correlation of its errors from one step to the next, as of series that
      move smoothly; they and the columns are filtered by it, too

    Without columns no series responds.
    """

    mean: tuple[float, ...] = ()
    spread: tuple[Annotated[float, Meta(ge=0)], ...] = ()
    deviation: tuple[Annotated[float, Meta(gt=0)], ...] = ()
    smoothing: Smoothing = 0
    persistence: Annotated[float, Meta(ge=0, lt=1)] = 0.0

    def per_unit(self, logarithmic: Sequence[bool]) -> tuple[float, ...]:
        """Return the mean effect of a change of each column by 1, as a share of a series.

        ``logarithmic``: for each series whether its response is one of logarithms; those of most
        are returned
        """
        with np.errstate(over="ignore"):
            shares = np.array(self.mean) / np.array(self.deviation)
            most = 2 * sum(logarithmic) > len(logarithmic)
            return tuple((np.expm1(shares) if most else shares).tolist())

    def fits(self, columns: int) -> bool:
        """Return whether there is a response to each column or none, as may not be in a file."""
        return len(self.mean) == len(self.spread) == len(self.deviation) and (
            len(self.mean) in (0, columns)
        )


NO_RESPONSES = ResponsePrior()


class History(NamedTuple):
    """The steps of one series up to now.

    - ``values`` (step,): the series or its logarithm, missing steps filled
    - ``numbers`` (step, column): what was known in advance of each step
    - ``there`` (step,): whether the step has a row
    - ``season``: steps in its season; 1 for none
    - ``level``: what responses are shares of: 1 for logarithms
    - ``counts``: whether the values are counts
    """

    values: Row
    numbers: Columns
    there: Bool[np.ndarray, " step"]
    season: int
    level: float
    counts: bool


def learn_responses(histories: Sequence[History]) -> ResponsePrior:
    """Return what the series of a panel have in common; ``NO_RESPONSES`` where that is nothing.

    All histories have the same columns.
    """
    long = [one for one in histories if one.there.sum() >= _FEWEST and one.level > 0]
    long = long[:: max(1, -(-len(long) // _MOST_SERIES))]
    columns = long[0].numbers.shape[1] if long else 0
    if not 0 < columns <= _MOST_COLUMNS:
        return NO_RESPONSES
    variances = np.mean([one.numbers[one.there].var(0) for one in long], axis=0)
    deviation = np.sqrt(np.where((variances > 0) & np.isfinite(variances), variances, 1.0))

    def units(smoothing: int) -> list[float]:
        errors = (_latest_errors(one.values[:, None], smoothing, one)[:, 0] for one in long)
        return [_unit(error, one) for error, one in zip(errors, long, strict=True)]

    smoothing = best_smoothing(units)
    persistence = _persistence(long, smoothing)
    seen = [_seen(one, deviation, smoothing, persistence) for one in long]
    found = learn_coefficients(seen, {_ALL: columns}, [_ALL])
    if not found.groups:
        return NO_RESPONSES
    return ResponsePrior(
        found.mean, found.spread, tuple(deviation.tolist()), smoothing, persistence
    )


def responses_of(prior: ResponsePrior, history: History) -> tuple[float, ...]:
    """Return how one series responds to a change of each column by 1.

    It is in units of the values, or of counts as a share of their level.
    """
    if not prior.mean:
        return ()
    own, deviation = np.array(prior.mean), np.array(prior.deviation)
    if history.there.sum() >= _FEWEST_OWN and history.level > 0:
        seen = _seen(history, deviation, prior.smoothing, prior.persistence)
        common = Shrunk((_ALL,), prior.mean, prior.spread)
        own = coefficients_of(seen, common, {_ALL: len(own)})
    responses = own * (1.0 if history.counts else history.level) / deviation
    return tuple(responses.tolist()) if np.isfinite(responses).all() else ()


def _seen(history: History, deviation: np.ndarray, smoothing: int, persistence: float) -> Seen:
    """Return the evidence of a series; its numbers in units of ``deviation``."""
    both = np.column_stack([history.values, history.numbers / deviation])
    both = _latest_errors(both, smoothing, history)
    if persistence:
        both = linear_filter([1.0, -persistence], [1.0], both, axis=0)
    unit = _unit(both[:, 0], history)
    both *= history.there[-_MOST_ROWS:, None]
    return Seen.from_errors(both[:, 0], both[:, 1:] * (history.level / unit), unit, -len(both))


def _persistence(histories: Sequence[History], smoothing: int) -> float:
    """Return the correlation of errors from one step to the next; 0 where it hardly matters.

    It is the median over the series. Errors of one smoothing are correlated where series keep
    their direction, and any other smooth series would then seem to explain them.
    """
    found: list[float] = []
    for one in histories:
        error = _latest_errors(one.values[:, None], smoothing, one)[:, 0] * one.there[-_MOST_ROWS:]
        if squares := float((error**2).sum()):
            found.append(float((error[1:] * error[:-1]).sum()) / squares)
    usual = float(np.median(found)) if found else 0.0
    return min(usual, _MOST_PERSISTENT) if usual > _PERSISTENT else 0.0


def _unit(errors: Row, history: History) -> float:
    """Return the deviation of errors; of counts, which are often equal, with all of them."""
    errors = errors[history.there[-_MOST_ROWS:]]
    unit = float(np.sqrt(np.square(errors).mean())) if history.counts else unit_of(errors)
    return max(unit, _QUIETEST * history.level) or 1.0


def _latest_errors(columns: Columns, smoothing: int, history: History) -> Columns:
    """Return the one-step errors of the latest rows."""
    columns = columns[-_MOST_ROWS:]
    season = history.season if len(columns) > 2 * history.season + 1 else 1
    return step_errors(columns - columns[0], smoothing, season)
