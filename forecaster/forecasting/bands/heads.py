"""Heads: the predictive distribution that a network's outputs describe, and its loss.

A head has a number of outputs per step ahead, and turns them into location and scale in the
standardised units of the transform.
"""

import dataclasses
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float

ByHorizon: TypeAlias = Float[Array, "*batch horizon"]

_MIN_DOF = 2.1  # above 2, so that the variance exists
_AT_START = 3.0  # what is added to the trained constants, which are 0 at first
_NORMAL = 1e4  # degrees of freedom of a distribution that is as good as normal


@dataclasses.dataclass(frozen=True)
class StudentT:
    """Student-t distributions with location and scale from the network.

    The degrees of freedom are one constant per step ahead, which is learned, as in GARCH with
    Student-t errors (Bollerslev 1987, Review of Economics and Statistics 69): they hardly change
    over time.

    Networks of counts are trained under a normal distribution, whose likelihood is largest at the
    mean and the variance, which distributions of counts need. The Student-t likelihood of a series
    that is mostly zero is largest at zero and with no width.
    """

    horizon: int
    name: str = "student_t"

    @property
    def outputs(self) -> int:
        """The number of outputs of a network: location and log scale for each step ahead."""
        return 2 * self.horizon

    @property
    def constants(self) -> int:
        """The number of trained constants beside the network: one for each step ahead."""
        return self.horizon

    def distribution(
        self, outputs: Float[Array, "*batch output"], constants: Float[Array, " constant"]
    ) -> tuple[ByHorizon, ByHorizon, ByHorizon]:
        """Return location, scale and degrees of freedom."""
        location, log_scale = jnp.split(outputs, 2, axis=-1)
        dof = _MIN_DOF + jax.nn.softplus(constants + _AT_START)
        return location, jnp.exp(jnp.clip(log_scale, -5, 5)), jnp.broadcast_to(dof, location.shape)

    @property
    def degrees_at_start(self) -> float:
        """The degrees of freedom before training, and without a network."""
        return _MIN_DOF + float(np.log1p(np.exp(_AT_START)))

    def loss(
        self,
        outputs: Float[Array, "*batch output"],
        constants: Float[Array, " constant"],
        targets: ByHorizon,
        *,
        counted: Bool[Array, "#*batch 1"] | None = None,
    ) -> ByHorizon:
        """Return the negative log likelihood, elementwise.

        ``counted``: which targets are counts; by default none
        """
        location, log_scale = jnp.split(outputs, 2, axis=-1)
        log_scale = jnp.clip(log_scale, -5, 5)
        dof = _MIN_DOF + jax.nn.softplus(constants + _AT_START)
        if counted is not None:
            dof = jnp.where(counted, _NORMAL, dof)
        normalise = _log_gamma_ratio(dof / 2) - 0.5 * jnp.log(dof * jnp.pi)
        z = (targets - location) * jnp.exp(-log_scale)
        return log_scale - normalise + 0.5 * (dof + 1) * jnp.log1p(z * z / dof)


@dataclasses.dataclass(frozen=True)
class Point:
    """One number per step ahead under squared error, to compare with other libraries."""

    horizon: int
    name: str = "point"

    @property
    def outputs(self) -> int:
        """The number of outputs of a network: one for each step ahead."""
        return self.horizon

    @property
    def constants(self) -> int:
        """The number of trained constants beside the network."""
        return 0

    def distribution(
        self, outputs: Float[Array, "*batch output"], constants: Float[Array, " constant"]
    ) -> tuple[ByHorizon, ByHorizon, ByHorizon]:
        """Return the outputs as location, a scale of one, and infinite degrees of freedom."""
        return outputs, jnp.ones_like(outputs), jnp.full_like(outputs, jnp.inf)

    @property
    def degrees_at_start(self) -> float:
        """The degrees of freedom of a normal distribution."""
        return float("inf")

    def loss(
        self,
        outputs: Float[Array, "*batch output"],
        constants: Float[Array, " constant"],
        targets: ByHorizon,
        *,
        counted: Bool[Array, "#*batch 1"] | None = None,
    ) -> ByHorizon:
        """Return the squared error, elementwise."""
        return (outputs - targets) ** 2


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


HEADS = {"student_t": StudentT, "point": Point}
