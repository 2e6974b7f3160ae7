"""Effects of what is known in advance: special steps of the calendar, and covariates.

The special steps of a :class:`Rhythm` are holidays, the ends of months and the like. The response
to a covariate, such as a promotion or a price, is a share of the level of a series: a change of its
logarithm, or a multiple of its mean absolute value.
"""

import functools
from collections.abc import Mapping, Sequence
from typing import Annotated, NamedTuple

import numpy as np
from jaxtyping import Bool, Int, Shaped
from msgspec import Meta

from forecaster.classical import linear_filter
from forecaster.series.calendar.rhythms import RHYTHMS, Rhythm
from forecaster.series.calendar.spacing import fill
from forecaster.series.regression import (
    Columns,
    Row,
    Seen,
    Shrunk,
    Smoothing,
    best_smoothing,
    coefficients_of,
    learn_coefficients,
    step_errors,
    unit_of,
)

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
    return Seen.of(error * there, special, unit_of(error[there]), int(steps[0]))


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
    return Seen.of(both[:, 0], both[:, 1:] * (history.level / unit), unit, -len(both))


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
