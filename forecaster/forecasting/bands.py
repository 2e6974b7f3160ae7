"""Distributions of forecasts, and their calibration on past outcomes.

A distribution is Student-t, as the outputs of networks say, or one of counts.

The degrees of freedom of a network are one constant per step ahead, which is learned, as in GARCH
with Student-t errors (Bollerslev 1987, Review of Economics and Statistics 69): they hardly change
over time.

The networks of a series are combined by their quantiles, not by their probabilities: a mean of
probabilities is wider than each of them (Lichtendahl, Grushka-Cockayne & Winkler 2013, Management
Science 59). The location is the mean of theirs, the scale the geometric mean, as scales are
multiplied wherever they are combined.

Those of counts are negative binomial, with the mean and variance of the other forecast. Quantiles
are whole numbers, none below zero. The probability of a count jumps, so a score is drawn at random
between the probabilities of a lower count and of this one or a lower (the randomised probability
integral transform: Czado, Gneiting & Held 2009, Biometrics 65). The draws follow from the number of
the row, so that the same forecast always has the same scores.

The calibration of all series: by which factor must forecast distributions be widened?

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

import dataclasses
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float, Int
from numpy.typing import ArrayLike
from scipy.special import beta, betainc, gammaincc, gammaln, ndtr, ndtri, stdtr, stdtrit

ByHorizon: TypeAlias = Float[Array, "*batch horizon"]

FARTHEST = 8.0
"""The largest size of a normal score."""
NORMAL = 1e4
"""Degrees of freedom of a distribution that is as good as normal."""
_MIN_DOF = 2.1  # above 2, so that the variance exists
_AT_START = 3.0  # what is added to the trained constants, which are 0 at first
_POISSON = 1 + 1e-6  # ratio of variance to mean up to which counts are Poisson's
_STEPS = 64  # maximum number in a bisection
DOF_AT_START = _MIN_DOF + float(np.log1p(np.exp(_AT_START)))
"""The degrees of freedom before training, and without a network."""


def said_by(
    outputs: Float[Array, "*batch output"], constants: Float[Array, " horizon"]
) -> tuple[ByHorizon, ByHorizon, ByHorizon]:
    """Return the location, scale and degrees of freedom that a network's outputs stand for.

    - ``outputs``: a location, then the logarithm of a scale, for each step ahead
    - ``constants``: trained beside the network, one for each step ahead
    """
    location, log_scale = jnp.split(outputs, 2, axis=-1)
    dof = _MIN_DOF + jax.nn.softplus(constants + _AT_START)
    return location, jnp.exp(jnp.clip(log_scale, -5, 5)), jnp.broadcast_to(dof, location.shape)


def loss_of(
    outputs: Float[Array, "*batch output"],
    constants: Float[Array, " horizon"],
    targets: ByHorizon,
    *,
    counted: Bool[Array, "#*batch 1"],
) -> ByHorizon:
    """Return the negative log likelihood, elementwise.

    Networks of counts are trained under a normal distribution, whose likelihood is largest at the
    mean and the variance, which distributions of counts need. The Student-t likelihood of a series
    that is mostly zero is largest at zero and with no width.

    - ``outputs``, ``constants``: as for :func:`said_by`
    - ``counted``: which targets are counts
    """
    location, log_scale = jnp.split(outputs, 2, axis=-1)
    log_scale = jnp.clip(log_scale, -5, 5)
    dof = _MIN_DOF + jax.nn.softplus(constants + _AT_START)
    dof = jnp.where(counted, NORMAL, dof)
    normalise = _log_gamma_ratio(dof / 2) - 0.5 * jnp.log(dof * jnp.pi)
    z = (targets - location) * jnp.exp(-log_scale)
    return log_scale - normalise + 0.5 * (dof + 1) * jnp.log1p(z * z / dof)


def _log_gamma_ratio(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Return the log of Gamma(x + 1/2) / Gamma(x), for x > 1, to float32's precision.

    By its asymptotic series at x + 4 (Tricomi & Erdelyi 1951, Pacific Journal of Mathematics 1). A
    difference of two ``gammaln`` of JAX cancels where x is large, and takes a tenth of the time of
    compiling a fit.
    """
    far = x + 4
    down = 1 / (far * far)
    series = (1 / 8 - down * (1 / 192 - down / 640)) / far
    steps = jnp.log1p(-0.5 / (x[..., None] + jnp.arange(4) + 0.5)).sum(-1)
    return 0.5 * jnp.log(far) - series + steps


