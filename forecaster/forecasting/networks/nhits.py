"""Multilayer perceptrons at several resolutions."""

import math

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import Array

from forecaster.forecasting.networks.base import Network, Sizes, check_last_only, last_layer

_POOLS = (8, 4, 1)  # steps of a window that each block pools into one
_SPARSER = (4, 2, 1)  # steps ahead per knot of each block; it interpolates between knots


class Block(nnx.Module):
    """A perceptron over a window at one resolution, with a backcast and a forecast."""

    def __init__(self, sizes: Sizes, pool: int, sparser: int, *, last: bool, rngs: nnx.Rngs):
        head = sizes.head
        self.pool = min(pool, sizes.lookback)
        self.knots = math.ceil(head.horizon / sparser)
        self.horizon, self.kinds = head.horizon, head.outputs // head.horizon
        pooled = math.ceil(sizes.lookback / self.pool) * sizes.features
        widths = [pooled] + [sizes.hidden] * (sizes.layers - 1)
        self.layers = nnx.List([nnx.Linear(width, sizes.hidden, rngs=rngs) for width in widths])
        self.forecast = last_layer(sizes.hidden, self.kinds * self.knots, rngs=rngs)
        self.backcast = None if last else nnx.Linear(sizes.hidden, pooled, rngs=rngs)

    def __call__(self, inputs: Array, valid: Array) -> tuple[Array, Array | None]:
        """Return outputs (B, K) and the backcast of the inputs (B, T, F); None for the last."""
        batch, steps, features = inputs.shape
        hidden = pooled(inputs, valid, self.pool).reshape(batch, -1)
        for layer in self.layers:
            hidden = jax.nn.relu(layer(hidden))
        knots = self.forecast(hidden).reshape(batch, self.kinds, self.knots)
        outputs = (knots @ between(self.knots, self.horizon)).reshape(batch, -1)
        if self.backcast is None:
            return outputs, None
        coarse = self.backcast(hidden).reshape(batch, -1, features)
        return outputs, jnp.einsum("bkf,kt->btf", coarse, between(coarse.shape[1], steps))


class NHITS(Network):
    """Blocks of increasing resolution, each on the window less the backcasts of those before.

    Challu et al. (2023), "N-HiTS: neural hierarchical interpolation for time series forecasting",
    AAAI 37. ``layers``: layers of each block. It has outputs for the last step only.
    """

    def __init__(self, sizes: Sizes, *, rngs: nnx.Rngs):
        super().__init__(sizes)
        resolutions = list(zip(_POOLS, _SPARSER, strict=True))
        self.blocks = nnx.List(
            [
                Block(sizes, pool, sparser, last=(pool, sparser) == resolutions[-1], rngs=rngs)
                for pool, sparser in resolutions
            ]
        )

    def __call__(self, inputs: Array, valid: Array, *, last_only: bool) -> tuple[Array, Array]:
        """Return outputs (B, 1, K) and constants, for inputs (B, T, F) and valid (B, T)."""
        check_last_only("N-HiTS", last_only=last_only)
        observed = valid[..., None] > 0
        left = jnp.where(observed, inputs, 0.0)
        total = jnp.float32(0.0)
        for block in self.blocks:
            outputs, backcast = block(left, valid)
            total = total + outputs
            if backcast is not None:
                left = jnp.where(observed, left - backcast, 0.0)
        return total[:, None], self.constants[...]


def pooled(inputs: Array, valid: Array, pool: int) -> Array:
    """Return the maximum of each ``pool`` steps, counted from the latest; zero for padding."""
    batch, steps, features = inputs.shape
    missing = -steps % pool
    inputs = jnp.where(valid[..., None] > 0, inputs, -jnp.inf)
    inputs = jnp.pad(inputs, ((0, 0), (missing, 0), (0, 0)), constant_values=-jnp.inf)
    largest = inputs.reshape(batch, -1, pool, features).max(2)
    return jnp.where(jnp.isfinite(largest), largest, 0.0)


def between(knots: int, steps: int) -> np.ndarray:
    """Return the weights (knots, steps) of linear interpolation between evenly spread knots."""
    at = np.linspace(0, knots - 1, steps) if steps > 1 else np.zeros(1)
    return np.maximum(0, 1 - np.abs(at - np.arange(knots)[:, None])).astype(np.float32)
