"""One calibration of all series: by which factor must forecast distributions be widened?

Every past outcome has a normal score under the distribution that was forecast: 0 at the median,
-1.28 at the 10 % quantile. The spread of scores is above 1 where forecasts were too sure. It is the
product of three factors: by step ahead, over all series, at the fit; of each series in the long
run; and of the series' latest origins. Each factor is shrunk to its expected value, so that bands
follow a change of regime with little noise. Errors h steps ahead overlap: h of them count as one.

Median, bands, probabilities and paths come from the forecast distribution with this spread.
Without networks, its tails are those of all series' scores where these are heavier: prices of a
list, tariffs and rates rest for months, and then jump.

Tried without gain: quantiles of each series' own scores (split-conformal prediction: Vovk,
Gammerman & Shafer 2005, Algorithmic Learning in a Random World; Chernozhukov, Wuethrich & Zhu 2021,
PNAS 118(48)), which raise the CRPS of stocks by 0 to 0.1 %; and levels that adapt to each miss
(Gibbs & Candes 2021, arXiv 2106.00170), by 0.3 to 2 %.
"""

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Bool, Float

from forecaster.forecasting.bands.distribution import FARTHEST, ndtr, ndtri

ByOrigin: TypeAlias = Float[np.ndarray, "series origin horizon"]

KNOTS = np.linspace(0.0, 4.0, 17)
"""The normal scores at which tails are measured; the last value also holds beyond the last knot."""
FARTHEST_TAIL = 1e3
"""The farthest that tails reach."""

# The weights of prior values, as numbers of independent scores.
_PRIOR = 25.0  # weight of the spread 1 one step ahead, and of usual tails in those of all series
_NEARER = 300.0  # weight of the spread one step nearer, in that of all series
# Of a series' factors: the weight of the value 1, and the decay of the weights per origin.
_LONG_RUN, _LATELY = (100.0, 0.998), (20.0, 0.98)
_MEAN_SIZE = np.sqrt(2 / np.pi)  # the mean absolute value of normal scores


class Widths(NamedTuple):
    """The width and the tails that the bands of all series start from, by horizon.

    - ``networks``: the spread of the scores of forecasts by networks; 1 where series are
      independent
    - ``without``: the same for forecasts without a network
    - ``tails``: from :func:`common_tails`, for forecasts without a network that are not counts
    """

    networks: Float[np.ndarray, " horizon"]
    without: Float[np.ndarray, " horizon"]
    tails: Float[np.ndarray, "horizon knot"]

    @staticmethod
    def unit(horizon: int) -> "Widths":
        """Return the widths and the tails of the forecast distributions."""
        return Widths(np.ones(horizon), np.ones(horizon), np.tile(KNOTS, (horizon, 1)))


class Calibrated(NamedTuple):
    """The calibrated distributions of the forecasts made at some origins.

    - ``spread``: of each series' scores
    - ``reach``: the normal scores, below and above, of outcomes as far away as any was before; NaN
      where there was none. Tails move no quantile beyond them, unless the spread alone does
    - ``tails``: as of :class:`Widths`
    - ``tailed``: the series that have these tails; others have those of the forecast distribution
    """

    spread: ByOrigin
    reach: Float[np.ndarray, "2 series origin horizon"]
    tails: Float[np.ndarray, "horizon knot"]
    tailed: Bool[np.ndarray, " series"]

    def scores(
        self, usual: Float[np.ndarray, "*some #series #origin #horizon"]
    ) -> Float[np.ndarray, "*some series origin horizon"]:
        """Return the normal scores of quantiles under the forecast distribution.

        ``usual``: the normal scores of the quantiles' probabilities; those of the result where the
        forecast distribution needs no calibration
        """
        by_spread = usual * self.spread
        if self.tailed.any():
            beyond = np.array(np.broadcast_to(usual, by_spread.shape))
            for h, reach in enumerate(self.tails):
                own = beyond[..., self.tailed, :, h]
                far = np.abs(own)
                out = np.interp(far, KNOTS, reach) + np.maximum(far - KNOTS[-1], 0.0)
                beyond[..., self.tailed, :, h] = np.sign(own) * out
            by_tails = beyond * self.spread
            # Without a known error there is no limit.
            by_tails = np.fmax(by_tails, np.minimum(by_spread, self.reach[0]))
            by_spread = np.fmin(by_tails, np.maximum(by_spread, self.reach[1]))
        return np.clip(by_spread, -FARTHEST, FARTHEST)

    def probability_below(self, scores: ByOrigin) -> ByOrigin:
        """Return the probability of a lower outcome, the inverse of :meth:`scores`.

        ``scores``: of the outcomes under the forecast distribution
        """
        usual = scores / self.spread
        if self.tailed.any():
            within = usual.copy()
            for h, reach in enumerate(self.tails):
                own = within[self.tailed, :, h]
                far = np.abs(own)
                found = np.interp(far, reach, KNOTS) + np.maximum(far - reach[-1], 0.0)
                within[self.tailed, :, h] = np.sign(own) * found
            beyond = np.where(scores < 0, scores < self.reach[0], scores > self.reach[1])
            usual = np.where(beyond, usual, within)
        return ndtr(usual)


def normal_scores_of(shares: Sequence[float]) -> Float[np.ndarray, " share"]:
    """Return the standard normal quantiles of probabilities.

    Both bounds of a band, and a quantile that is one, are as far from the median, to the bit.
    """
    away = np.round(np.asarray(shares, float) - 0.5, 11)
    return np.copysign(ndtri(0.5 - np.abs(away)), away)


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
    ahead, prior = np.arange(1, horizon + 1), prior[..., None, :]
    sizes, factor = np.abs(scores) / (_MEAN_SIZE * prior), np.ones((series, origins))
    # Of each factor: the weighted sums of values and of ones.
    in_all, lately = np.zeros((2, 2, series))
    for now in range(origins):
        # For each horizon h, the latest origin whose outcome is known: now - h - 1.
        latest = np.full((series, horizon), np.nan)
        for h in range(min(now, horizon)):
            latest[:, h] = sizes[:, now - h - 1, h]
        weight = np.isfinite(latest) / ahead
        mean, total = np.where(weight > 0, weight * latest, 0.0).sum(1), weight.sum(1)
        mean = np.divide(mean, total, out=np.full(series, np.nan), where=total > 0)
        usual = _with_value(in_all, mean, *_LONG_RUN)
        factor[:, now] = usual * _with_value(lately, mean / usual, *_LATELY)
    return prior * factor[:, :, None]


def _with_value(
    sums: Float[np.ndarray, "2 series"],
    value: Float[np.ndarray, " series"],
    one: float,
    decay: float,
) -> Float[np.ndarray, " series"]:
    """Return the mean of values, drawn to 1, after one more, which the sums take in, in place."""
    known = np.isfinite(value)
    sums[:] = np.where(known, decay * sums + [value, known], sums)
    return (one + sums[0]) / (one + sums[1])
