"""Linear networks: are more layers worth it?

Zeng, Chen, Zhang & Xu (2023), "Are transformers effective for time series forecasting?", AAAI 37.
"""

import jax.numpy as jnp
from flax import nnx
from jax import Array

from forecaster.forecasting.networks.base import Network, Sizes, check_last_only, last_layer

_TREND = 25  # steps that a trend is the mean of, as in the paper


class DLinear(Network):
    """A moving average of a window and what is left of it, each by a linear layer of its own.

    ``hidden`` and ``layers`` mean nothing here. It has outputs for the last step only.
    """

    def __init__(self, sizes: Sizes, *, rngs: nnx.Rngs):
        super().__init__(sizes)
        width, outputs = sizes.lookback * sizes.features, sizes.head.outputs
        self.trend = last_layer(width, outputs, rngs=rngs)
        self.rest = last_layer(width, outputs, rngs=rngs)

    def __call__(self, inputs: Array, valid: Array, *, last_only: bool) -> tuple[Array, Array]:
        """``inputs`` (B, T, F), ``valid`` (B, T). Outputs (B, 1, K) and constants."""
        check_last_only("DLinear", last_only=last_only)
        observed = valid[..., None] > 0
        inputs = jnp.where(observed, inputs, 0.0)
        trend = jnp.where(observed, _moving_mean(inputs, valid), 0.0)
        flat = (inputs.shape[0], -1)
        outputs = self.trend(trend.reshape(flat)) + self.rest((inputs - trend).reshape(flat))
        return outputs[:, None], self.constants[...]


class NLinear(Network):
    """A window less its last step by a linear layer, and that last step by another.

    In the paper the last step is added to the forecast as it is; here inputs and targets differ in
    units, and the target is counted from the last value already. ``hidden`` and ``layers`` mean
    nothing here. It has outputs for the last step only.
    """

    def __init__(self, sizes: Sizes, *, rngs: nnx.Rngs):
        super().__init__(sizes)
        outputs = sizes.head.outputs
        self.window = last_layer(sizes.lookback * sizes.features, outputs, rngs=rngs)
        self.last = last_layer(sizes.features, outputs, rngs=rngs)

    def __call__(self, inputs: Array, valid: Array, *, last_only: bool) -> tuple[Array, Array]:
        """``inputs`` (B, T, F), ``valid`` (B, T). Outputs (B, 1, K) and constants."""
        check_last_only("NLinear", last_only=last_only)
        observed = valid[..., None] > 0
        inputs = jnp.where(observed, inputs, 0.0)
        last = inputs[:, -1]
        window = jnp.where(observed, inputs - last[:, None], 0.0)
        outputs = self.window(window.reshape(inputs.shape[0], -1)) + self.last(last)
        return outputs[:, None], self.constants[...]


def _moving_mean(inputs: Array, valid: Array) -> Array:
    """Means of observed steps around each step, (B, T, F); at the ends of fewer."""
    steps = jnp.arange(inputs.shape[1])
    near = (jnp.abs(steps[:, None] - steps) <= _TREND // 2).astype(inputs.dtype)  # (T, T)
    total = jnp.einsum("ts,bsf->btf", near, inputs)
    count = jnp.einsum("ts,bs->bt", near, (valid > 0).astype(inputs.dtype))
    return total / jnp.maximum(count, 1.0)[..., None]
