"""What the quantiles of a forecast imply of its whole distribution: moments, tails, density.

Forecasts are kept as quantiles, so all models are read by one rule, whatever they were made from.
Between two neighbouring quantiles the distribution is a piece of a normal one: its quantile
function is a straight line in normal scores. Beyond the outermost quantile it is the tail of a
Student-t around the median that goes through this quantile and the one nearest to the quartile of
the same side, with three degrees of freedom or more. A normal distribution is read exactly, and so
are the tails of a Student-t.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaln, ndtri, stdtr, stdtrit

HEAVIEST = 3.0
"""The fewest degrees of freedom of a tail; with two its variance would be infinite."""
_LIGHTEST = 1e5  # degrees of freedom that count as a normal distribution
_GRID = 400  # degrees of freedom in the table of tails
_ROOT = np.sqrt(2 * np.pi)


class Implied(NamedTuple):
    """Distributions (...) that quantiles imply, see the module's docstring.

    - ``values`` (..., quantile): ascending in the last axis
    - ``quantiles`` (quantile,): ascending probabilities, with 0.5 and a quantile between it and the
      outermost of either side (:func:`enough`)
    """

    values: np.ndarray
    quantiles: np.ndarray

    def second_moment(self) -> np.ndarray:
        """Return the expected squares (...), the variance where the mean is zero."""
        slope, base, mass, first = self._pieces()
        scores = ndtri(self.quantiles)
        second = mass - np.diff(scores * (np.exp(-(scores**2) / 2) / _ROOT))
        inside = _sum(base**2 * mass + 2 * base * slope * first + slope**2 * second)
        return inside + self._tail(lower=True).second() + self._tail(lower=False).second()

    def shortfall(self, probability: float) -> np.ndarray:
        """Return the mean below the quantile of a probability (...), one of ``quantiles``."""
        at = int(np.abs(self.quantiles - probability).argmin())
        slope, base, mass, first = self._pieces()
        inside = _sum((base * mass + slope * first)[..., :at])
        return (inside + self._tail(lower=True).first()) / self.quantiles[at]

    def log_density(self, outcomes: ArrayLike) -> np.ndarray:
        """Return the logarithm of the density at outcomes (...).

        It is infinite where an outcome lies between two quantiles that are equal.
        """
        outcomes, scores = np.asarray(outcomes, float), ndtri(self.quantiles)
        position = (self.values < outcomes[..., None]).sum(-1)
        last = len(scores) - 1
        piece = np.clip(position - 1, 0, last - 1)
        low, high = (
            np.take_along_axis(self.values, part[..., None], -1)[..., 0]
            for part in (piece, piece + 1)
        )
        with np.errstate(divide="ignore", invalid="ignore"):
            slope = (high - low) / (scores[piece + 1] - scores[piece])
            score = np.where(slope > 0, scores[piece] + (outcomes - low) / slope, scores[piece])
            inside = -(score**2) / 2 - np.log(_ROOT) - np.log(slope)
            below = self._tail(lower=True).log_density(outcomes)
            above = self._tail(lower=False).log_density(outcomes)
        beyond = np.where(position > last, above, inside)
        known = np.isfinite(self.values).all(-1) & np.isfinite(outcomes)
        return np.where(known, np.where(outcomes < self.values[..., 0], below, beyond), np.nan)

    def _pieces(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return slopes and levels in normal scores (..., piece), probabilities and mean scores."""
        scores = ndtri(self.quantiles)
        slope = np.diff(self.values) / np.diff(scores)
        base = self.values[..., :-1] - slope * scores[:-1]
        density = np.exp(-(scores**2) / 2) / _ROOT
        return slope, base, np.diff(self.quantiles), -np.diff(density)

    def _tail(self, *, lower: bool) -> "_Tail":
        """Return the tails beyond the outermost quantile of one side."""
        quarter = 0.25 if lower else 0.75
        outer = 0 if lower else len(self.quantiles) - 1
        middle = int(np.abs(self.quantiles - 0.5).argmin())
        between = np.arange(1, middle) if lower else np.arange(middle + 1, outer)
        inner = int(between[np.abs(self.quantiles[between] - quarter).argmin()])
        probabilities = self.quantiles if lower else 1 - self.quantiles
        centre = self.values[..., middle]
        distance = self.values[..., outer] - centre
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.nan_to_num(distance / (self.values[..., inner] - centre), posinf=np.inf)
        outermost = round(float(probabilities[outer]), 9)
        ratios, *columns = _table(outermost, round(float(probabilities[inner]), 9))
        # Ratios outside the table count as its first or last.
        found = (np.interp(ratio, ratios, column) for column in columns)
        return _Tail(centre, distance, float(probabilities[outer]), *found)


