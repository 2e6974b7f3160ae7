"""The season of young series, which they have seen hardly once, from the older ones of a panel.

A series is a level that wanders, and one effect for each phase of the season, such as each month of
the year. The effects are estimated by generalised least squares: values and phases go through the
filter of an exponential smoothing, whose errors are regressed on the filtered phases. Effects of
all series lie around the mean profile of the panel (empirical Bayes; Efron & Morris 1973, JASA 68).
How far, and beside how much noise, differs: each older series of the panel is an example, which
counts by how likely it makes the rows of the young one. So a product of five months is forecast
with the profile of its neighbours, and one of eighteen months mostly with its own.

The prior is used where it makes the errors of older series smaller if all but their latest rows is
hidden: for series that have seen half a season, and for those that have seen little more than one.
Each half of the older series is forecast by the prior of the other.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

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
_SMOOTHINGS = range(0, len(GRID), 2)  # one for each smoothing of the level
_EXAMPLES = 30  # older series that are kept as examples, at most
_LEAST, _LEAST_NOISE = 1e-4, 1e-6  # spread of effects, and of errors: they are divided by
_AGES = (0.5, 1.3)  # seasons of an older series that are not hidden when the prior is judged
_LARGEST = 5.0  # a logarithm of a ratio, or a multiple of the level
_LARGEST_EFFECT = 1e151  # on values, which are 1e150 at most
_MOST_SPACING = 2.0**63

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
    profile: Sequence[Any], unsure: Sequence[Any], *, logarithmic: bool
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the effects on a series that a file holds, and how unsure each is.

    Raises TypeError or ValueError unless :func:`profile_of` may have made them.
    """
    most = _LARGEST if logarithmic else _LARGEST_EFFECT
    if len(profile) != len(unsure):
        raise ValueError(f"transform: profile: {len(profile)} effects, {len(unsure)} of them known")
    return _numbers(profile, -most, most), _numbers(unsure, 0.0, most)


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
    latest = [
        (own[-_LATEST * season :], of[-_LATEST * season :] % season)
        for own, of in zip(rows, steps, strict=True)
    ]
    old = [n for n, (own, _) in enumerate(latest) if len(own) >= _OLD * season and np.ptp(own) > 0]
    old = old[:: max(1, -(-len(old) // _MOST))]
    if len(old) < _FEWEST or not 1 < season <= _LONGEST:
        return NO_SEASON
    some = [latest[n] for n in old]
    by_half = [_learned(some[half::2], season, rhythm) for half in (0, 1)]
    before, after = (
        _helps(some, by_half, int(age * season), min(horizon, season)) for age in _AGES
    )
    if not (before or after):
        return NO_SEASON
    return _learned(some, season, rhythm)._replace(helps=(before, after))


def profile_of(prior: SeasonPrior, values: Row, phases: Phases) -> tuple[Profile, Profile]:
    """Return the effect of each phase on a young series, and how unsure a forecast is by it.

    The latter is the standard deviation of the effect. It includes what is missing in the errors of
    the rows that the effects were fitted to.

    ``values``: in units of the level, or their logarithms
    """
    matrix, side, total = _evidence(values, phases, prior.season, prior.smoothing)
    mean, count = np.array(prior.mean), len(values)
    left = side - matrix @ mean
    squares = total - 2 * float(mean @ side) + float(mean @ matrix @ mean)
    noise, spread = np.array(prior.examples).T
    noise, spread = noise[:, None, None] ** 2, spread[:, None, None] ** 2
    precision = matrix / noise + np.eye(prior.season) / spread
    covariance = _inverse(precision)
    by_example = (covariance @ left[:, None] / noise)[..., 0]  # less the mean
    noise, spread = noise[:, 0, 0], spread[:, 0, 0]
    likelihood = -0.5 * (
        (count - 1) * np.log(noise)
        + np.linalg.slogdet(precision)[1]
        + prior.season * np.log(spread)
        + (squares - by_example @ left) / noise
    )
    weight = np.exp(likelihood - likelihood.max())
    weight /= weight.sum()
    effects = weight @ by_example
    fitted = np.minimum(np.trace(matrix @ covariance, axis1=1, axis2=2) / noise / count, 1.0)
    each = np.diagonal(covariance, axis1=1, axis2=2) + (fitted * noise)[:, None]
    variance = weight @ (each + np.square(by_example - effects))
    unsure = np.minimum(np.sqrt(variance), _LARGEST)
    return np.clip(mean + effects, -_LARGEST, _LARGEST), unsure


def _inverse(matrices: np.ndarray) -> np.ndarray:
    return np.asarray(np.linalg.inv(matrices), float)


def _evidence(
    values: Row, phases: Phases, season: int, smoothing: int
) -> tuple[Matrix, Row, float]:
    """Return the normal equations of effects that add up to zero, and the squares of errors."""
    columns = (phases[:, None] == np.arange(season)) - 1 / season
    both = np.concatenate([columns, (values - values[0])[:, None]], axis=1)
    both = beside_start(filtered(both, smoothing, 1), smoothing, 1)
    columns, error = both[:, :-1], both[:, -1]
    return columns.T @ columns, columns.T @ error, float(error @ error)


def _learned(some: Sequence[tuple[Row, Phases]], season: int, rhythm: str) -> SeasonPrior:
    """Return the prior of older series, with the smoothing that has the smallest errors."""
    tried = {
        smoothing: [_estimated(*own, season, smoothing) for own in some]
        for smoothing in _SMOOTHINGS
    }
    smoothing = min(tried, key=lambda one: sum(float(np.log(own.noise)) for own in tried[one]))
    found = tried[smoothing]
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
    return SeasonPrior(tuple(mean.tolist()), examples, smoothing, rhythm)


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


def _helps(
    some: Sequence[tuple[Row, Phases]],
    by_half: Sequence[SeasonPrior],
    rows: int,
    horizon: int,
) -> bool:
    """Return whether errors are smaller with a profile, by more than their standard error.

    ``rows``: the number of rows of an older series that are not hidden, before the latest ones
    """
    errors = np.array(
        [_hidden_errors(by_half[1 - n % 2], *own, rows, horizon) for n, own in enumerate(some)]
    )
    better = (errors[:, 1] - errors[:, 0]) / np.maximum(errors.sum(1), 1e-300)
    return bool(better.mean() > better.std() / np.sqrt(len(better)))


def _hidden_errors(
    prior: SeasonPrior, values: Row, phases: Phases, rows: int, horizon: int
) -> tuple[float, float]:
    """Return the mean errors over the latest ``horizon`` rows with a profile, and without."""
    seen, of = values[-horizon - rows : -horizon], phases[-horizon - rows : -horizon]
    effects, _ = profile_of(prior, seen, of)
    with_profile = combine(seen - effects[of], (), horizon).base[-1] + effects[phases[-horizon:]]
    without = combine(seen, (prior.season,), horizon).base[-1]
    latest = values[-horizon:]
    with_error, error = (float(np.abs(latest - one).mean()) for one in (with_profile, without))
    return with_error, error
