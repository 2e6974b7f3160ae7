"""Effects of the special steps of a :class:`Rhythm`, such as holidays and the ends of months."""

import functools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int, Shaped

from forecaster.series.calendar.gaps import fill
from forecaster.series.calendar.rhythms import RHYTHMS, Rhythm
from forecaster.series.known.regression import (
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
