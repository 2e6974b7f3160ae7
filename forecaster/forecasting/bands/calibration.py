"""One calibration of all series: how much wider outcomes lie around the forecasts than these say.

Every past outcome has a normal score under its forecast distribution: 0 at the median, -1.28 at the
10 % quantile. The spread of scores is above 1 where forecasts were too sure. It is that of all
series by step ahead, at the fit, times one factor of each series in the long run, times one of its
latest origins. Each is shrunk to its expected value, so that bands follow a change of regime with
little noise. Errors h steps ahead overlap, so that h of them count as one.

Median, bands, probabilities and paths come from the forecast distribution with this spread.
Without networks, its tails are those of all series' scores where these are heavier: prices of a
list, tariffs and rates rest for months, and then jump.

Tried without gain: quantiles of each series' own scores (split-conformal prediction: Vovk,
Gammerman & Shafer 2005, Algorithmic Learning in a Random World; Chernozhukov, Wuethrich & Zhu 2021,
PNAS 118(48)), which raise the CRPS of stocks by 0 to 0.1 %; and levels that adapt to each miss
(Gibbs & Candes 2021, arXiv 2106.00170), by 0.3 to 2 %.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from forecaster.forecasting.bands.distribution import FARTHEST, ndtr, ndtri
from forecaster.forecasting.bands.widths import FARTHEST_TAIL, KNOTS, Tails

# The weights of prior values, as numbers of independent scores.
_PRIOR = 25.0  # weight of the spread 1 one step ahead, and of usual tails in those of all series
_NEARER = 300.0  # weight of the spread one step nearer, in that of all series
_COMMON = 100.0  # weight of the value 1, in the long-run factor of a series
_NO_CHANGE = 20.0  # the same, in its recent factor
_DECAY, _RECENT = 0.998, 0.98  # decay of the weights in the two factors, per origin
_MEAN_SIZE = np.sqrt(2 / np.pi)  # the mean absolute value of normal scores


class Calibrated(NamedTuple):
    """The calibrated distributions of the forecasts made at one origin.

    - ``spread``: of each series' scores
    - ``tails``: the tails to start from; None: those of the forecast distribution
    - ``reach``: the normal scores, below and above, of outcomes as far away as any was before; NaN
      where there was none. Tails move no quantile beyond them, unless the spread alone does
    """

    spread: Float[np.ndarray, "series horizon"]
    tails: Tails | None
    reach: Float[np.ndarray, "2 series horizon"]

    def scores(
        self, usual: Float[np.ndarray, "*some #series #horizon"]
    ) -> Float[np.ndarray, "*some series horizon"]:
        """Return the normal scores of quantiles under the forecast distribution.

        ``usual``: the normal scores of the quantiles' probabilities; those of the result where the
        forecast distribution needs no calibration
        """
        by_spread = usual * self.spread
        if self.tails is not None:
            by_tails = self.tails.of(usual) * self.spread
            # Without a known error there is no limit.
            by_tails = np.fmax(by_tails, np.minimum(by_spread, self.reach[0]))
            by_spread = np.fmin(by_tails, np.maximum(by_spread, self.reach[1]))
        return np.clip(by_spread, -FARTHEST, FARTHEST)

    def probability_below(
        self, scores: Float[np.ndarray, "series horizon"]
    ) -> Float[np.ndarray, "series horizon"]:
        """Return the probability of a lower outcome, the inverse of :meth:`scores`.

        ``scores``: of the outcomes under the forecast distribution
        """
        usual = scores / self.spread
        if self.tails is not None:
            beyond = np.where(scores < 0, scores < self.reach[0], scores > self.reach[1])
            usual = np.where(beyond, usual, self.tails.inverse(usual))
        return ndtr(usual)

    def only(self, row: int) -> "Calibrated":
        """Return the distributions of one series."""
        some = slice(row, row + 1)
        tails = None if self.tails is None else self.tails._replace(used=self.tails.used[some])
        return Calibrated(self.spread[some], tails, self.reach[:, some])


def calibrated(
    scores: Float[np.ndarray, "series origin horizon"],
    count: int = 1,
    *,
    prior: Float[np.ndarray, " horizon"] | Float[np.ndarray, "series horizon"] | None = None,
    tails: Tails | None = None,
    reach: Float[np.ndarray, "2 series count horizon"] | None = None,
) -> Iterator[Calibrated]:
    """Yield the calibrated distributions of the forecasts made at each of the latest origins.

    - ``scores``: normal scores of past outcomes, in order of time, NaN where unknown; the last
      origin is "now"
    - ``count``: the number of latest origins
    - ``prior``: the spread of all series' scores, see :func:`common_spread`; by default 1
    - ``tails``, ``reach``: as in :class:`Calibrated`, the latter by origin

    Those of origin p for horizon h use scores of origins up to p - h only, whose outcome is known
    at p.
    """
    series, origins, horizon = scores.shape
    spread = spread_at_origins(scores, np.ones(horizon) if prior is None else prior)
    if reach is None:
        reach = np.full((2, series, count, horizon), np.nan)
    for position, now in enumerate(range(origins - count, origins)):
        yield Calibrated(spread[:, now], tails, reach[:, :, position])


def normal_scores_of(levels: Sequence[float]) -> Float[np.ndarray, "level 2"]:
    """Return the normal scores of the lower and the upper bound of bands; levels in percent."""
    lower = ndtri((1 - np.asarray(levels, float) / 100) / 2)
    return np.stack([lower, -lower], axis=1)


def common_spread(scores: Float[np.ndarray, "series origin horizon"]) -> np.ndarray:
    """Return the spread of all series' scores by horizon, shrunk to that of the step before.

    It is 1 where the forecast distributions are as wide as they should be, and above 1 where they
    are too narrow. That of the first step is shrunk to 1.
    """
    known = np.isfinite(scores)
    total = np.where(known, np.abs(scores), 0.0).sum((0, 1)) / _MEAN_SIZE
    count, spread, nearer = known.sum((0, 1)), np.ones(scores.shape[-1]), 1.0
    for h in range(len(spread)):
        weight = (_NEARER if h else _PRIOR) * (h + 1)
        spread[h] = nearer = (total[h] + weight * nearer) / (count[h] + weight)
    return spread


def common_tails(
    scores: Float[np.ndarray, "series origin horizon"], spread: Float[np.ndarray, " horizon"]
) -> Float[np.ndarray, "horizon knot"]:
    """Return how far out all series' scores are that should be as far out as :data:`KNOTS`.

    The spread is the mean size of scores, and says little about rare large ones. Prices of a list,
    tariffs and rates rest for months, and then jump: most of their errors are zero, and a band of
    95 % must hold the others. Both sides count alike. Where scores are few, they are shrunk to the
    knots; they are never below them.

    ``spread``: of all series, see :func:`common_spread`
    """
    sizes = np.abs(scores / spread_at_origins(scores, spread))
    tails = np.tile(KNOTS, (scores.shape[-1], 1))
    for h, own in enumerate(tails):
        known = sizes[..., h][np.isfinite(sizes[..., h])]
        if not len(known):
            continue
        found = np.quantile(known, 2 * ndtr(KNOTS) - 1, method="weibull")
        found = np.minimum(found, FARTHEST_TAIL)  # where hardly any row moves the spread is tiny
        weight = len(known) / (len(known) + _PRIOR * (h + 1))
        own[1:] = np.maximum(own, weight * found + (1 - weight) * own)[1:]  # 0 is the median
    return tails


def spread_at_origins(
    scores: Float[np.ndarray, "series origin horizon"],
    prior: Float[np.ndarray, " horizon"] | Float[np.ndarray, "series horizon"],
) -> Float[np.ndarray, "series origin horizon"]:
    """Return the spread of scores by horizon, as known at each origin.

    Scores h steps ahead overlap, so each has weight 1/h in the recent factor. Scores are clipped at
    8 (``distribution.py``), so that one outcome widens a band by at most 8 %.

    ``prior``: the spread of all series' scores
    """
    series, origins, horizon = scores.shape
    ahead = np.arange(1, horizon + 1)
    long_run = _Average(_COMMON, _DECAY, series)
    recent = _Average(_NO_CHANGE, _RECENT, series)
    sizes, factor = np.abs(scores) / (_MEAN_SIZE * prior[..., None, :]), np.ones((series, origins))
    for now in range(origins):
        # For each horizon h, the latest origin whose outcome is known: now - h - 1.
        latest = np.full((series, horizon), np.nan)
        for h in range(min(now, horizon)):
            latest[:, h] = sizes[:, now - h - 1, h]
        weight = np.isfinite(latest) / ahead
        mean, total = np.where(weight > 0, weight * latest, 0.0).sum(1), weight.sum(1)
        mean = np.divide(mean, total, out=np.full(series, np.nan), where=total > 0)
        long_run.add(mean)
        recent.add(mean / long_run.value())
        factor[:, now] = long_run.value() * recent.value()
    return prior[..., None, :] * factor[:, :, None]


class _Average:
    """Exponentially weighted means of series, shrunk to 1.

    - ``weight``: of the value 1, as a number of values; it does not decay
    - ``decay``: factor on the weight of a value, with each later value
    """

    def __init__(self, weight: float, decay: float, series: int):
        self._prior, self._decay = weight, decay
        self._total, self._weight = np.zeros(series), np.zeros(series)

    def add(self, values: Float[np.ndarray, " series"]) -> None:
        """Add the next values; a mean whose value is NaN stays as it is."""
        known = np.isfinite(values)
        self._total = np.where(known, self._decay * self._total + values, self._total)
        self._weight = np.where(known, self._decay * self._weight + 1, self._weight)

    def value(self) -> Float[np.ndarray, " series"]:
        """Return the current means."""
        return (self._prior + self._total) / (self._prior + self._weight)
