"""Coefficients of columns, learned from the one-step errors of all series of a panel.

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
from jaxtyping import Float, Int
from msgspec import Meta

from forecaster.classical import linear_filter

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
    def of(error: Row, columns: Columns, unit: float, begin: int) -> "Seen":
        """Return the evidence of errors in any unit, and of columns in theirs."""
        error = np.clip(error / unit, -_LARGEST, _LARGEST)
        return Seen(error, columns, unit, begin, columns.T @ columns, columns.T @ error)

    def part(self, rows: slice) -> "Seen":
        """Return the evidence of some rows."""
        begin = self.begin + (rows.start or 0)
        return Seen.of(self.error[rows], self.columns[rows], 1.0, begin)


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
