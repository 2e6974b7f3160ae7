"""Perceptrons at several resolutions."""

import math

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import Array

from forecaster.forecasting.networks.base import Network, Sizes, check_last_only, last_layer

_POOLS = (8, 4, 1)  # steps of a window that a block sees as one
_SPARSER = (4, 2, 1)  # steps ahead for each that a block forecasts; between them it is a line


class Block(nnx.Module):
    """A perceptron over a window at one resolution; what it explains, and what it forecasts."""

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
        """Inputs (B, T, F) to outputs (B, K), and to what of the inputs they came from."""
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
    """Blocks that see a window at finer and finer resolution, each what the former left over.

    Challu et al. (2023), "N-HiTS: neural hierarchical interpolation for time series forecasting",
    AAAI 37. ``layers`` are those of each block. It has outputs for the last step only.
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
        """``inputs`` (B, T, F), ``valid`` (B, T). Outputs (B, 1, K) and constants."""
        check_last_only("N-HiTS", last_only=last_only)
        observed = valid[..., None] > 0
        left = jnp.where(observed, inputs, 0.0)
        total = jnp.float32(0.0)
        for block in self.blocks:
            outputs, explained = block(left, valid)
            total = total + outputs
            if explained is not None:
                left = jnp.where(observed, left - explained, 0.0)
        return total[:, None], self.constants[...]


def pooled(inputs: Array, valid: Array, pool: int) -> Array:
    """The largest of every ``pool`` observed steps, counted from the latest; zero where none is."""
    batch, steps, features = inputs.shape
    missing = -steps % pool
    inputs = jnp.where(valid[..., None] > 0, inputs, -jnp.inf)
    inputs = jnp.pad(inputs, ((0, 0), (missing, 0), (0, 0)), constant_values=-jnp.inf)
    largest = inputs.reshape(batch, -1, pool, features).max(2)
    return jnp.where(jnp.isfinite(largest), largest, 0.0)


def between(knots: int, steps: int) -> np.ndarray:
    """Weights (knots, steps) of a line through knots spread evenly over the steps."""
    at = np.linspace(0, knots - 1, steps) if steps > 1 else np.zeros(1)
    return np.maximum(0, 1 - np.abs(at - np.arange(knots)[:, None])).astype(np.float32)
