"""Bands per series and horizon, calibrated on the validation span and on what came in since.

What is looked at is the normal score of an outcome under the distribution that was forecast of it:
0 is the forecast median, -1.28 its 10 % quantile. Two things are learned from past scores:

- their spread, how much wider the outcomes lie than was forecast: what it is in the long run, by
  horizon, which starts from that of all series at the fit, times what it has been of late, one
  factor for all horizons, since the error of a day soon tells of those of weeks. Both are drawn to
  what is expected without them, so that bands follow a change of regime without its noise;
- their shape, quantiles of the scores in units of their spread, each side by itself, so that a skew
  that the network does not know of is seen: split-conformal prediction on the chance that was
  forecast of a lower value (Vovk, Gammerman & Shafer 2005, Algorithmic Learning in a Random World;
  Chernozhukov, Wuethrich & Zhu 2021, PNAS 118(48)), drawn towards the forecast distribution's own.

Errors h steps ahead overlap, so that h of them count as one. Levels that adapt to each miss, by 1 %
(Gibbs & Candes 2021, arXiv 2106.00170), cost 0.3 % of the CRPS of stocks one day ahead and 2 % five
days ahead: a quantile that wanders is wrong on both sides of where it should be.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from forecaster.forecasting.bands.heads import ndtri

SHRINKAGE = 400.0  # independent scores that the forecast distribution's own shape counts for
_PRIOR = 25.0  # independent scores that a spread of 1 counts for in that of all series
_COMMON = 100.0  # independent scores that the spread of all series counts for in a series' own
_DECAY = 0.998  # of a score's weight in the spread in the long run, with each that comes after
_NO_CHANGE = 25.0  # origins that an unchanged spread counts for in what it has been of late
_RECENT = 0.98  # of an origin's weight in it, with each that comes after
_MEAN_SIZE = np.sqrt(2 / np.pi)  # of normal scores


def band_scores(
    scores: Float[np.ndarray, "series origin horizon"],
    levels: Sequence[float],
    memory: int,
    count: int = 1,
    *,
    prior: Float[np.ndarray, " horizon"] | None = None,
    shrinkage: float = SHRINKAGE,
) -> Float[np.ndarray, "level 2 series count horizon"]:
    """Normal scores of the lower and the upper bounds of bands, for the latest origins.

    - ``scores``: normal scores of past outcomes, in order of time, NaN where unknown; the last
      origin is "now"
    - ``levels``: of the bands, in percent
    - ``memory``: how many of the latest scores a bound's shape is drawn from
    - ``count``: of how many origins the bounds are returned
    - ``prior``: the spread of all series' scores, see :func:`common_spread`; 1 where none is given
    - ``shrinkage``: scores that the forecast distribution's own shape counts for

    The bounds of origin p for horizon h use scores of origins up to p - h only, whose outcome is
    known at p. The forecast's median lies within every band, and wider bands hold narrower ones.
    """
    series, origins, horizon = scores.shape
    spread = spread_at_origins(scores, np.ones(horizon) if prior is None else prior)
    # Both sides are lower ones: the upper is that of the scores turned around.
    sides = np.stack([scores, -scores]) / spread
    miss = (1 - np.asarray(levels, float)[:, None, None, None] / 100) / 2
    bounds = np.empty((len(levels), 2, series, count, horizon))
    for place, now in enumerate(range(origins - count, origins)):
        shape = _lower_bounds(_known(sides, now, memory), miss, shrinkage)
        bounds[:, :, :, place] = shape * spread[:, now]
    bounds[:, 1] *= -1
    return bounds


def common_spread(scores: Float[np.ndarray, "series origin horizon"]) -> np.ndarray:
    """The spread of all series' scores by horizon, (horizon,), drawn towards 1 where they are few.

    1 is that of forecasts that are as sure as they should be; above it they are too sure.
    """
    known = np.isfinite(scores)
    worth = _PRIOR * np.arange(1, scores.shape[-1] + 1)
    total = np.where(known, np.abs(scores), 0.0).sum((0, 1)) / _MEAN_SIZE
    return (total + worth) / (known.sum((0, 1)) + worth)


def spread_at_origins(
    scores: Float[np.ndarray, "series origin horizon"], prior: Float[np.ndarray, " horizon"]
) -> Float[np.ndarray, "series origin horizon"]:
    """What is known at each origin of how wide the outcomes lie, by horizon.

    A score h steps ahead counts 1/h in the factor of late: so many independent ones it is.
    Scores lie within 8 of 0 (``mixture.py``), so that one outcome widens a band by 8 % at most.
    """
    series, origins, horizon = scores.shape
    ahead = np.arange(1, horizon + 1)
    long_run = _Average(prior, _COMMON * ahead, _DECAY, (series, horizon))
    of_late = _Average(1.0, _NO_CHANGE, _RECENT, (series,))
    spread = np.empty(scores.shape)
    for now in range(origins):
        # Origin now - h - 1 for each horizon: the latest whose outcome is known.
        latest = np.full((series, horizon), np.nan)
        for h in range(min(now, horizon)):
            latest[:, h] = scores[:, now - h - 1, h]
        size = np.abs(latest) / _MEAN_SIZE
        long_run.add(size)
        usual = long_run.value()
        worth = np.isfinite(size) / ahead
        relative = np.where(worth > 0, worth * size / usual, 0.0).sum(1)
        total = worth.sum(1)
        of_late.add(np.divide(relative, total, out=np.full(series, np.nan), where=total > 0))
        spread[:, now] = usual * of_late.value()[:, None]
    return spread


class _Average:
    """Exponentially weighted means, each drawn to what is expected of it.

    - ``expected``: what they are before any value
    - ``worth``: how many values that counts for, for good
    - ``decay``: of a value's weight, with each that comes after
    - ``shape``: of the means; NaN among the values of one step do not count
    """

    def __init__(
        self,
        expected: float | Float[np.ndarray, " horizon"],
        worth: float | Float[np.ndarray, " horizon"],
        decay: float,
        shape: tuple[int, ...],
    ):
        self.expected, self.worth, self.decay = expected, worth, decay
        self.total, self.weight = np.zeros(shape), np.zeros(shape)

    def add(self, values: Float[np.ndarray, "*mean"]) -> None:
        """The values of the next step."""
        known = np.isfinite(values)
        self.total = np.where(known, self.decay * self.total + values, self.total)
        self.weight = np.where(known, self.decay * self.weight + 1, self.weight)

    def value(self) -> Float[np.ndarray, "*mean"]:
        """The means by now."""
        return (self.worth * self.expected + self.total) / (self.worth + self.weight)


def _known(
    sides: Float[np.ndarray, "side series origin horizon"], now: int, memory: int
) -> Float[np.ndarray, "side series horizon memory"]:
    """The scores whose outcome is known at an origin, sorted, NaN last."""
    horizon = sides.shape[3]
    known = np.full((*sides.shape[:2], horizon, memory), np.nan)
    for h in range(horizon):
        part = sides[:, :, max(0, now - memory) : max(0, now - h), h]
        known[:, :, h, : part.shape[2]] = part
    known.sort(axis=-1)
    return known


def _lower_bounds(
    known: Float[np.ndarray, "side series horizon memory"],
    miss: Float[np.ndarray, "level 1 1 1"],
    shrinkage: float,
) -> Float[np.ndarray, "level side series horizon"]:
    """Scores below which a share ``miss`` of outcomes lies, drawn towards the normal quantile."""
    count = np.isfinite(known).sum(-1)
    last = np.maximum(count - 1, 0)
    # Between neighbours: the share below the k-th smallest of n is k / (n + 1) on average.
    rank = np.clip(miss * (count + 1) - 1, 0, last)
    lower = np.floor(rank).astype(int)
    upper = np.minimum(lower + 1, last)
    smallest = np.take_along_axis(known[None], lower[..., None], axis=-1)[..., 0]
    next_one = np.take_along_axis(known[None], upper[..., None], axis=-1)[..., 0]
    empirical = smallest + (rank - lower) * (next_one - smallest)
    weight = count / (count + shrinkage * np.arange(1, known.shape[2] + 1))
    drawn = weight * np.nan_to_num(empirical) + (1 - weight) * ndtri(miss)
    return np.minimum(drawn, 0.0)  # 0 is the forecast's median