class Counts(NamedTuple):
    """The series of a forecast that are counts, and how its numbers stand for counts.

    - ``rows``: their rows among all series
    - ``base, unit``: a standardised value x stands for the count ``base + unit * x``
    - ``draws``: between 0 and 1, for scores
    """

    rows: Int[np.ndarray, " counted"]
    base: Float[np.ndarray, "counted origin horizon"]
    unit: Float[np.ndarray, "counted origin horizon"]
    draws: Float[np.ndarray, "counted origin horizon"]


@dataclasses.dataclass(frozen=True)
class Distribution:
    """The distribution of each forecast, in standardised units.

    - ``location, scale, dof``: its location, scale and degrees of freedom
    - ``counts``: the series that are counts; None: there are none
    """

    location: Float[np.ndarray, "*forecast"]
    scale: Float[np.ndarray, "*forecast"]
    dof: Float[np.ndarray, "*forecast"]
    counts: Counts | None = None

    @staticmethod
    def unit(shape: tuple[int, ...], dof: float) -> "Distribution":
        """Return distributions with location 0 and scale 1."""
        return Distribution(np.zeros(shape), np.ones(shape), np.full(shape, dof))

    @staticmethod
    def of_members(
        location: Float[np.ndarray, "*forecast member"],
        scale: Float[np.ndarray, "*forecast member"],
        dof: Float[np.ndarray, "*forecast member"],
    ) -> "Distribution":
        """Return what the networks of a series forecast together; arguments: those of each."""
        return Distribution(
            location.mean(-1), np.exp(np.log(scale).mean(-1)), 1 / (1 / dof).mean(-1)
        )

    @property
    def shape(self) -> tuple[int, ...]:
        """The axes of the forecasts."""
        return self.location.shape

    def picked(self, pick: Callable[[np.ndarray], np.ndarray]) -> "Distribution":
        """Return the distributions of some forecasts, such as some origins or some steps ahead.

        ``pick``: returns the part of any array of forecasts, with the same series
        """
        counts = self.counts and Counts(self.counts.rows, *map(pick, self.counts[1:]))
        return Distribution(pick(self.location), pick(self.scale), pick(self.dof), counts)

    def at(self, origins: slice | Int[np.ndarray, " some"]) -> "Distribution":
        """Return the distributions of some origins, the second axis."""
        return self.picked(lambda part: part[:, origins])

    def scores(self, values: Float[np.ndarray, "*forecast"]) -> Float[np.ndarray, "*forecast"]:
        """Return the normal scores of outcomes, NaN where unknown.

        A score is the standard normal quantile of the probability of a lower value, from the
        smaller of both tails, so that small probabilities keep their digits. Those of counts are
        drawn between those of neighbouring counts.
        """
        away = (values - self.location) / self.scale
        scores = np.copysign(ndtri(stdtr(self.dof, -np.abs(away))), away)
        scores = np.clip(scores, -FARTHEST, FARTHEST)
        if self.counts is not None:
            rows, base, unit, draws = self.counts
            came = np.rint(base + unit * values[rows])
            below, at_most = (probability_up_to(n, *self._moments()) for n in (came - 1, came))
            drawn = np.clip(ndtri(below + draws * (at_most - below)), -FARTHEST, FARTHEST)
            scores[rows] = np.where(np.isfinite(came), drawn, np.nan)
        return scores

    def quantiles(self, scores: Float[np.ndarray, "*forecast"]) -> Float[np.ndarray, "*forecast"]:
        """Return the values with these normal scores; NaN where a score is NaN."""
        scores = np.asarray(scores, float)
        if scores.any():  # also if one is NaN
            beyond = stdtrit(self.dof, ndtr(-np.abs(scores)))
        else:  # medians need no search
            beyond = np.where(self.dof > 0, 0.0 * scores, np.nan)
        values = self.location - np.sign(scores) * beyond * self.scale
        if self.counts is not None:
            rows, base, unit, _ = self.counts
            values[rows] = (smallest_count(ndtr(scores[rows]), *self._moments()) - base) / unit
        return values

    def crps(self, values: Float[np.ndarray, "*forecast"]) -> Float[np.ndarray, "*forecast"]:
        """Return the continuous ranked probability score of outcomes, but of counts.

        Jordan, Krueger & Lerch (2019), Journal of Statistical Software 90, appendix A.
        """
        dof, z = self.dof, (values - self.location) / self.scale
        height = np.exp(gammaln((dof + 1) / 2) - gammaln(dof / 2)) / np.sqrt(dof * np.pi)
        density = height * (1 + z * z / dof) ** (-(dof + 1) / 2)
        apart = 2 * np.sqrt(dof) / (dof - 1) * beta(0.5, dof - 0.5) / beta(0.5, dof / 2) ** 2
        away = z * (2 * stdtr(dof, z) - 1) + 2 * density * (dof + z * z) / (dof - 1)
        return self.scale * (away - apart)

    def probability_above(self, threshold: ArrayLike) -> Float[np.ndarray, "*forecast"]:
        """Return the probability of a value above a threshold."""
        away = (np.asarray(threshold) - self.location) / self.scale
        beyond = stdtr(self.dof, -np.abs(away))
        chances = np.where(away < 0, 1 - beyond, beyond)
        if self.counts is not None:
            rows, base, unit, _ = self.counts
            counts = base + unit * np.broadcast_to(threshold, self.shape)[rows]
            # A number that is whole except for rounding counts as whole.
            nearest = np.rint(counts)
            whole = np.where(np.abs(counts - nearest) < 1e-6 * (1 + nearest), nearest, counts)
            chances[rows] = 1 - probability_up_to(np.floor(whole), *self._moments())
        return chances

    def _moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance of the counts; the square of a scale is a variance."""
        assert self.counts is not None
        rows, base, unit, _ = self.counts
        mean = np.maximum(base + unit * self.location[rows], 1e-9)
        return mean, np.square(unit * self.scale[rows])


def probability_up_to(counts: ArrayLike, mean: ArrayLike, variance: ArrayLike) -> np.ndarray:
    """Return the probability of a count or a lower one; 0 below zero.

    It is that of a negative binomial distribution, or of Poisson's where the variance is not above
    the mean.
    """
    counts, mean, variance = np.broadcast_arrays(
        *(np.asarray(part, float) for part in (counts, mean, variance))
    )
    more = np.floor(np.maximum(counts, 0)) + 1
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        size = mean * mean / (variance - mean)
        binomial = betainc(size, more, mean / variance)
        poisson = gammaincc(more, mean)
    chances = np.where(variance > _POISSON * mean, binomial, poisson)
    return np.where(counts < 0, 0.0, np.where(np.isnan(counts), np.nan, chances))


def smallest_count(chance: ArrayLike, mean: ArrayLike, variance: ArrayLike) -> np.ndarray:
    """Return the smallest count which, with lower ones, has at least this probability.

    NaN where the probability is NaN.
    """
    chance, mean, variance = np.broadcast_arrays(
        *(np.asarray(part, float) for part in (chance, mean, variance))
    )
    out = np.full(chance.shape, np.nan)
    known = ~np.isnan(chance)
    chance, mean, variance = chance[known], mean[known], variance[known]
    low = np.full(chance.shape, -1.0)  # too small
    high = np.ceil(mean + 2 * np.sqrt(variance)) + 1
    left = np.arange(len(chance))
    for _ in range(_STEPS):
        left = left[probability_up_to(high[left], mean[left], variance[left]) < chance[left]]
        if not len(left):
            break
        low[left], high[left] = high[left], 2 * high[left]
    for _ in range(_STEPS):
        left = np.flatnonzero(high - low > 1)
        if not len(left):
            break
        middle = np.floor((low[left] + high[left]) / 2)
        enough = probability_up_to(middle, mean[left], variance[left]) >= chance[left]
        high[left[enough]], low[left[~enough]] = middle[enough], middle[~enough]
    out[known] = high
    return out


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
    8 (:data:`FARTHEST`), so that one outcome widens a band by at most 8 %.

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
