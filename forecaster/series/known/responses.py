"""Responses of series to numbers that are known in advance, such as promotions and prices.

They are estimated like the effects of the calendar (:mod:`forecaster.series.known.effects`): by
generalised least squares on the one-step errors of an exponential smoothing, with each series'
responses shrunk to the mean responses of the panel (empirical Bayes; Efron & Morris 1973, JASA 68).
So a series that was hardly ever promoted responds as the others do. A response is a share of the
series' level: a change of its logarithm, or a multiple of its mean absolute value.

Responses are used where those learned from the earlier part of a panel made the errors of the later
part smaller, and either this or the mean responses themselves exceed what chance would do.
"""

from collections.abc import Sequence
from typing import Annotated, NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from msgspec import Meta

from forecaster.classical import linear_filter
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

_FEWEST = 16  # rows of a series that responses are learned from
_FEWEST_OWN = 4  # rows with which a series' own errors count
_MOST_ROWS = 5_000  # latest rows that count
_MOST_SERIES = 250  # from which a panel's responses are learned
_MOST_COLUMNS = 50  # networks alone learn from more
_TRAINED = 0.75  # share of the rows; the rest shows whether responses help
# Responses are used if they make later errors smaller by this number of standard errors, or if the
# mean responses exceed those of chance by this number of deviations of chi-squared.
_SURE, _CLEAR = 2.33, 5.0
_PERSISTENT, _MOST_PERSISTENT = 0.2, 0.99  # least correlation of errors that matters; the most
_LARGEST = 50.0  # deviations; a promotion may multiply sales
_QUIETEST = 1e-3  # least deviation of errors, as a share of the level; smaller ones overflow
_FAR = 8.0  # deviations; errors beyond count as this when responses are judged


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


class _Seen(NamedTuple):
    """The evidence of one series, in units of its one-step errors; 0 at steps without a row."""

    error: Row
    numbers: Columns

    @property
    def matrix(self) -> Matrix:
        return self.numbers.T @ self.numbers

    @property
    def side(self) -> Float[np.ndarray, " column"]:
        return self.numbers.T @ self.error

    def part(self, rows: slice) -> "_Seen":
        return _Seen(self.error[rows], self.numbers[rows])


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
    smoothing = _best_smoothing(long)
    persistence = _persistence(long, smoothing)
    seen = [_seen(one, deviation, smoothing, persistence) for one in long]
    cuts = [int(_TRAINED * len(one.error)) for one in seen]
    earlier = [one.part(slice(cut)) for one, cut in zip(seen, cuts, strict=True)]
    later = [one.part(slice(cut, None)) for one, cut in zip(seen, cuts, strict=True)]
    gains = _gains(earlier, later)
    if not (_are_sure(gains) or (gains.mean() > 0 and _show(seen))):
        return NO_RESPONSES
    mean, spread = _common(seen)
    return ResponsePrior(
        tuple(mean.tolist()), tuple(spread.tolist()), tuple(deviation.tolist()), smoothing,
        persistence,
    )  # fmt: skip


def responses_of(
    prior: ResponsePrior, history: History, *, relative: bool = False
) -> tuple[float, ...]:
    """Return how one series responds to a change of each column by 1, in units of its values.

    ``relative``: in units of its level instead
    """
    if not prior.mean:
        return ()
    mean, spread, deviation = (np.array(each) for each in prior[:3])
    own = mean
    if history.there.sum() >= _FEWEST_OWN and history.level > 0:
        seen = _seen(history, deviation, prior.smoothing, prior.persistence)
        own = posterior(seen.matrix, seen.side, mean, spread)
    responses = own * (1.0 if relative else history.level) / deviation
    return tuple(responses.tolist()) if np.isfinite(responses).all() else ()


def _seen(history: History, deviation: np.ndarray, smoothing: int, persistence: float) -> _Seen:
    """Return the evidence of a series; its numbers in units of ``deviation``."""
    there = history.there[-_MOST_ROWS:]
    both = np.column_stack([history.values, history.numbers / deviation])
    both = _errors(both, smoothing, history.season)
    if persistence:
        both = linear_filter([1.0, -persistence], [1.0], both, axis=0)
    error, special = both[:, 0], both[:, 1:]
    unit = _unit(error[there], history)
    error = np.clip(error / unit, -_LARGEST, _LARGEST) * there
    return _Seen(error, special * (history.level / unit) * there[:, None])


