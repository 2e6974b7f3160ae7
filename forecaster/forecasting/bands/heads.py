"""Predictive distributions: what a network's outputs mean, their loss and their quantiles.

A head says how many outputs a network has for a horizon, and turns them into location and scale
in the transform's standardised units.
"""

import dataclasses
import importlib.util
import sys
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float
from numpy.typing import ArrayLike


def _load_f2py_when_used() -> None:
    """Have ``numpy.f2py`` be there at once; see :class:`importlib.util.LazyLoader`."""
    name = "numpy.f2py"
    spec = None if name in sys.modules else importlib.util.find_spec(name)
    if spec is None or spec.loader is None:
        return
    spec.loader = importlib.util.LazyLoader(spec.loader)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    setattr(np, "f2py", module)  # noqa: B010 - as an import does


_load_f2py_when_used()

from scipy.special import gammaln, ndtr, ndtri, stdtr, stdtrit  # noqa: E402

__all__ = ["gammaln", "ndtr", "ndtri", "stdtr", "stdtrit"]


ByHorizon: TypeAlias = Float[Array, "*batch horizon"]

_MIN_DOF = 2.1  # above 2, so that the variance exists


@dataclasses.dataclass(frozen=True)
class StudentT:
    """Location and scale from the network, degrees of freedom one number per horizon.

    Degrees of freedom change slowly if at all, as in GARCH with Student-t errors (Bollerslev 1987,
    Review of Economics and Statistics 69); learned as a constant they are steadier.
    """

    horizon: int
    name: str = "student_t"

    @property
    def outputs(self) -> int:
        """How many numbers a network gives: location and log scale of each step ahead."""
        return 2 * self.horizon

    @property
    def constants(self) -> int:
        """Trained numbers beside the network's outputs."""
        return self.horizon

    def distribution(
        self, outputs: Float[Array, "*batch output"], constants: Float[Array, " constant"]
    ) -> tuple[ByHorizon, ByHorizon, ByHorizon]:
        """Location, scale and degrees of freedom."""
        location, log_scale = jnp.split(outputs, 2, axis=-1)
        dof = _MIN_DOF + jax.nn.softplus(constants + 3.0)
        return location, jnp.exp(jnp.clip(log_scale, -5, 5)), jnp.broadcast_to(dof, location.shape)

    def loss(
        self,
        outputs: Float[Array, "*batch output"],
        constants: Float[Array, " constant"],
        targets: ByHorizon,
    ) -> ByHorizon:
        """Negative log likelihood, elementwise."""
        location, log_scale = jnp.split(outputs, 2, axis=-1)
        log_scale = jnp.clip(log_scale, -5, 5)
        dof = _MIN_DOF + jax.nn.softplus(constants + 3.0)
        normalise = _log_gamma_ratio(dof / 2) - 0.5 * jnp.log(dof * jnp.pi)
        z = (targets - location) * jnp.exp(-log_scale)
        return log_scale - normalise + 0.5 * (dof + 1) * jnp.log1p(z * z / dof)

    @staticmethod
    def probability_above(
        threshold: ArrayLike, location: ArrayLike, scale: ArrayLike, dof: ArrayLike
    ) -> np.ndarray:
        """Chance that the target lies above a threshold."""
        from forecaster.forecasting.bands.heads import stdtr

        return np.asarray(stdtr(dof, np.subtract(location, threshold) / scale))


@dataclasses.dataclass(frozen=True)
class Point:
    """One number per horizon under squared error: the head for same-work comparisons."""

    horizon: int
    name: str = "point"

    @property
    def outputs(self) -> int:
        """How many numbers a network gives, one for each step ahead."""
        return self.horizon

    @property
    def constants(self) -> int:
        """Trained numbers beside the network's outputs: none."""
        return 0

    def distribution(
        self, outputs: Float[Array, "*batch output"], constants: Float[Array, " constant"]
    ) -> tuple[ByHorizon, ByHorizon, ByHorizon]:
        """Location, a scale of one, and infinite degrees of freedom."""
        return outputs, jnp.ones_like(outputs), jnp.full_like(outputs, jnp.inf)

    def loss(
        self,
        outputs: Float[Array, "*batch output"],
        constants: Float[Array, " constant"],
        targets: ByHorizon,
    ) -> ByHorizon:
        """Squared error, elementwise."""
        return (outputs - targets) ** 2

    @staticmethod
    def probability_above(
        threshold: ArrayLike, location: ArrayLike, scale: ArrayLike, dof: ArrayLike
    ) -> np.ndarray:
        """Chance that the target lies above a threshold, the errors taken as normal."""
        from forecaster.forecasting.bands.heads import ndtr

        return np.asarray(ndtr(np.subtract(location, threshold) / scale))


def _log_gamma_ratio(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Log of Gamma(x + 1/2) / Gamma(x), for x > 1, to float32's precision.

    By its asymptotic series at x + 4 (Tricomi & Erdelyi 1951, Pacific Journal of Mathematics 1).
    Two of JAX's ``gammaln`` cancel where x is large, and take a tenth of the time to compile a fit.
    """
    far = x + 4
    down = 1 / (far * far)
    series = (1 / 8 - down * (1 / 192 - down / 640)) / far
    steps = jnp.log1p(-0.5 / (x[..., None] + jnp.arange(4) + 0.5)).sum(-1)
    return 0.5 * jnp.log(far) - series + steps


HEADS = {"student_t": StudentT, "point": Point}
