"""Learn components and blends: what a panel's series share, and what each has of its own.

The weights are a power of the inverse mean errors of components on the rows that were held back
(Bates & Granger 1969, Operational Research Quarterly 20; powers above one: Stock & Watson 2004,
Journal of Forecasting 23), and the size of the blend's errors grows as a power of the step ahead.
Weights and sizes are a series' own, drawn to its panel's; the power is the panel's.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Bool, Float, Int

from forecaster.classical import Pool, count_of_features
from forecaster.series.causal import Ahead, Steps
from forecaster.series.combination.blend import closed_ahead, combine, component_forecasts, level_of
from forecaster.series.combination.components import (
    NAMES,
    Blend,
    Combination,
    Lags,
    Parts,
    Row,
    Seasons,
    Share,
    Size,
    fit_components,
    pools_of,
)
from forecaster.series.combination.counts import NO_PRIOR, CountPrior, learn_counts
from forecaster.series.combination.nature import Nature
from forecaster.series.limits import ROWS_TO_BLEND
from forecaster.series.panel.histories import held_back_rows

Errors: TypeAlias = Float[np.ndarray, "component series origin horizon"]

ORIGINS = 12  # held back
_MOST_WEIGHED = 100  # series from which weights and sizes of errors are learned
_MOST_COUNTS = 250  # series from which the properties of counts are learned
_POWER = 4.0  # of inverse errors
_OWN_WEIGHTS = 50.0  # rows held back, with which a series' own errors weigh as much as its panel's
_OWN_SIZE = 45.0  # the same, of the size of errors
_USUAL_SIZE = 1.5  # error one step ahead over the mean absolute change, where none is known
_USUAL = 1.0  # changes that the usual one of a panel counts for
_STILL = 12  # rows without a change, from which on a series counts as constant
_BY_CHANCE = 0.001  # unless a series of the panel rests as long with at least this probability
_USUAL_CHANGE = 0.2  # mean absolute change over the level, where none is known


class Sizes(NamedTuple):
    """The sizes of some series, each array (series,).

    - ``change``: mean absolute change
    - ``level``: at the end, see :func:`level_of`
    - ``rows``: how many there are
    - ``moves``: of how many changes the mean consists, where few of them are large (the inverse of
      the sum of squared shares)
    - ``rest``: the share of changes that are zero
    """

    change: Float[np.ndarray, " series"]
    level: Float[np.ndarray, " series"]
    rows: Float[np.ndarray, " series"]
    moves: Float[np.ndarray, " series"]
    rest: Float[np.ndarray, " series"]

    @staticmethod
    def from_rows(
        rows: Sequence[Float[np.ndarray, " step"]], seasons: Sequence[tuple[int, ...]]
    ) -> "Sizes":
        """Return the sizes of series from their values and their seasons."""
        each = [_sizes_of(row, its) for row, its in zip(rows, seasons, strict=True)]
        return Sizes(*np.array(each, float).reshape(-1, len(Sizes._fields)).T)

    def only(self, some: Sequence[int]) -> "Sizes":
        """Return those of some series."""
        return Sizes(*(each[list(some)] for each in self))


def _sizes_of(row: Float[np.ndarray, " step"], seasons: Seasons) -> tuple[float, ...]:
    if not len(row):
        return 0.0, 1.0, 0.0, 0.0, 0.0
    level = level_of(row, seasons)[-1]
    change = np.abs(np.diff(row))
    if not change.any():
        return 0.0, level, float(len(row)), 0.0, float(len(row) > 1)
    shares = change / change.sum()
    return change.mean(), level, float(len(row)), 1 / (shares @ shares), (change == 0).mean()


class Usual(NamedTuple):
    """What the blends of series have in common.

    - ``errors``: the mean error of each component, relative to their mean
    - ``size``: the error one step ahead, over the mean absolute change of a series
    - ``growth``: the power of the step ahead by which errors grow
    - ``change``: the mean absolute change of a series, over its level
    - ``rest``: the share of changes that are zero
    """

    errors: tuple[Size, ...]
    size: Size = _USUAL_SIZE
    growth: Share = 0.5
    change: Size = _USUAL_CHANGE
    rest: Share = 0.0


class Blending(NamedTuple):
    """What the blends of a panel's series share.

    - ``pools``: the regressions of series of the same seasons, by :attr:`Combination.lags`
    - ``usual``: what blends have in common, by :attr:`Combination.parts`
    - ``counts``: what series of counts have in common
    - ``early``: the regressions without the rows held back, which only a fit needs
    """

    pools: tuple[tuple[Lags, Pool], ...] = ()
    usual: tuple[tuple[Parts, Usual], ...] = ()
    counts: CountPrior = NO_PRIOR
    early: tuple[tuple[Lags, Pool], ...] = ()

    def usual_of(self, kind: Combination) -> Usual:
        """Return what is usual of a kind, or else of errors of another kind of its seasons."""
        known, equal = dict(self.usual), Usual((1.0,) * len(kind.names))
        if kind.parts in known:
            return known[kind.parts]
        alike = [one for (_, seasons), one in self.usual if seasons == kind.seasons]
        return alike[0]._replace(errors=equal.errors) if alike else equal

    def fits(self, horizon: int) -> bool:
        """Return whether shapes and sizes fit together, as they may not in a file."""
        features = [
            count_of_features(seasons, yearly=yearly) for (seasons, yearly), _ in self.pools
        ]
        shapes = [(horizon, count, count) for count in features]
        return (
            [pool.gram.shape for _, pool in self.pools] == shapes
            and [pool.weights.shape for _, pool in self.pools] == [one[:2] for one in shapes]
            and all(
                NAMES.issuperset(names) and len(names) == len(one.errors)
                for (names, _), one in self.usual
            )
        )


NOTHING = Blending()


def learn(
    rows: Sequence[Row], known: Sequence[Nature], horizon: int, alone: str | None
) -> Blending:
    """Return what the series of a panel share, from a sample of them.

    - ``rows``: the values of each series, without gaps
    - ``known``: the properties of each
    - ``alone``: the classical model that forecasts alone; None: components are blended
    """
    lengths = [len(row) for row in rows]
    cuts = [n - held_back_rows(n, horizon) for n in lengths]
    before = [row[:cut] for row, cut in zip(rows, cuts, strict=True)]
    kinds = kinds_of(rows, known, alone, cuts)
    early = pools_of(before, kinds, horizon)
    pools = pools_of(rows, kinds_of(rows, known, alone), horizon)
    every = max(1, len(rows) // _MOST_WEIGHED)
    some = fitted(before[::every], known[::every], kinds[::every], early.items(), horizon)
    usual = {
        some[numbers[0]].components.kind.parts: learn_usual(errors, sizes)
        for numbers, errors, sizes, _ in judged(rows[::every], some, horizon)
    }
    made = Blending(tuple(pools.items()), tuple(usual.items()), NO_PRIOR, tuple(early.items()))
    counted = [number for number, one in enumerate(known) if one.counts]
    if alone is not None or not counted:
        return made
    counted = counted[:: max(1, len(counted) // _MOST_COUNTS)]
    wholes, its = [rows[number] for number in counted], [known[number] for number in counted]
    firsts = [row[: max(len(row) // 2, 1)] for row in wholes]
    of = [kinds[number] for number in counted]
    its = with_blends(wholes, fitted(firsts, its, of, early.items(), horizon), made)
    bases = [one.base for one in combine(wholes, its, horizon)]
    return made._replace(counts=learn_counts(wholes, bases))


def kinds_of(
    rows: Sequence[Row],
    known: Sequence[Nature],
    alone: str | None,
    learned: Sequence[int] | None = None,
) -> list[Combination]:
    """Return the kind of each series; ``learned``: the rows fitted on, by default all."""
    lengths = [len(row) for row in rows]
    return [
        Combination.for_rows(rows, first, one.seasons, alone, sparse=one.sparse and not one.counts)
        for rows, first, one in zip(lengths, learned or lengths, known, strict=True)
    ]


def fitted(
    rows: Sequence[Row],
    known: Sequence[Nature],
    kinds: Sequence[Combination],
    pools: Iterable[tuple[Lags, Pool]],
    horizon: int,
) -> list[Nature]:
    """Return the series with components fitted to these rows."""
    made = fit_components(rows, kinds, dict(pools), horizon)
    both = zip(known, made, strict=True)
    return [dataclasses.replace(one, components=components) for one, components in both]


def judged(
    rows: Sequence[Row], known: Sequence[Nature], horizon: int
) -> Iterator[tuple[list[int], Errors, Sizes, Float[np.ndarray, " series"]]]:
    """Compare components with the rows after those that they were fitted on.

    Yields the numbers of the series of each kind, the errors of their components, their sizes, and
    how many of their rows were held back.
    """
    learned = [one.components.learned for one in known]
    since = [max(count - 1, 0) for count in learned]
    errors = {
        number: held_back_errors(rows[number], made, known[number].seasons, learned[number])
        for number, made in component_forecasts(rows, known, horizon, since)
    }
    sizes = Sizes.from_rows(rows, [one.seasons for one in known])
    held = [
        min(len(row) - first, held_back_rows(len(row), horizon))
        for row, first in zip(rows, learned, strict=True)
    ]
    every = [one.components.kind.parts for one in known]
    for parts in dict.fromkeys(every):
        some = [number for number, own in enumerate(every) if own == parts]
        stacked = np.stack([errors[number] for number in some], axis=1)
        yield some, stacked, sizes.only(some), np.array(held, float)[some]


def with_judged_blends(
    rows: Sequence[Row], known: Sequence[Nature], horizon: int, shared: Blending
) -> list[Nature]:
    """Return the series with blends by the rows that their components were not fitted on."""
    out = list(known)
    for numbers, errors, sizes, held in judged(rows, known, horizon):
        usual = shared.usual_of(known[numbers[0]].components.kind)
        blends = learn_blends(errors, sizes, held, usual)
        for number, blend in zip(numbers, blends, strict=True):
            out[number] = dataclasses.replace(known[number], blend=blend)
    return out


def with_blends(rows: Sequence[Row], known: Sequence[Nature], shared: Blending) -> list[Nature]:
    """Return the series with usual blends for those whose own errors are not known."""
    out = list(known)
    for number, (row, one) in enumerate(zip(rows, known, strict=True)):
        if one.blend is None:
            kind = one.components.kind
            unknown = np.full((len(kind.names), 1, 1, 1), np.nan)
            sizes = Sizes.from_rows([row], [one.seasons])
            (blend,) = learn_blends(unknown, sizes, np.zeros(1), shared.usual_of(kind))
            out[number] = dataclasses.replace(one, blend=blend)
    return out


def held_back_errors(
    z: Steps, forecasts: Sequence[Ahead], seasons: Sequence[int], learned: int
) -> Float[np.ndarray, "component origin horizon"]:
    """Return the errors of components at some origins since ``learned`` rows; NaN where unknown."""
    steps, horizon = len(z), int(forecasts[0].shape[1])
    reach = min(steps - learned, held_back_rows(steps, horizon))
    first, last = max(1.0, reach / ORIGINS), max(reach, 1)
    back = np.unique(np.rint(np.linspace(first, last, ORIGINS)).astype(np.int64))
    origins: np.ndarray = np.maximum(steps - 1 - back, learned - 1)
    target = origins[:, None] + np.arange(1, horizon + 1)
    came = np.where(
        (target < steps) & (origins >= 0)[:, None], z[np.clip(target, 0, steps - 1)], np.nan
    )
    came = np.where(closed_ahead(z, seasons, horizon)[origins], np.nan, came)
    errors = np.full((len(forecasts), ORIGINS, horizon), np.nan)
    errors[:, : len(origins)] = np.stack([one[origins] for one in forecasts]) - came
    return errors


def learn_usual(errors: Errors, sizes: Sizes) -> Usual:
    """Return what series have in common."""
    change, level = sizes.change, sizes.level
    moving = change > 0
    scaled = errors / np.where(moving, change, np.nan)[:, None, None]
    relative, count = _relative_errors(scaled)
    some = count > 0
    if not some.any():
        return Usual((1.0,) * len(errors))
    there = np.isfinite(relative) & some
    mean = np.where(there, relative, 0.0).sum(1) / np.maximum(there.sum(1), 1)
    usual = np.where(there.any(1), mean, 1.0)
    usual = tuple(usual.tolist())
    blended = _blended_errors(scaled, _weights(relative, 0.0 * change, usual))
    growth = _growth(blended)
    size = float(np.median(_error_sizes(blended, growth)[0][some]))
    usual_change = float(np.median((change / level)[moving]))
    return Usual(usual, size, growth, usual_change, float(sizes.rest[moving].mean()))


def learn_blends(
    errors: Errors, sizes: Sizes, held: Float[np.ndarray, " series"], usual: Usual
) -> list[Blend]:
    """Return the blend of each series, whose errors were held back.

    The usual change of the panel counts for one of a series' own, which matters where it has few
    rows, or rests for most of them. A longer series that never changed, beside others that do not
    rest as long, has no errors.

    - ``sizes``: with fewer rows than :data:`ROWS_TO_BLEND` the last value is forecast, whose errors
      are as large as changes
    - ``held``: how many rows were held back
    """
    change, level, rows, moves, _ = sizes
    changes = np.maximum(rows - 1, 0.0)
    still = (change == 0) & (usual.rest**changes < _BY_CHANCE)
    moves = np.where(still, changes, moves)
    unit = (moves * change + _USUAL * usual.change * level) / (moves + _USUAL)
    unit[still & (rows >= _STILL)] = 0.0
    scaled = errors / np.where(unit > 0, unit, 1.0)[:, None, None]
    relative, _ = _relative_errors(scaled)
    weights = _weights(relative, held, usual.errors)
    own, count = _error_sizes(_blended_errors(scaled, weights), usual.growth)
    seen = np.where(count > 0, held, 0.0)
    size = (seen * own + _OWN_SIZE * usual.size) / (seen + _OWN_SIZE)
    size = np.where(rows < ROWS_TO_BLEND, max(usual.size, 1.0), size) * unit / level
    return [
        Blend(tuple(one.tolist()), float(its), usual.growth)
        for one, its in zip(weights, size, strict=True)
    ]


def _relative_errors(
    errors: Errors,
) -> tuple[Float[np.ndarray, "component series"], Int[np.ndarray, " series"]]:
    """Return the mean absolute error of each component over that of all, and how many they are."""
    sizes = np.abs(errors)
    for one in sizes.swapaxes(0, 1):  # each by itself: no series changes another
        if np.isfinite(one).any():
            np.minimum(one, np.nanquantile(one, 0.99), out=one)
    there, known = _known(sizes)
    count = known.sum((1, 2))
    mean = np.where(known & np.isfinite(sizes), sizes, 0.0).sum((2, 3)) / np.maximum(count, 1)
    usual = np.where(there, mean, 0.0).sum(0) / np.maximum(there.sum(0), 1)
    return np.where(there, mean / np.maximum(usual, 1e-12), np.nan), count


def _known(
    errors: Errors,
) -> tuple[Bool[np.ndarray, "component series"], Bool[np.ndarray, "series origin horizon"]]:
    """Return which components there are, and which errors are known of all of them."""
    finite = np.isfinite(errors)
    there = np.logical_or.reduce(finite, axis=(2, 3))
    known = np.logical_and.reduce(finite | ~there[..., None, None], axis=0)
    return there, known & np.logical_or.reduce(there, axis=0)[:, None, None]


def _blended_errors(
    errors: Errors, weights: Float[np.ndarray, "series component"]
) -> Float[np.ndarray, "series origin horizon"]:
    """Return the absolute errors of blends of the components that there are; NaN where unknown."""
    there, known = _known(errors)
    weights = weights * there.T
    weights = weights / np.maximum(weights.sum(1, keepdims=True), 1e-12)
    made = np.abs(np.einsum("msoh,sm->soh", np.nan_to_num(errors), weights))
    return np.where(known, made, np.nan)


def _weights(
    relative: Float[np.ndarray, "component series"],
    held: Float[np.ndarray, " series"],
    usual: Sequence[float],
) -> Float[np.ndarray, "series component"]:
    expected = np.array(usual)[:, None]
    relative = np.where(np.isfinite(relative), relative, expected)
    drawn = (held * relative + _OWN_WEIGHTS * expected) / (held + _OWN_WEIGHTS)
    weights = 1 / np.maximum(drawn, 1e-6) ** _POWER
    return (weights / weights.sum(0)).T


def _growth(sizes: Float[np.ndarray, "series origin horizon"]) -> float:
    """Return the power of the step ahead by which errors grow, over all series."""
    known = np.isfinite(sizes)
    mean = np.where(known, sizes, 0.0).sum((1, 2)) / np.maximum(known.sum((1, 2)), 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        relative = np.where(known, sizes / np.where(mean > 0, mean, np.nan)[:, None, None], np.nan)
    seen = np.isfinite(relative).sum((0, 1))
    by_step = np.nansum(relative, (0, 1)) / np.maximum(seen, 1)
    some = (seen > 0) & (by_step > 0)
    if some.sum() < 2:
        return 0.5
    x, y, weight = np.log(np.flatnonzero(some) + 1.0), np.log(by_step[some]), seen[some]
    x = x - weight @ x / weight.sum()
    return float(np.clip(weight @ (x * y) / (weight @ x**2), 0.0, 1.0))


def _error_sizes(
    sizes: Float[np.ndarray, "series origin horizon"], growth: float
) -> tuple[Float[np.ndarray, " series"], Int[np.ndarray, " series"]]:
    """Return the mean error one step ahead of each series, and how many there are."""
    known = np.isfinite(sizes)
    per_step = np.where(known, sizes, 0.0) / np.arange(1.0, sizes.shape[-1] + 1) ** growth
    count = known.sum((1, 2))
    return per_step.sum((1, 2)) / np.maximum(count, 1), count
