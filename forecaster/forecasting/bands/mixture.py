"""Mixtures of Student-t distributions: the combined forecast of the networks of one series.

The distributions of a series' networks are averaged: the probability of an outcome is the mean of
their probabilities (a linear opinion pool: Stone 1961, Annals of Mathematical Statistics 32).
Quantiles are those of the mixture. Infinite degrees of freedom stand for a normal distribution.
"""

import dataclasses

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy.typing import ArrayLike
from scipy.special import gammaln, ndtr, ndtri, stdtr, stdtrit

FARTHEST = 8.0
"""Where normal scores are clipped."""
_STEPS = 60  # maximum steps of the root search
_PRECISION = 1e-10  # precision of quantiles, in units of the members' scale


@dataclasses.dataclass(frozen=True)
class Mixture:
    """The distributions of each forecast, all with the same weight.

    - ``location, scale``: location and scale of each network's distribution
    - ``dof``: its degrees of freedom
    """

    location: Float[np.ndarray, "*forecast member"]
    scale: Float[np.ndarray, "*forecast member"]
    dof: Float[np.ndarray, "*forecast member"]

    @staticmethod
    def unit(shape: tuple[int, ...], dof: float) -> "Mixture":
        """Return distributions with location 0 and scale 1; ``shape``: with that of the members."""
        return Mixture(np.zeros(shape), np.ones(shape), np.full(shape, dof))

    @property
    def shape(self) -> tuple[int, ...]:
        """The axes of the forecasts, without that of the members."""
        return self.location.shape[:-1]

    def among(self, rows: Int[np.ndarray, " some"], others: "Mixture") -> "Mixture":
        """Return ``others`` with these distributions at ``rows`` of the first axis."""
        parts = [part.copy() for part in (others.location, others.scale, others.dof)]
        for part, own in zip(parts, (self.location, self.scale, self.dof), strict=True):
            part[rows] = own
        return Mixture(*parts)

    def latest(self, count: int) -> "Mixture":
        """Return the distributions of the latest ``count`` origins, the second axis."""
        return Mixture(*(part[:, -count:] for part in (self.location, self.scale, self.dof)))

    def repeated(self, count: int) -> "Mixture":
        """Return each distribution ``count`` times along the second axis, the origins."""
        return Mixture(
            *(np.repeat(part, count, axis=1) for part in (self.location, self.scale, self.dof))
        )

    def scores(self, values: Float[np.ndarray, "*forecast"]) -> Float[np.ndarray, "*forecast"]:
        """Return the normal scores of outcomes, NaN where unknown.

        A score is the standard normal quantile of the probability of a lower value. Above the
        median it is computed from the upper tail, so that small probabilities keep their digits.
        """
        tail = np.array(self._below(values))
        upper = ~(tail < 0.5)
        values, whole = np.broadcast_to(values, tail.shape), self._spread(tail.shape)
        tail[upper] = whole._at(upper)._below(values[upper], upper=True)
        scores = ndtri(tail)
        scores = np.where(upper, -scores, scores)
        return np.clip(scores, -FARTHEST, FARTHEST)

    def quantiles(self, scores: Float[np.ndarray, "*forecast"]) -> Float[np.ndarray, "*forecast"]:
        """Return the values with these normal scores; NaN where a score is NaN."""
        shape = np.broadcast_shapes(np.shape(scores), self.shape)
        scores = np.broadcast_to(np.asarray(scores, float), shape)
        tail = ndtr(-np.abs(scores))[..., None]  # the smaller of both tails
        if scores.any():  # also if one is NaN
            with np.errstate(invalid="ignore"):
                reach = np.where(
                    np.isinf(self.dof), -np.abs(scores)[..., None], stdtrit(self._finite(), tail)
                )
        else:  # medians need no search for the members' quantiles
            reach = np.where(self._finite() > 0, 0.0, np.nan)
        each = self.location - np.sign(scores)[..., None] * reach * self.scale
        if each.shape[-1] == 1:
            return each[..., 0]
        return self._spread(shape)._search(each, scores, tail[..., 0])

    def probability_above(self, threshold: ArrayLike) -> Float[np.ndarray, "*forecast"]:
        """Return the probability of a value above a threshold."""
        return self._below(np.broadcast_to(threshold, self.shape), upper=True)

    def _search(self, each: np.ndarray, scores: np.ndarray, tail: np.ndarray) -> np.ndarray:
        """Search for the mixture's quantiles by Newton's method, bracketed by those of its members.

        Each value stays fixed once it has converged, so that no other changes its last bits.

        - ``each``: the quantiles of the members
        - ``tail``: the probability beyond the quantile, on the side of the smaller tail
        """
        upper = scores > 0
        low, high = each.min(-1), each.max(-1)
        unit, found = _mean(self.scale), np.array(_mean(each))
        left = np.ones(scores.shape, bool)
        upper, low, high, unit, tail = (part[left] for part in (upper, low, high, unit, tail))
        for _ in range(_STEPS):
            members, now = self._at(left), found[left]
            # The error of the probability of a lower value.
            beyond = members._below(now, upper=upper)
            excess = np.where(upper, tail - beyond, beyond - tail)
            low, high = np.where(excess < 0, now, low), np.where(excess < 0, high, now)
            with np.errstate(divide="ignore", invalid="ignore"):
                step = now - excess / members._density(now)
            inside = (step >= low) & (step <= high)
            moved = np.where(inside, step, (low + high) / 2)
            found[left] = moved
            going = np.abs(moved - now) > _PRECISION * unit  # not where it is NaN
            left[left] = going
            if not going.any():
                break
            upper, low, high, unit, tail = (part[going] for part in (upper, low, high, unit, tail))
        return found

    def _spread(self, shape: tuple[int, ...]) -> "Mixture":
        """Return the distributions of forecasts of a larger shape, to which these broadcast."""
        shape = (*shape, self.location.shape[-1])
        parts = (self.location, self.scale, self.dof)
        return Mixture(*(np.broadcast_to(part, shape) for part in parts))

    def _at(self, some: Bool[np.ndarray, "*forecast"]) -> "Mixture":
        """Return some of the distributions, with a single axis of forecasts."""
        return Mixture(self.location[some], self.scale[some], self.dof[some])

    def _below(self, values: np.ndarray, *, upper: bool | np.ndarray = False) -> np.ndarray:
        """Return the probability of a lower value, or of a higher one where ``upper``."""
        z = (np.asarray(values)[..., None] - self.location) / self.scale
        z = np.where(np.asarray(upper)[..., None], -z, z)
        normal = np.isinf(self.dof)
        chance = stdtr(self._finite(), z)
        return _mean(np.where(normal, ndtr(z), chance) if normal.any() else chance)

    def _density(self, values: np.ndarray) -> np.ndarray:
        """Return the density of the mixture."""
        z = (values[..., None] - self.location) / self.scale
        dof = self._finite()
        log = gammaln((dof + 1) / 2) - gammaln(dof / 2) - 0.5 * np.log(dof * np.pi)
        log = log - 0.5 * (dof + 1) * np.log1p(z * z / dof)
        normal = -0.5 * z * z - 0.5 * np.log(2 * np.pi)
        return _mean(np.exp(np.where(np.isinf(self.dof), normal, log)) / self.scale)

    def _finite(self) -> np.ndarray:
        """Return the degrees of freedom, 1 where infinite, whose results are not used."""
        return np.where(np.isinf(self.dof), 1.0, self.dof)


def _mean(each: Float[np.ndarray, "*forecast member"]) -> Float[np.ndarray, "*forecast"]:
    """Return the mean over the members, added one after another.

    NumPy's order of summation, and so the last bits, would depend on how the array lies in memory.
    """
    total = np.array(each[..., 0])
    for member in range(1, each.shape[-1]):
        total += each[..., member]
    return total / each.shape[-1]
