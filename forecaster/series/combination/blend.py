"""Blend the components of a series by their errors on the rows that were held back.

The weights are a power of the inverse mean errors (Bates & Granger 1969, Operational Research
Quarterly 20; powers above one: Stock & Watson 2004, Journal of Forecasting 23), and the size of the
blend's errors grows as a power of the step ahead. Weights and sizes are a series' own, drawn to its
panel's; the power is the panel's.
"""

import functools
from collections.abc import Sequence
from typing import Annotated, NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Bool, Float, Int
from msgspec import Meta

from forecaster.series.causal import Ahead, Steps, decayed_mean, lagged, latest_mean, shift, squash
from forecaster.series.limits import ROWS_TO_BLEND
from forecaster.series.panel.histories import held_back_rows

Errors: TypeAlias = Float[np.ndarray, "component series origin horizon"]
Seasons: TypeAlias = tuple[int, ...]
Size: TypeAlias = Annotated[float, Meta(ge=0, lt=1e12)]
Share: TypeAlias = Annotated[float, Meta(ge=0, le=1)]

FEATURES = 10
ORIGINS = 12  # held back
_POWER = 4.0  # of inverse errors
_OWN_WEIGHTS = 50.0  # rows held back, with which a series' own errors weigh as much as its panel's
_OWN_SIZE = 45.0  # the same, of the size of errors
_LEAST, _MOST = 0.2, 5.0  # level of the latest season over that of all rows, that sizes follow
_FEWEST_LEVEL = 4  # rows of the level
_CLOSED = 4  # cycles that a phase was zero in
_NEARLY_ALWAYS = 0.9  # share of the cycles so far that it was zero in
_RARELY, _SOMETIMES = 0.05, 0.25  # shares of closed and of open phases that changed
_USUAL_SIZE = 1.5  # error one step ahead over the mean absolute change, where none is known
_USUAL = 1.0  # changes that the usual one of a panel counts for
_STILL = 12  # rows without a change, from which on a series counts as constant
_BY_CHANCE = 0.001  # unless a series of the panel rests as long with at least this probability
_USUAL_CHANGE = 0.2  # mean absolute change over the level, where none is known
_TO_DEVIATION = 1.2533  # standard deviation over mean absolute value, of a normal distribution


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
    def of(
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


class Blend(NamedTuple):
    """How the components of one series are blended.

    - ``weights``: of each component
    - ``size``: the mean error one step ahead over the level, see :func:`level_of`
    - ``growth``: the power of the step ahead by which it grows
    """

    weights: tuple[Size, ...]
    size: Size
    growth: Share


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


def level_of(z: Steps, seasons: Sequence[int]) -> Steps:
    """Return the mean absolute value of the longest season at each step.

    It is held near that of all rows so far, so that a season of zeros does not end all errors.
    """
    size = np.abs(z)
    every = latest_mean(size, max(len(z), 1))
    every = np.where(every > 0, every, 1.0)
    latest = latest_mean(size, max((*seasons, _FEWEST_LEVEL)))
    return np.clip(latest, _LEAST * every, _MOST * every)


def blended(
    z: Steps, forecasts: Sequence[Ahead], seasons: Sequence[int], horizon: int, blend: Blend
) -> tuple[Ahead, Ahead]:
    """Return the blend of components at each step, and the usual size of its errors."""
    total, weights = np.zeros((len(z), horizon)), np.zeros((len(z), horizon))
    for weight, one in zip(blend.weights, forecasts, strict=True):
        usable = np.isfinite(one)
        total += np.where(usable, weight * np.where(usable, one, 0.0), 0.0)
        weights += np.where(usable, weight, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        base = np.where(weights > 0, total / weights, z[:, None])
    alone = ROWS_TO_BLEND - 1 if blend.size else len(z)  # what never changed stays, to the bit
    base[:alone] = z[:alone, None]
    growth = np.arange(1.0, horizon + 1) ** blend.growth
    scale = _TO_DEVIATION * blend.size * level_of(z, seasons)[:, None] * growth
    closed = closed_ahead(z, seasons, horizon)
    return np.where(closed, 0.0, base), np.where(closed, 0.0, scale)


def closed_ahead(
    z: Steps, seasons: Sequence[int], horizon: int
) -> Bool[np.ndarray, "step horizon"]:
    """Return whether a series will be closed at the phase of each step ahead.

    It was zero at this phase in the latest cycles, and in nearly all before; and so far phases that
    were expected to be zero were, and open ones stayed open. Rare demand is zero by chance.
    """
    closed = np.zeros((len(z), horizon), bool)
    if not (z == 0).any():
        return closed
    for season in seasons:
        if season < 5 or len(z) < _CLOSED * season:
            continue
        zero = (z == 0).astype(float)
        lagging = (lagged(zero, season, horizon, more) for more in range(_CLOSED))
        lately = functools.reduce(np.minimum, lagging)  # two at a time: they may be large
        cycles = np.full((-(-len(z) // season), season), np.nan)
        cycles.ravel()[: len(z)] = zero
        seen = np.arange(1, len(cycles) + 1)[:, None]
        share = (np.cumsum(np.nan_to_num(cycles), 0) / seen).ravel()[: len(z)]
        always = lagged(share, season, horizon)
        begun = (np.cumsum(z != 0) > 0)[:, None]
        found = (lately == 1) & (always > _NEARLY_ALWAYS) & begun
        before = shift(found[:, 0].astype(float), 1) == 1
        closed |= found & _kept(z, season, before)[:, None]
    return closed


def _kept(z: Steps, season: int, expected: Bool[np.ndarray, " step"]) -> Bool[np.ndarray, " step"]:
    """Return whether steps expected to be zero were, so far, and open phases stayed open."""
    opened = shift((z != 0).astype(float), season) == 1
    counts = np.cumsum([expected, expected & (z != 0), opened, opened & (z == 0)], axis=1)
    closed, reopened, others, ended = counts
    pairs = (closed, reopened), (others, ended), (closed + others, reopened + ended)
    of_closed, of_others, of_all = ((changed + 0.5) / (known + 1) for known, changed in pairs)
    sure = np.minimum(of_closed, of_all) <= _RARELY
    return sure & (np.maximum(of_closed, of_others) <= _SOMETIMES)


def features_of(
    z: Steps, seasons: Sequence[int], base: Ahead, scale: Ahead
) -> Float[np.ndarray, "step feature"]:
    """Return what a network sees of each step."""
    basic = seasons[0] if seasons else 1

    def surprise(column: int) -> np.ndarray:
        """Return the error of the forecast for each step, in units of that forecast's scale."""
        made, unit = (shift(part[:, column], column + 1) for part in (base, scale))
        return (z - made) / unit

    fast, slow = (
        decayed_mean(np.abs(surprise(0)), 1 - 1 / max(steps, cycles * basic)) + 1e-6
        for steps, cycles in ((16, 2), (66, 7))
    )

    def change(season: int) -> np.ndarray:
        return (z - shift(z, season)) / scale[:, 0]

    level, trend = decayed_mean(z, 0.95), decayed_mean(z, 0.7)
    farthest, unit = base.shape[-1] - 1, scale[:, -1]
    features = [
        squash(surprise(0)),
        np.log(np.abs(surprise(0)) + 0.1),
        squash(np.log(fast / slow)),
        squash(surprise(farthest // 2)),
        squash(surprise(farthest)),
        squash((z - level) / unit),
        squash((trend - level) / unit),
        squash(change(basic)),
        squash(change(seasons[-1])) if seasons else np.zeros(z.shape),
        squash((z - base[:, -1]) / unit),
    ]
    return np.stack(features, axis=-1)


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
