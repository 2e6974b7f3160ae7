"""Distributions of counts: negative binomial, with the mean and variance of another forecast.

Quantiles are whole numbers, none below zero. The probability of a count jumps, so a score is drawn
at random between the probabilities of a lower count and of this one or a lower (the randomised
probability integral transform: Czado, Gneiting & Held 2009, Biometrics 65). The draws follow from
the number of the row, so that the same forecast always has the same scores.
"""

import dataclasses
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy.typing import ArrayLike

from forecaster.forecasting.bands.distribution import FARTHEST, Distribution, ndtr, ndtri
from forecaster.series import Transformed

_POISSON = 1 + 1e-6  # ratio of variance to mean up to which counts are Poisson's
_STEPS = 64  # maximum number in a bisection
_GOLDEN, _SILVER = 0.6180339887498949, 0.4142135623730951  # fractions that spread evenly


class Units(NamedTuple):
    """Arrays (series, origin, horizon) that turn standardised forecasts back into counts.

    - ``counted`` (series,): which series are counts
    - ``base, unit``: what counts are standardised by
    - ``draws``: between 0 and 1, for scores
    """

    counted: Bool[np.ndarray, " series"]
    base: Float[np.ndarray, "series origin horizon"]
    unit: Float[np.ndarray, "series origin horizon"]
    draws: Float[np.ndarray, "series origin horizon"]

    @staticmethod
    def of(transformed: Transformed, origins: Int[np.ndarray, "series origin"]) -> "Units":
        """Return the units of forecasts made at these steps."""
        at = origins[:, :, None]
        first = (transformed.positions < 0).sum(1)[:, None, None]
        horizon = np.arange(1, transformed.base.shape[-1] + 1)
        draws = ((at - first) * _GOLDEN + horizon * _SILVER) % 1.0
        return Units(
            transformed.counted,
            np.take_along_axis(transformed.base, at, axis=1),
            np.take_along_axis(transformed.scale, at, axis=1),
            0.001 + 0.998 * draws,
        )


@dataclasses.dataclass(frozen=True)
class Counted(Distribution):
    """Distributions of forecasts, some of them of counts.

    ``units``: which series, and their units
    """

    units: Units

    @staticmethod
    def of(made: Distribution, units: Units) -> "Counted":
        """Return the distributions, those of counts as such."""
        return Counted(made.location, made.scale, made.dof, units)

    def at(self, origins: slice | Int[np.ndarray, " some"]) -> Distribution:
        """Return the distributions of some origins, the second axis."""
        units = Units(self.units.counted, *(part[:, origins] for part in self.units[1:]))
        return Counted.of(super().at(origins), units)

    def scores(self, values: Float[np.ndarray, "*forecast"]) -> Float[np.ndarray, "*forecast"]:
        """Return the normal scores of outcomes, drawn between those of neighbouring counts."""
        scores = super().scores(values)
        rows, base, unit, draws = self._of_counts()
        mean, variance = self._moments()
        counts = np.rint(base + unit * values[rows])
        at_most = probability_up_to(counts, mean, variance)
        below = probability_up_to(counts - 1, mean, variance)
        drawn = ndtri(below + draws * (at_most - below))
        scores[rows] = np.where(np.isfinite(counts), np.clip(drawn, -FARTHEST, FARTHEST), np.nan)
        return scores

    def quantiles(self, scores: Float[np.ndarray, "*forecast"]) -> Float[np.ndarray, "*forecast"]:
        """Return the values with these normal scores; NaN where a score is NaN."""
        values = super().quantiles(scores)
        rows, base, unit, _ = self._of_counts()
        counts = smallest_count(ndtr(np.asarray(scores, float)[rows]), *self._moments())
        values[rows] = (counts - base) / unit
        return values

    def probability_above(self, threshold: ArrayLike) -> Float[np.ndarray, "*forecast"]:
        """Return the probability of a value above a threshold."""
        chances = super().probability_above(threshold)
        rows, base, unit, _ = self._of_counts()
        counts = base + unit * np.broadcast_to(threshold, self.shape)[rows]
        # A number that is whole except for rounding counts as whole.
        nearest = np.rint(counts)
        whole = np.where(np.abs(counts - nearest) < 1e-6 * (1 + nearest), nearest, counts)
        chances[rows] = 1 - probability_up_to(np.floor(whole), *self._moments())
        return chances

    def _of_counts(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        _, base, unit, draws = self.units
        rows = np.flatnonzero(self.units.counted)
        return rows, base[rows], unit[rows], draws[rows]

    def _moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance of the counts; the square of a scale is a variance."""
        rows, base, unit, _ = self._of_counts()
        location, scale = self.location[rows], self.scale[rows]
        return np.maximum(base + unit * location, 1e-9), np.square(unit * scale)


def probability_up_to(counts: ArrayLike, mean: ArrayLike, variance: ArrayLike) -> np.ndarray:
    """Return the probability of a count or a lower one; 0 below zero.

    It is that of a negative binomial distribution, or of Poisson's where the variance is not above
    the mean.
    """
    from scipy.special import betainc, gammaincc  # after those of distribution.py, which say why

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
