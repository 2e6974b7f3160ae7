"""Temporal convolutional networks."""

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array

from forecaster.forecasting.networks.base import Forecaster, Sizes

_TAPS = 3  # input steps of a convolution


class TCN(Forecaster):
    """Stacks of dilated causal convolutions; each stack spans the whole lookback.

    Bai, Kolter & Koltun (2018), arXiv 1803.01271. The dilation grows threefold from one convolution
    of three taps to the next, so that each step of the window enters once. No step sees a later
    one.
    """

    def __init__(self, sizes: Sizes, *, rngs: nnx.Rngs):
        super().__init__(sizes.hidden, sizes, rngs=rngs)
        hidden = sizes.hidden
        self.embed = nnx.Linear(sizes.features, hidden, rngs=rngs)
        self.dilations = dilations(sizes.lookback) * sizes.layers
        self.layers = nnx.List(
            [nnx.Linear(_TAPS * hidden, hidden, rngs=rngs) for _ in self.dilations]
        )

    def __call__(self, inputs: Array, valid: Array, *, last_only: bool) -> tuple[Array, Array]:
        """Return outputs (B, T or 1, K) and constants, for inputs (B, T, F) and valid (B, T)."""
        observed = valid[..., None] > 0
        states = jnp.where(observed, self.embed(jnp.where(observed, inputs, 0.0)), 0.0)
        for layer, dilation in zip(self.layers, self.dilations, strict=True):
            # Shifts and one matrix product, as a convolution under vmap is many times slower.
            taps = [states, *(_earlier(states, tap * dilation) for tap in range(1, _TAPS))]
            new = jax.nn.relu(layer(jnp.concatenate(taps, axis=-1)))
            states = jnp.where(observed, states + new, 0.0)
        if last_only:
            states = states[:, -1:]
        return self.out(states), self.constants[...]


def dilations(lookback: int) -> tuple[int, ...]:
    """Return the dilations of the convolutions that together span a lookback."""
    chosen, reach = [1], _TAPS
    while reach < lookback:
        chosen.append(chosen[-1] * _TAPS)
        reach += (_TAPS - 1) * chosen[-1]
    return tuple(chosen)


def _earlier(states: Array, steps: int) -> Array:
    """Return the states (B, T, H) ``steps`` steps earlier, zero before the first."""
    length = states.shape[1]
    return jnp.pad(states, ((0, 0), (min(steps, length), 0), (0, 0)))[:, :length]