def _best_smoothing(histories: Sequence[History]) -> int:
    """Return the number of the exponential smoothing with the smallest errors in a panel."""
    errors = np.zeros(len(GRID))
    for one in histories:
        there = one.there[-_MOST_ROWS:]
        for number in range(len(GRID)):
            error = _errors(one.values[:, None], number, one.season)[there, 0]
            errors[number] += np.log(_unit(error, one))
    return int(np.argmin(errors))


def _persistence(histories: Sequence[History], smoothing: int) -> float:
    """Return the correlation of errors from one step to the next; 0 where it hardly matters.

    It is the median over the series. Errors of one smoothing are correlated where series keep
    their direction, and any other smooth series would then seem to explain them.
    """
    found: list[float] = []
    for one in histories:
        error = _errors(one.values[:, None], smoothing, one.season)[:, 0]
        error = np.where(one.there[-_MOST_ROWS:], error, 0.0)
        squares = float((error**2).sum())
        if squares > 0:
            found.append(float((error[1:] * error[:-1]).sum()) / squares)
    usual = float(np.median(found)) if found else 0.0
    return min(usual, _MOST_PERSISTENT) if usual > _PERSISTENT else 0.0


def _unit(errors: Row, history: History) -> float:
    """Return the deviation of errors; of counts, which are often equal, with all of them."""
    unit = float(np.sqrt(np.square(errors).mean())) if history.counts else unit_of(errors)
    return max(unit, _QUIETEST * history.level) or 1.0


def _errors(columns: Columns, smoothing: int, season: int) -> Columns:
    """Return the one-step errors of the latest rows, whatever the initial state was."""
    columns = columns[-_MOST_ROWS:]
    season = season if len(columns) > 2 * season + 1 else 1
    return beside_start(filtered(columns - columns[0], smoothing, season), smoothing, season)


def _common(seen: Sequence[_Seen]) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean responses of several series and their spread, by moments."""
    matrices, sides = (np.array([getattr(one, of) for one in seen]) for of in ("matrix", "side"))
    mean = solved(matrices.sum(0) + np.eye(sides.shape[1]), sides.sum(0))
    left = sides - matrices @ mean
    precision = np.diagonal(matrices, axis1=1, axis2=2)
    excess, scale = (np.square(left) - precision).sum(0), np.square(precision).sum(0)
    return mean, np.sqrt(np.maximum(excess / (scale + 1e-12), 0.0))


def _show(seen: Sequence[_Seen]) -> bool:
    """Return whether the mean responses exceed those of mere chance, by Wald's test.

    Errors of one step may be alike over the series, which counts as fewer series.
    """
    sides = np.sum([one.numbers.T @ np.clip(one.error, -_FAR, _FAR) for one in seen], axis=0)
    matrix = np.sum([one.matrix for one in seen], axis=0) + np.eye(len(sides))
    share = _independent(seen) / len(seen)
    statistic = share * float(sides @ solved(matrix, sides))
    return statistic - len(sides) > _CLEAR * np.sqrt(2 * len(sides))


def _independent(seen: Sequence[_Seen]) -> float:
    """Return how many independent series a panel is worth; the series end together."""
    errors = np.full((len(seen), max(len(one.error) for one in seen)), np.nan)
    for row, one in zip(errors, seen, strict=True):
        row[len(row) - len(one.error) :] = np.where(one.error != 0, one.error, np.nan)
    known = errors[:, np.isfinite(errors).any(0)]
    common = deviation_of(np.nanmean(known, axis=0)) if known.size else 0.0
    return float(np.clip(1 / max(common**2, 1e-12), 1, len(seen)))


def _gains(earlier: Sequence[_Seen], later: Sequence[_Seen]) -> Float[np.ndarray, " step"]:
    """Return by how much responses learned from earlier rows made later squared errors smaller.

    It is the mean over the series, by step.
    """
    mean, spread = _common(earlier)
    gains = np.full((len(later), max(len(one.error) for one in later)), np.nan)
    for gain, before, one in zip(gains, earlier, later, strict=True):
        left = one.error - one.numbers @ posterior(before.matrix, before.side, mean, spread)
        smaller = np.minimum(one.error**2, _FAR**2) - np.minimum(left**2, _FAR**2)
        gain[len(gain) - len(left) :] = smaller
    return np.nanmean(gains, axis=0)


def _are_sure(gains: Float[np.ndarray, " step"]) -> bool:
    """Return whether gains are above zero by more than chance, at one chance in a hundred."""
    steps = len(gains)
    if steps < 2:
        return False
    # About the quantile of Student's distribution, since SciPy's takes long to import.
    sure = _SURE * (1 + 2.5 / (steps - 1))
    return bool(gains.mean() > sure * gains.std(ddof=1) / np.sqrt(steps))
