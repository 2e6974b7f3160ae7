"""The combined transform: features are the errors of a combination of simple forecasts."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from forecaster.series.causal import shift, squash
from forecaster.series.combination.anchors import (
    DOUBT,
    Ahead,
    Shares,
    Steps,
    by_target_step,
    combine,
    decayed,
    decayed_errors,
    known_errors,
    smoothed,
)
from forecaster.series.combination.counts import CountPrior, count_forecasts
from forecaster.series.combination.error_sizes import error_sizes, sizes_by_phase

FEATURES = 10
_MEMORY = 100  # rows of the mean error of zero
# A sparse series is forecast by the combination if its error is below this share of zero's error.
_SURE = 0.8
_USUAL = 2.0  # number of errors that the usual change counts for, where rows are few
_FEW, _FADED = 4, 12  # rows up to which it counts in full, and from which it no longer counts
# The change usual over the horizon in a panel: number of errors that it counts for in addition,
# rows up to which in full, and from which no longer.
_USUAL_AHEAD, _VERY_FEW, _NO_LONGER = 6.0, 2, 5
_USUAL_GROWTH = 1.0  # number of independent errors that the usual growth counts for
_LARGEST = 100.0  # logarithm of a ratio of scales in a sound model
_TO_DEVIATION = 1.2533  # standard deviation over mean absolute value, of a normal distribution


class Combination(NamedTuple):
    """Forecasts of series, and what networks see of them.

    - ``base``: the combination of simple forecasts
    - ``scale``: the usual size of its errors
    - ``relative``: the size expected of an error over the usual one, see
      :mod:`forecaster.series.combination.error_sizes`
    - ``features``: what networks see of each step
    """

    base: Ahead
    scale: Ahead
    relative: Ahead
    features: Float[np.ndarray, "*series step feature"]


def combined(
    z: Steps,
    seasons: Sequence[int],
    horizon: int,
    doubt: float = DOUBT,
    experts: Sequence[Ahead] = (),
    shares: Shares | None = None,
    *,
    alone: int | None = None,
    sparse: bool = False,
    nonnegative: bool = False,
    counts: CountPrior | None = None,
) -> Combination:
    """Return base, scale and ``relative`` by horizon, and features, of one series or of several.

    - ``sparse``: whether the series are sparse, see :class:`~forecaster.series.Nature`. Their base
      is then zero, unless the errors of the combination have been much smaller than those of zero
    - ``nonnegative``: whether they have zeros and nothing below. They may then be closed at phases
      of the season, and their errors grow with the level, see :func:`error_sizes`
    - ``counts``: what the counts of a panel have in common, for series of counts; base and scale
      are then mean and standard deviation of the counts
    - others as of :func:`forecaster.series.combination.anchors.combine`
    """
    base, errors = combine(
        z, seasons, horizon, doubt, experts, shares, alone, counts=counts is not None
    )
    deviation: Ahead | None = None
    if counts is not None:
        base, deviation = count_forecasts(z, base, counts)
    elif sparse and alone is None:
        of_zero = decayed_errors(np.zeros(base.shape), z, 1 - 1 / _MEMORY)
        base = np.where(errors < _SURE * of_zero, base, 0.0)
    base, relative, fast, slow = _with_errors(
        base, z, seasons, closes=nonnegative and counts is None,
        by_phase=counts is None and not sparse,
    )  # fmt: skip
    scale = _known_throughout(np.sqrt((fast**2 + slow**2) / 2))
    scale = scale if deviation is None else deviation
    features = _features(z, seasons, base, scale, relative, fast[..., 0] / slow[..., 0])
    return Combination(base, scale, relative, features)


def _with_errors(
    base: Ahead, z: Steps, seasons: Sequence[int], *, closes: bool, by_phase: bool
) -> tuple[Ahead, Ahead, Ahead, Ahead]:
    """Return the base, the relative sizes of its errors, and the usual errors, recent and slow.

    - ``closes``: whether series may be closed at phases of the season, which are then forecast as 0
    - ``by_phase``: whether errors may differ by phase otherwise
    """
    basic = seasons[0] if seasons else 1
    known, relative = known_errors(base, z), np.ones(base.shape)
    if closes and seasons:
        closed, relative = error_sizes(base, z, seasons)
        base = np.where(closed, 0.0, base)
        usual = np.where(closed, np.nan, relative)
        known = known_errors(base, z) / by_target_step(usual)
    fast, slow = _usual_errors(known, z, basic)
    if by_phase and basic > 1:
        sizes = sizes_by_phase(_mean_ahead(known / slow), basic, base.shape[-1])
        relative = relative * sizes
        fast, slow = _usual_errors(known / by_target_step(sizes), z, basic)
    return base, relative, fast, slow


def _usual_errors(known: Ahead, z: Steps, season: int) -> tuple[Ahead, Ahead]:
    """Return the standard deviation of errors known at each step: of recent ones, and of more."""
    floor = 1e-12 + 1e-4 * smoothed(np.abs(z - smoothed(z, 0.999)), 0.999)[..., None]
    fast, slow = (
        _TO_DEVIATION * decayed(known, 1 - 1 / max(steps, cycles * season)) + floor
        for steps, cycles in ((16, 2), (66, 7))
    )
    return fast, slow


def _mean_ahead(known: Ahead) -> Steps:
    """Return the mean over the horizon of what is known of each step; NaN where nothing is."""
    there = np.isfinite(known)
    with np.errstate(invalid="ignore"):
        return np.where(there, known, 0.0).sum(-1) / there.sum(-1)


def _features(
    z: Steps,
    seasons: Sequence[int],
    base: Ahead,
    scale: Ahead,
    relative: Ahead,
    restlessness: Steps,
) -> Float[np.ndarray, "*series step feature"]:
    """Return what a network sees of each step.

    ``restlessness``: the ratio of recent errors to usual ones, one step ahead
    """

    def surprise(column: int) -> np.ndarray:
        """Return the error of the forecast for each step, in units of that forecast's scale."""
        unit = scale[..., column] * relative[..., column]
        made, unit = (shift(part, column + 1) for part in (base[..., column], unit))
        with np.errstate(divide="ignore", invalid="ignore"):  # closed steps have no unit
            return (z - made) / unit

    def change(season: int) -> np.ndarray:
        return (z - shift(z, season)) / scale[..., 0]

    level, trend = smoothed(z, 0.95), smoothed(z, 0.7)
    farthest, unit = base.shape[-1] - 1, scale[..., -1]
    features = [
        squash(surprise(0)),
        np.log(np.abs(surprise(0)) + 0.1),
        squash(np.log(restlessness)),
        squash(surprise(farthest // 2)),
        squash(surprise(farthest)),
        squash((z - level) / unit),
        squash((trend - level) / unit),
        squash(change(seasons[0] if seasons else 1)),
        squash(change(seasons[-1])) if seasons else np.zeros(z.shape),
        squash((z - base[..., -1]) / unit),
    ]
    return np.stack(features, axis=-1)


def _known_throughout(scale: Ahead) -> Ahead:
    """Return the scale; horizons without an error yet get that of a random walk."""
    for column in range(1, scale.shape[-1]):
        unknown = np.isnan(scale[..., column])
        longer = np.sqrt((column + 1) / column)
        scale[unknown, column] = scale[unknown, column - 1] * longer
    return scale


def with_few_errors(
    scale: Ahead, unit: Float[np.ndarray, "*series step 1"], growth: Sequence[float]
) -> Ahead:
    """Return the scale of series, at their first rows shrunk to what is usual in a panel.

    A few errors hardly say how wide bands must be, least of all those that classical models were
    fitted to. Up to the fourth row the usual change counts for two errors. Then it counts for
    nothing, or, where the usual growth is known, for less with each row, and for nothing from the
    twelfth on. It grows with the horizon as a random walk does. With one or two rows, a change that
    grows as is usual in the panel counts for six errors more, and from the fifth row on for none:
    two values that differ by chance would make bands of many times their size.

    - ``unit``: the usual change from one row to the next
    - ``growth``: from :func:`usual_growth`; empty where it is unknown
    """
    few = _FADED if growth else _FEW
    first = scale[..., :few, :]
    rows = np.arange(1.0, int(first.shape[-2]) + 1)[:, None]
    errors, ahead = rows - 1, np.arange(1.0, int(scale.shape[-1]) + 1)
    weight = _USUAL * np.clip((_FADED - rows) / (_FADED - _FEW), 0.0, 1.0)
    own = np.square(np.where(errors > 0, first, 0.0))
    more = np.interp(rows, (_VERY_FEW, _NO_LONGER), (_USUAL_AHEAD, 0.0))
    grown = np.exp(2 * np.array(growth)) if growth else ahead
    usual = np.square(unit[..., :few, :]) * (weight * ahead + more * grown)
    shrunk = np.sqrt((errors * own + usual) / (errors + weight + more))
    return np.concatenate([shrunk, scale[..., few:, :]], axis=-2)


def usual_growth(
    scales: Float[np.ndarray, "series horizon"], rows: Int[np.ndarray, " series"]
) -> tuple[float, ...]:
    """Return by how much scales of a panel's series grow with the horizon, as logarithms of ratios.

    It is the mean over series of their latest scale over that of one step ahead, weighted by the
    number of their independent errors. Empty where no series has a scale.

    ``rows``: number of rows of each series
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        own = np.log(scales / scales[:, :1])
    known = np.isfinite(own).all(1)
    if not known.any():
        return ()
    weight = _independent_errors(rows[known, None], scales.shape[1])
    weight = weight / (weight + _USUAL_GROWTH) + 1e-9  # without errors they count equally
    growth: list[float] = ((weight * own[known]).sum(0) / weight.sum(0)).tolist()
    return tuple(growth)


def with_usual_growth(scale: Ahead, growth: Sequence[float]) -> Ahead:
    """Return the scale, whose growth with the horizon is shrunk to what is usual in a panel.

    Errors several steps ahead overlap, so that a short series has few independent ones. The fewer
    they are, the more the scale at that horizon follows from the scale one step ahead.

    ``growth``: from :func:`usual_growth`; empty where it is unknown
    """
    if not growth:
        return scale
    rows = np.arange(1, int(scale.shape[-2]) + 1)[:, None]
    known = _independent_errors(rows, int(scale.shape[-1]))
    weight = known / (known + _USUAL_GROWTH)
    first = scale[..., :1]
    return first * (scale / first) ** weight * np.exp((1 - weight) * np.array(growth))


def check_growth(growth: Sequence[float], horizon: int) -> None:
    """Raise ValueError unless growth is empty, or a number below 100 for each step ahead."""
    sound = len(growth) == horizon and all(-_LARGEST < one < _LARGEST for one in growth)
    if growth and not sound:
        raise ValueError(f"transform: growth: expected {horizon} numbers below {_LARGEST:.0f}")


def _independent_errors(rows: Int[np.ndarray, "row 1"], horizon: int) -> np.ndarray:
    """Return the number of known errors at each horizon, counting those that overlap as one."""
    ahead = np.arange(1, horizon + 1)
    return np.maximum(rows - ahead, 0) / ahead


def widened_for(
    learned: int | Int[np.ndarray, "*series 1 1"], scale: Ahead, optimism: float
) -> Float[np.ndarray, "*series step horizon"]:
    """Return the scale, widened where it comes from errors that classical models were fitted to.

    The widening shrinks as rows follow those that the models were fitted on. After as many further
    rows there is none.

    - ``learned``: the number of first rows that the models were fitted on; 0 without models
    - ``optimism``: from :meth:`forecaster.series.combination.sample.Sample.optimism`
    """
    rows = np.arange(1, int(scale.shape[-2]) + 1)[:, None]
    share = learned / np.maximum(rows, learned)
    return scale * optimism ** np.maximum(2 * share - 1, 0.0)
