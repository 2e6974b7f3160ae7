"""Student-t distributions: the forecast of a series, of its networks together.

The networks of a series are combined by their quantiles, not by their probabilities: a mean of
probabilities is wider than each of them (Lichtendahl, Grushka-Cockayne & Winkler 2013, Management
Science 59). The location is the mean of theirs, the scale the geometric mean, as scales are
multiplied wherever they are combined. Infinite degrees of freedom stand for a normal distribution.
"""

import dataclasses

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri, stdtr, stdtrit

FARTHEST = 8.0
"""Where normal scores are clipped."""


@dataclasses.dataclass(frozen=True)
class Distribution:
    """The distribution of each forecast, in standardised units.

    ``location, scale, dof``: its location, scale and degrees of freedom
    """

    location: Float[np.ndarray, "*forecast"]
    scale: Float[np.ndarray, "*forecast"]
    dof: Float[np.ndarray, "*forecast"]

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
        with np.errstate(divide="ignore"):  # of normal distributions
            return Distribution(
                location.mean(-1), np.exp(np.log(scale).mean(-1)), 1 / (1 / dof).mean(-1)
            )

    @property
    def shape(self) -> tuple[int, ...]:
        """The axes of the forecasts."""
        return self.location.shape

    def among(self, rows: Int[np.ndarray, " some"], others: "Distribution") -> "Distribution":
        """Return ``others`` with these distributions at ``rows`` of the first axis."""
        parts = [part.copy() for part in (others.location, others.scale, others.dof)]
        for part, own in zip(parts, (self.location, self.scale, self.dof), strict=True):
            part[rows] = own
        return Distribution(*parts)

    def beside_base(self, weight: float) -> "Distribution":
        """Return the distributions around weighted means of their locations and of the base."""
        return dataclasses.replace(self, location=np.float32(weight) * self.location)

    def latest(self, count: int) -> "Distribution":
        """Return the distributions of the latest ``count`` origins, the second axis."""
        return Distribution(*(part[:, -count:] for part in (self.location, self.scale, self.dof)))

    def repeated(self, count: int) -> "Distribution":
        """Return each distribution ``count`` times along the second axis, the origins."""
        return Distribution(
            *(np.repeat(part, count, axis=1) for part in (self.location, self.scale, self.dof))
        )

    def scores(self, values: Float[np.ndarray, "*forecast"]) -> Float[np.ndarray, "*forecast"]:
        """Return the normal scores of outcomes, NaN where unknown.

        A score is the standard normal quantile of the probability of a lower value, from the
        smaller of both tails, so that small probabilities keep their digits.
        """
        away = (values - self.location) / self.scale
        scores = np.copysign(ndtri(self._beyond(np.abs(away))), away)
        return np.clip(scores, -FARTHEST, FARTHEST)

    def quantiles(self, scores: Float[np.ndarray, "*forecast"]) -> Float[np.ndarray, "*forecast"]:
        """Return the values with these normal scores; NaN where a score is NaN."""
        scores = np.asarray(scores, float)
        finite = self._finite()
        if scores.any():  # also if one is NaN
            tail = ndtr(-np.abs(scores))
            with np.errstate(invalid="ignore"):
                beyond = np.where(np.isinf(self.dof), -np.abs(scores), stdtrit(finite, tail))
        else:  # medians need no search
            beyond = np.where(finite > 0, 0.0 * scores, np.nan)
        return self.location - np.sign(scores) * beyond * self.scale

    def probability_above(self, threshold: ArrayLike) -> Float[np.ndarray, "*forecast"]:
        """Return the probability of a value above a threshold."""
        away = (np.asarray(threshold) - self.location) / self.scale
        beyond = self._beyond(np.abs(away))
        return np.where(away < 0, 1 - beyond, beyond)

    def _beyond(self, away: np.ndarray) -> np.ndarray:
        """Return the probability of a value more than ``away`` scales above the location."""
        normal, chance = np.isinf(self.dof), stdtr(self._finite(), -away)
        return np.where(normal, ndtr(-away), chance) if normal.any() else chance

    def _finite(self) -> np.ndarray:
        """Return the degrees of freedom, 1 where infinite, whose results are not used."""
        return np.where(np.isinf(self.dof), 1.0, self.dof)