class _Tail(NamedTuple):
    """Tails beyond an outer quantile, ``distance`` from the ``centre`` (below zero: lower ones).

    - ``probability``: of the tail
    - ``inverse``: one over the degrees of freedom
    - ``quantile``: the outer one of the Student-t distribution, below zero
    - ``beyond``, ``beyond_squared``: E[u; u > 1] and E[u^2; u > 1] of the side's outcome ``u``, in
      units of the outer quantile
    """

    centre: np.ndarray
    distance: np.ndarray
    probability: float
    inverse: np.ndarray
    quantile: np.ndarray
    beyond: np.ndarray
    beyond_squared: np.ndarray

    def first(self) -> np.ndarray:
        """Return E[x; x in the tail]."""
        return self.centre * self.probability + self.distance * self.beyond

    def second(self) -> np.ndarray:
        """Return E[x^2; x in the tail]."""
        mixed = 2 * self.centre * self.distance * self.beyond
        return self.centre**2 * self.probability + mixed + self.distance**2 * self.beyond_squared

    def log_density(self, outcomes: np.ndarray) -> np.ndarray:
        """Return the logarithm of the density at outcomes in the tail."""
        dof, unit = 1 / self.inverse, self.distance / self.quantile
        scaled = (outcomes - self.centre) / unit
        return _log_density(scaled, dof) - np.log(np.abs(unit))


def enough(quantiles: ArrayLike) -> bool:
    """Return whether a distribution can be read from quantiles of these probabilities.

    The median and one of 5 % or less on either side are needed, and another between them.
    """
    known = np.asarray(quantiles, float)
    if len(known) < 5 or not np.isclose(known, 0.5).any():
        return False
    tails = known[0] <= 0.05 + 1e-9 and known[-1] >= 0.95 - 1e-9
    return bool(tails and (known < 0.5 - 1e-9).sum() > 1 and (known > 0.5 + 1e-9).sum() > 1)


@lru_cache(maxsize=64)
def _table(outer: float, inner: float) -> tuple[np.ndarray, ...]:
    """Tabulate Student-t distributions by the ratio of two quantiles, both in the lower tail.

    Returns the ratios of the outer to the inner quantile, ascending, and for each the last four
    fields of a :class:`_Tail`.

    The moments are those of McNeil, Frey & Embrechts (2015), Quantitative Risk Management, section
    2.3, and by integration by parts.
    """
    inverse = np.linspace(1 / _LIGHTEST, 1 / HEAVIEST, _GRID)
    dof = 1 / inverse
    quantile, ratio = stdtrit(dof, outer), stdtrit(dof, outer) / stdtrit(dof, inner)
    density = np.exp(_log_density(quantile, dof))
    first = -density * (dof + quantile**2) / (dof - 1)
    heavier = stdtr(dof - 2, quantile * np.sqrt((dof - 2) / dof))
    second = dof * ((dof - 1) / (dof - 2) * heavier - outer)
    return ratio, inverse, quantile, first / quantile, second / quantile**2


def _log_density(x: np.ndarray, dof: np.ndarray) -> np.ndarray:
    """Return the logarithm of the density of Student-t distributions."""
    constant = gammaln((dof + 1) / 2) - gammaln(dof / 2) - 0.5 * np.log(dof * np.pi)
    return constant - (dof + 1) / 2 * np.log1p(x**2 / dof)


def _sum(parts: np.ndarray) -> np.ndarray:
    """Sum over the last axis, with the same bits for any number of rows."""
    return np.ascontiguousarray(parts).sum(-1)
