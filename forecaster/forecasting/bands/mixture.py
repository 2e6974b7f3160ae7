"""Mixtures of Student-t distributions: what the networks of one series say together.

The networks of a series are averaged as distributions: an outcome has the mean of the chances that
they give it (a linear opinion pool: Stone 1961, Annals of Mathematical Statistics 32). Quantiles
are those of the mixture itself. Infinite degrees of freedom are a normal distribution.
"""

import dataclasses

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

_FARTHEST = 8.0  # normal scores beyond it are not told apart
_STEPS = 60  # of a root search that is safe; it ends when nothing moves
_PRECISION = 1e-10  # of the members' scale


@dataclasses.dataclass(frozen=True)
class Mixture:
    """Equally weighted distributions of each forecast.

    - ``location, scale``: of each network's distribution
    - ``dof``: its degrees of freedom
    """

    location: Float[np.ndarray, "*forecast member"]
    scale: Float[np.ndarray, "*forecast member"]
    dof: Float[np.ndarray, "*forecast member"]

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the forecasts."""
        return self.location.shape[:-1]

    def latest(self, count: int) -> "Mixture":
        """The distributions of the latest origins, the second axis."""
        return Mixture(*(part[:, -count:] for part in (self.location, self.scale, self.dof)))

    def repeated(self, count: int) -> "Mixture":
        """The distributions of one origin, the second axis, so many times."""
        return Mixture(
            *(np.repeat(part, count, axis=1) for part in (self.location, self.scale, self.dof))
        )

    def scores(self, values: Float[np.ndarray, "*forecast"]) -> Float[np.ndarray, "*forecast"]:
        """The normal scores of outcomes: how surprising they were, NaN where unknown.

        The standard normal quantile of the chance of a lower value; both tails are computed where
        they are small, so that neither is rounded away.
        """
        from forecaster.forecasting.bands.heads import ndtri

        below = self._below(values)
        upper = ~(below < 0.5)
        scores = ndtri(np.where(upper, self._below(values, upper=True), below))
        scores = np.where(upper, -scores, scores)
        return np.clip(scores, -_FARTHEST, _FARTHEST)

    def quantiles(self, scores: Float[np.ndarray, "*forecast"]) -> Float[np.ndarray, "*forecast"]:
        """The values with these normal scores; NaN where a score is NaN."""
        from forecaster.forecasting.bands.heads import ndtr, stdtrit

        scores = np.asarray(scores, float)
        tail = ndtr(-np.abs(scores))[..., None]  # of the side on which it is small
        with np.errstate(invalid="ignore"):
            reach = np.where(
                np.isinf(self.dof), -np.abs(scores)[..., None], stdtrit(self._finite(), tail)
            )
        each = self.location - np.sign(scores)[..., None] * reach * self.scale
        if each.shape[-1] == 1:
            return each[..., 0]
        return self._search(each, scores, tail[..., 0])

    def probability_above(self, threshold: ArrayLike) -> Float[np.ndarray, "*forecast"]:
        """The chance of a value above a threshold."""
        return self._below(np.broadcast_to(threshold, self.shape), upper=True)

    def _search(self, each: np.ndarray, scores: np.ndarray, tail: np.ndarray) -> np.ndarray:
        """The mixture's quantiles, which lie between those of its members: by safe Newton steps.

        Each ends when it has settled: how long others take must not change its last bits.
        """
        upper = scores > 0
        low, high = each.min(-1), each.max(-1)
        unit = self.scale.mean(-1)
        found, settled = each.mean(-1), np.zeros(scores.shape, bool)
        for _ in range(_STEPS):
            # How much too large the chance of a lower value is.
            beyond = self._below(found, upper=upper)
            excess = np.where(upper, tail - beyond, beyond - tail)
            low, high = np.where(excess < 0, found, low), np.where(excess < 0, high, found)
            with np.errstate(divide="ignore", invalid="ignore"):
                step = found - excess / self._density(found)
            inside = (step >= low) & (step <= high)
            moved = np.where(inside, step, (low + high) / 2)
            still = ~(np.abs(moved - found) > _PRECISION * unit)  # also where it is not a number
            found, settled = np.where(settled, found, moved), settled | still
            if settled.all():
                break
        return found

    def _below(self, values: np.ndarray, *, upper: bool | np.ndarray = False) -> np.ndarray:
        """The chance of a lower value, or where ``upper`` of a higher one."""
        from forecaster.forecasting.bands.heads import ndtr, stdtr

        z = (np.asarray(values)[..., None] - self.location) / self.scale
        z = np.where(np.asarray(upper)[..., None], -z, z)
        normal = np.isinf(self.dof)
        chance = stdtr(self._finite(), z)
        return np.where(normal, ndtr(z), chance).mean(-1) if normal.any() else chance.mean(-1)

    def _density(self, values: np.ndarray) -> np.ndarray:
        from forecaster.forecasting.bands.heads import gammaln

        z = (values[..., None] - self.location) / self.scale
        dof = self._finite()
        log = gammaln((dof + 1) / 2) - gammaln(dof / 2) - 0.5 * np.log(dof * np.pi)
        log = log - 0.5 * (dof + 1) * np.log1p(z * z / dof)
        normal = -0.5 * z * z - 0.5 * np.log(2 * np.pi)
        return (np.exp(np.where(np.isinf(self.dof), normal, log)) / self.scale).mean(-1)

    def _finite(self) -> np.ndarray:
        """Degrees of freedom that SciPy's functions take, also where they are not looked at."""
        return np.where(np.isinf(self.dof), 1.0, self.dof)
