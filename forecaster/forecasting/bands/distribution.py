"""Distributions of forecasts: Student-t, as the outputs of networks say, or those of counts.

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
"""

import dataclasses
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

    def at(self, origins: slice | Int[np.ndarray, " some"]) -> "Distribution":
        """Return the distributions of some origins, the second axis."""
        location, scale, dof = (part[:, origins] for part in (self.location, self.scale, self.dof))
        counts = self.counts
        if counts is not None:
            base, unit, draws = (part[:, origins] for part in counts[1:])
            counts = Counts(counts.rows, base, unit, draws)
        return Distribution(location, scale, dof, counts)

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
