"""The season of young series, which they have seen hardly once, from the older ones of a panel.

A series is a level that wanders, and one effect for each phase of the season, such as each month of
the year. The effects are estimated by generalised least squares: values and phases go through the
filter of an exponential smoothing, whose errors are regressed on the filtered phases. Effects of
all series lie around the mean profile of the panel (empirical Bayes; Efron & Morris 1973, JASA 68).
How far, and beside how much noise, differs: each older series of the panel is an example, which
counts by how likely it makes the rows of the young one. So a product of five months is forecast
with the profile of its neighbours, and one of eighteen months mostly with its own.

The prior is used where it makes the errors of older series smaller if all but a few of their rows
are hidden: for series that have seen half a season, and for those that have seen little more than
one. Each half of the older series is forecast by the prior of the other, several times: each time
nothing after some end is known. A movement that they have in common at one time is no season.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
from jaxtyping import Float, Int, Shaped

from forecaster.series.calendar.rhythms import RHYTHMS
from forecaster.series.combination.anchors import combine
from forecaster.series.known.smoothing_errors import (
    GRID,
    Matrix,
    Row,
    beside_start,
    filtered,
)

YOUNG = 2
"""A series of fewer seasons is young."""
_LONGEST = 400  # steps of a season; a year of days has fewer
_OLD, _LATEST = 3, 6  # seasons of an older series: at least, and the latest that are learned from
_FEWEST, _MOST = 8, 200  # older series that a prior is learned from
_MOST_EFFECTS = 12_000  # of all of these, unless they are few
_JUDGED = 40  # older series that it is judged on, at most
_LEAST_ENDS, _USUAL_ENDS, _MOST_ENDS = 3, 4, 6  # at which it is judged
_SURE = 1.5  # standard errors by which it must make errors smaller
_SMOOTHINGS = range(0, len(GRID), 2)  # one for each smoothing of the level
_EXAMPLES = 30  # older series that are kept as examples, at most
_LEAST, _LEAST_NOISE = 1e-4, 1e-6  # spread of effects, and of errors: they are divided by
_AGES = (0.5, 1.3)  # seasons of an older series that are not hidden when the prior is judged
_LARGEST = 5.0  # a logarithm of a ratio, or a multiple of the level
_LARGEST_EFFECT = 1e151  # on values, which are 1e150 at most
_MOST_SPACING = 2.0**63

_T = TypeVar("_T")
Profile = Float[np.ndarray, " phase"]
Phases = Int[np.ndarray, " step"]
Steps = Int[np.ndarray, " step"]


class SeasonPrior(NamedTuple):
    """The season that the series of a panel have in common, in units of their levels.

    - ``mean``: the mean effect of each phase; empty where no season is shared
    - ``examples``: of some older series, the standard deviation of one-step errors, and that of the
      effects around the mean
    - ``smoothing``: the number of the exponential smoothing in the grid
    - ``rhythm``: the rhythm of these series, one of :data:`RHYTHMS`; empty for whole numbers
    - ``helps``: whether it helps series of less than one season, and of one to two
    - ``spacing``: of whole numbers, how far apart these are from row to row; 0 for dates
    """

    mean: tuple[float, ...] = ()
    examples: tuple[tuple[float, float], ...] = ()
    smoothing: int = 0
    rhythm: str = ""
    helps: tuple[bool, bool] = (False, False)
    spacing: float = 0.0

    @property
    def season(self) -> int:
        """The number of phases."""
        return len(self.mean)

    def helps_with(self, rows: int) -> bool:
        """Return whether the prior helps a series; ``rows``: the number of its rows."""
        old = rows >= YOUNG * self.season
        return not old and self.helps[int(rows >= self.season)]

    @staticmethod
    def from_json(fields: Sequence[Any]) -> "SeasonPrior":
        """Read what JSON made of the fields. Raises TypeError or ValueError for anything else."""
        mean, examples, smoothing, rhythm, (before, after), spacing = fields
        prior = SeasonPrior(
            _numbers(mean, -_LARGEST, _LARGEST),
            tuple((noise, spread) for noise, spread in examples),
            smoothing, rhythm, (before, after), spacing,
        )  # fmt: skip
        if prior != NO_SEASON and not _is_sound(prior):
            raise ValueError(f"transform: young: {list(fields)!r:.100}")
        return prior


NO_SEASON = SeasonPrior()


def _is_sound(prior: SeasonPrior) -> bool:
    """Return whether :func:`learn_season` may have made a prior."""
    noises, spreads = [noise for noise, _ in prior.examples], [other for _, other in prior.examples]
    _numbers(noises, _LEAST_NOISE, _LARGEST)
    _numbers(spreads, _LEAST, _LARGEST)
    (spacing,) = _numbers([prior.spacing], 0.0, _MOST_SPACING)
    sizes = 1 < prior.season <= _LONGEST and 0 < len(noises) <= _EXAMPLES
    sizes = sizes and type(prior.smoothing) is int and prior.smoothing in _SMOOTHINGS
    helps = all(type(one) is bool for one in prior.helps) and any(prior.helps)
    dated = type(prior.rhythm) is str and prior.rhythm in RHYTHMS
    return sizes and helps and (spacing == 0 if dated else prior.rhythm == "" and spacing >= 1)


def _numbers(values: Sequence[Any], least: float, most: float) -> tuple[float, ...]:
    """Return numbers that a file holds. Raises ValueError unless they are in these bounds."""
    if not all(type(one) in (int, float) and least <= one <= most for one in values):
        raise ValueError(
            f"transform: young: expected numbers from {least:g} to {most:g}; got {values!r:.100}"
        )
    return tuple(map(float, values))


def checked_profile(
    profile: Sequence[Any], unsure: Sequence[Any], noise: Any, *, logarithmic: bool
) -> tuple[tuple[float, ...], tuple[float, ...], float]:
    """Return the effects on a series that a file holds, how unsure each is, and the noise.

    Raises TypeError or ValueError unless :func:`profile_of` may have made them.
    """
    most = _LARGEST if logarithmic else _LARGEST_EFFECT
    if len(profile) != len(unsure):
        raise ValueError(f"transform: profile: {len(profile)} effects, {len(unsure)} of them known")
    (deviation,) = _numbers([noise], 0.0, most)
    return _numbers(profile, -most, most), _numbers(unsure, 0.0, most), deviation


def steps_of(times: Shaped[np.ndarray, "..."], rhythm: str, spacing: float) -> np.ndarray:
    """Return the steps of some times, counted from some step; ``spacing``: of whole numbers."""
    return RHYTHMS[rhythm].numbers(times) if rhythm else times // max(int(spacing), 1)


def learn_season(
    rows: Sequence[Row], steps: Sequence[Steps], season: int, rhythm: str, horizon: int
) -> SeasonPrior:
    """Return the season that series have in common; ``NO_SEASON`` where there is none.

    - ``rows``: the values of each series in units of its level, or their logarithms
    - ``steps``: their steps in the calendar, from :func:`steps_of`, without gaps
    - ``horizon``: the steps ahead that are forecast
    """
    old = [
        _Old(own, of % season, int(of[0]))
        for own, of in zip(rows, steps, strict=True)
        if len(own) >= _OLD * season and np.ptp(own[-_LATEST * season :]) > 0
    ]
    old = _every(old, min(_MOST, max(_JUDGED, _MOST_EFFECTS // season)))
    if len(old) < _FEWEST or not 1 < season <= _LONGEST:
        return NO_SEASON
    latest = [one.before(one.end, _LATEST * season) for one in old]
    smoothing = _smoothing_of(_every(latest, _JUDGED), season)
    helps = _helps(old, season, smoothing, horizon)
    if not any(helps):
        return NO_SEASON
    return _learned(latest, season, smoothing)._replace(rhythm=rhythm, helps=helps)


class _Old(NamedTuple):
    """An older series of a panel; ``begin``: the step of its first row."""

    values: Row
    phases: Phases
    begin: int

    @property
    def end(self) -> int:
        """The step after the last row."""
        return self.begin + len(self.values)

    def before(self, step: int, most: int) -> tuple[Row, Phases]:
        """Return the values and phases of at most ``most`` rows before a step."""
        rows = slice(max(step - self.begin - most, 0), max(step - self.begin, 0))
        return self.values[rows], self.phases[rows]


def _every(of: Sequence[_T], most: int) -> list[_T]:
    """Return every n-th, at most ``most``."""
    return list(of[:: max(1, -(-len(of) // most))])


class OwnSeason(NamedTuple):
    """The season of a young series.

    - ``effects``: the effect of each phase
    - ``unsure``: the standard deviation by which effects leave a forecast for each phase unsure. It
      includes what they leave unsure of the level, and what is missing in the errors of the rows
      that the effects were fitted to
    - ``noise``: the standard deviation of errors one step ahead, were the effects known
    """

    effects: Profile
    unsure: Profile
    noise: float


def profile_of(prior: SeasonPrior, values: Row, phases: Phases) -> OwnSeason:
    """Return the season of a young series.

    ``values``: in units of the level, or their logarithms
    """
    matrix, side, total = _evidence(values, phases, prior.season, prior.smoothing)
    mean, count = np.array(prior.mean), len(values)
    left = side - matrix @ mean
    squares = total - 2 * float(mean @ side) + float(mean @ matrix @ mean)
    noise, spread = (part[:, None] ** 2 for part in np.array(prior.examples).T)
    # In the basis of the eigenvectors of the evidence, the precision of each example is diagonal.
    eigen, basis = np.linalg.eigh(matrix)
    eigen, projected = np.maximum(eigen, 0.0), left @ basis
    variances = 1 / (eigen / noise + 1 / spread)
    by_example = variances * projected / noise  # less the mean
    likelihood = -0.5 * (
        (count - 1) * np.log(noise)[:, 0]
        + np.log(spread / variances).sum(1)
        + (squares - by_example @ projected) / noise[:, 0]
    )
    weight = np.exp(likelihood - likelihood.max())
    weight /= weight.sum()
    effects = weight @ by_example
    fitted = np.minimum((eigen * variances).sum(1, keepdims=True) / noise / count, 1.0)
    # What the effects leave unsure of the level at the end is unsure, too.
    less_level = basis - _level_weights(phases, prior.season, prior.smoothing) @ basis
    around = (by_example - effects) @ less_level.T
    each = variances @ np.square(less_level.T) + fitted * noise
    unsure = np.sqrt(weight @ (each + np.square(around)))
    known = np.clip(mean + basis @ effects, -_LARGEST, _LARGEST)
    return OwnSeason(known, np.minimum(unsure, _LARGEST), float(np.sqrt(weight @ noise[:, 0])))


def _level_weights(phases: Phases, season: int, smoothing: int) -> Profile:
    """Return how much the effect of each phase counts in the level at the end of a series."""
    of_level, _ = GRID[smoothing]
    weights = (1 - of_level) ** np.arange(len(phases))[::-1]
    return np.bincount(phases, weights, season) / weights.sum()


def _evidence(
    values: Row, phases: Phases, season: int, smoothing: int
) -> tuple[Matrix, Row, float]:
    """Return the normal equations of effects that add up to zero, and the squares of errors."""
    columns = (phases[:, None] == np.arange(season)) - 1 / season
    both = np.concatenate([columns, (values - values[0])[:, None]], axis=1)
    both = beside_start(filtered(both, smoothing, 1), smoothing, 1)
    columns, error = both[:, :-1], both[:, -1]
    return columns.T @ columns, columns.T @ error, float(error @ error)


def _smoothing_of(some: Sequence[tuple[Row, Phases]], season: int) -> int:
    """Return the smoothing with the smallest errors."""
    errors = {
        one: sum(float(np.log(_estimated(*own, season, one).noise)) for own in some)
        for one in _SMOOTHINGS
    }
    return min(errors, key=lambda one: errors[one])


def _learned(some: Sequence[tuple[Row, Phases]], season: int, smoothing: int) -> SeasonPrior:
    """Return the prior of older series."""
    found = [_estimated(*own, season, smoothing) for own in some]
    effects = np.asarray([own.effects for own in found], float)
    chance = np.array([own.chance for own in found])
    variance = max(float((np.square(effects).mean(1) - chance).mean()), _LEAST**2)
    certain = (1 / (chance + variance))[:, None]  # a series without much noise says more
    mean = (certain * effects).sum(0) / (certain.sum() + certain.mean())
    around = np.asarray(np.square(effects - mean).mean(1) - chance, float)
    spread = np.clip(np.sqrt(np.maximum(around, 0.0)), _LEAST, _LARGEST)
    noise = np.clip(np.sqrt([own.noise for own in found]), _LEAST_NOISE, _LARGEST)
    order: list[int] = np.argsort([own.noise for own in found], kind="stable").tolist()
    order = order[:: max(1, -(-len(order) // _EXAMPLES))]
    examples = tuple((float(noise[n]), float(spread[n])) for n in order)
    mean = np.clip(mean - mean.mean(), -_LARGEST, _LARGEST)
    return SeasonPrior(tuple(mean.tolist()), examples, smoothing)


class _Estimated(NamedTuple):
    """The effects of an older series by least squares, their mean variance, that of its errors."""

    effects: Profile
    chance: float
    noise: float


def _estimated(values: Row, phases: Phases, season: int, smoothing: int) -> _Estimated:
    matrix, side, total = _evidence(values, phases, season, smoothing)
    inverse = np.linalg.pinv(matrix, hermitian=True)
    effects = inverse @ side
    left = max(total - float(effects @ side), 1e-9 * total)
    noise = left / (len(values) - season)
    return _Estimated(effects, noise * float(np.trace(inverse)) / season, noise)


def _helps(old: Sequence[_Old], season: int, smoothing: int, horizon: int) -> tuple[bool, bool]:
    """Return whether errors are smaller with a profile, for series of each of :data:`_AGES`.

    At several ends all later rows are hidden, from the prior, too. What series have in common at
    one time is no season: so the errors of all series after one end count as one observation, and
    the mean over the ends must exceed :data:`_SURE` standard errors.
    """
    room = min(int(np.median([len(one.values) for one in old])), _LATEST * season) - 2 * season
    hidden = min(horizon, season, max(room // _USUAL_ENDS, 1))
    apart = max(hidden, room // _MOST_ENDS)
    ends = _ends(old, season, hidden, apart)
    judged = _every(range(len(old)), _JUDGED)
    if len(ends) < _LEAST_ENDS:
        return False, False
    better = np.array([_better(old, judged, end, season, smoothing, hidden) for end in ends])
    sure = better.mean(0) > _SURE * better.std(0, ddof=1) / np.sqrt(len(better))
    before, after = sure.all(1).tolist()
    return before, after


def _ends(old: Sequence[_Old], season: int, hidden: int, apart: int) -> list[int]:
    """Return the steps from which on rows are hidden: those that most series see.

    ``hidden``, ``apart``: the number of rows hidden after each, and between two ends at least
    """
    last = max(one.end for one in old) - hidden
    steps = np.arange(last, min(one.begin for one in old) + 2 * season - 1, -apart)
    begins, stops = np.array([[one.begin, one.end] for one in old]).T
    seen = (begins + 2 * season <= steps[:, None]) & (stops >= steps[:, None] + hidden)
    count = seen.sum(1)
    best = np.argsort(-count, kind="stable")[:_MOST_ENDS]
    return steps[best][count[best] >= _FEWEST].tolist()


def _better(
    old: Sequence[_Old],
    judged: Sequence[int],
    end: int,
    season: int,
    smoothing: int,
    hidden: int,
) -> Float[np.ndarray, "age other"]:
    """Return by how much errors after one end are smaller with a profile than otherwise.

    The others are those of the series' own season, and of none. Each half of the series is forecast
    with the prior of the other.

    ``judged``: the numbers of series that are forecast
    """
    seen = [n for n, one in enumerate(old) if one.begin + 2 * season <= end <= one.end - hidden]
    priors = [
        _learned([old[n].before(end, _LATEST * season) for n in seen[half::2]], season, smoothing)
        for half in (0, 1)
    ]
    places = [place for place, n in enumerate(seen) if n in judged]
    if not places:
        return np.zeros((len(_AGES), 2))
    own = [old[seen[place]] for place in places]
    after = [one.before(end + hidden, hidden) for one in own]
    errors = [
        _errors(
            [priors[1 - place % 2] for place in places],
            [one.before(end, int(age * season)) for one in own],
            after,
        )
        for age in _AGES
    ]
    mean = np.array(errors).mean(1)
    profiled, others = mean[:, :1], mean[:, 1:]
    return (others - profiled) / np.maximum(others + profiled, 1e-300)


def _errors(
    priors: Sequence[SeasonPrior],
    before: Sequence[tuple[Row, Phases]],
    after: Sequence[tuple[Row, Phases]],
) -> Float[np.ndarray, "series 3"]:
    """Return the mean errors of series with a profile, with a season, and without either.

    ``before``, ``after``: the known and the later rows; of each, all series have equally many
    """
    effects = [
        profile_of(prior, *known).effects for prior, known in zip(priors, before, strict=True)
    ]
    seen, came = (np.array([values for values, _ in of]) for of in (before, after))
    known, later = (
        np.array([one[phases] for one, (_, phases) in zip(effects, of, strict=True)])
        for of in (before, after)
    )
    season, horizon = priors[0].season, came.shape[1]
    made = (
        combine(seen - known, (), horizon).base[:, -1] + later,
        combine(seen, (season,), horizon).base[:, -1],
        combine(seen, (), horizon).base[:, -1],
    )
    return np.stack([np.abs(came - one).mean(1) for one in made], axis=1)
