"""Linear networks.

Zeng, Chen, Zhang & Xu (2023), "Are transformers effective for time series forecasting?", AAAI 37.
"""

import jax.numpy as jnp
from flax import nnx
from jax import Array

from forecaster.forecasting.networks.base import Network, Sizes, check_last_only, last_layer

_TREND = 25  # steps of the moving mean, as in the paper


class DLinear(Network):
    """The sum of two linear layers: of a window's moving mean, and of the rest of the window.

    ``hidden`` and ``layers`` are not used. It has outputs for the last step only.
    """

    def __init__(self, sizes: Sizes, *, rngs: nnx.Rngs):
        super().__init__(sizes)
        width, outputs = sizes.lookback * sizes.features, sizes.head.outputs
        self.trend = last_layer(width, outputs, rngs=rngs)
        self.rest = last_layer(width, outputs, rngs=rngs)

    def __call__(self, inputs: Array, valid: Array, *, last_only: bool) -> tuple[Array, Array]:
        """Return outputs (B, 1, K) and constants, for inputs (B, T, F) and valid (B, T)."""
        check_last_only("DLinear", last_only=last_only)
        observed = valid[..., None] > 0
        inputs = jnp.where(observed, inputs, 0.0)
        trend = jnp.where(observed, _moving_mean(inputs, valid), 0.0)
        flat = (inputs.shape[0], -1)
        outputs = self.trend(trend.reshape(flat)) + self.rest((inputs - trend).reshape(flat))
        return outputs[:, None], self.constants[...]


class NLinear(Network):
    """The sum of two linear layers: of a window less its last step, and of that last step.

    In the paper the last step is added to the forecast without a layer. Here inputs and targets
    have different units, and the target is already counted from the last value. ``hidden`` and
    ``layers`` are not used. It has outputs for the last step only.
    """

    def __init__(self, sizes: Sizes, *, rngs: nnx.Rngs):
        super().__init__(sizes)
        outputs = sizes.head.outputs
        self.window = last_layer(sizes.lookback * sizes.features, outputs, rngs=rngs)
        self.last = last_layer(sizes.features, outputs, rngs=rngs)

    def __call__(self, inputs: Array, valid: Array, *, last_only: bool) -> tuple[Array, Array]:
        """Return outputs (B, 1, K) and constants, for inputs (B, T, F) and valid (B, T)."""
        check_last_only("NLinear", last_only=last_only)
        observed = valid[..., None] > 0
        inputs = jnp.where(observed, inputs, 0.0)
        last = inputs[:, -1]
        window = jnp.where(observed, inputs - last[:, None], 0.0)
        outputs = self.window(window.reshape(inputs.shape[0], -1)) + self.last(last)
        return outputs[:, None], self.constants[...]


def _moving_mean(inputs: Array, valid: Array) -> Array:
    """Return the means (B, T, F) of the observed steps around each step, fewer at the ends."""
    steps = jnp.arange(inputs.shape[1])
    near = (jnp.abs(steps[:, None] - steps) <= _TREND // 2).astype(inputs.dtype)  # (T, T)
    total = jnp.einsum("ts,bsf->btf", near, inputs)
    count = jnp.einsum("ts,bs->bt", near, (valid > 0).astype(inputs.dtype))
    return total / jnp.maximum(count, 1.0)[..., None]
