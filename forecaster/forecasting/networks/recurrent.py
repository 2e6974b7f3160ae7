"""LSTM and GRU."""

import jax.numpy as jnp
from flax import nnx
from jax import Array

from forecaster.forecasting.networks.base import Forecaster, Sizes
from forecaster.swarm.recurrence import gru, lstm

_glorot = nnx.initializers.glorot_uniform()


class LSTM(nnx.Module):
    """One LSTM layer, time-major; see :func:`forecaster.swarm.recurrence.lstm`."""

    def __init__(self, features: int, hidden: int, *, rngs: nnx.Rngs):
        self.kernel = nnx.Param(_glorot(rngs.params(), (features + hidden, 4 * hidden)))
        # Forget gates start open: Jozefowicz, Zaremba & Sutskever (2015), ICML.
        self.bias = nnx.Param(jnp.zeros(4 * hidden).at[hidden : 2 * hidden].set(1.0))

    def __call__(self, inputs: Array, valid: Array, *, last_only: bool = False) -> Array:
        """States at every step, (T, B, H), or at the last, (B, H); ``inputs`` (T, B, F)."""
        return lstm(self.kernel[...], self.bias[...], inputs, valid, last_only=last_only)


class GRU(nnx.Module):
    """One GRU layer, time-major; see :func:`forecaster.swarm.recurrence.gru`."""

    def __init__(self, features: int, hidden: int, *, rngs: nnx.Rngs):
        self.kernel = nnx.Param(_glorot(rngs.params(), (features + hidden, 3 * hidden)))
        self.bias = nnx.Param(jnp.zeros(3 * hidden))
        self.new_bias = nnx.Param(jnp.zeros(hidden))

    def __call__(self, inputs: Array, valid: Array, *, last_only: bool = False) -> Array:
        """States at every step, (T, B, H), or at the last, (B, H); ``inputs`` (T, B, F)."""
        weights = self.kernel[...], self.bias[...], self.new_bias[...]
        return gru(*weights, inputs, valid, last_only=last_only)


class Recurrent(Forecaster):
    """Layers of LSTM or GRU over a window, and outputs at every step or at the last only."""

    def __init__(self, cell: type[LSTM] | type[GRU], sizes: Sizes, *, rngs: nnx.Rngs):
        super().__init__(sizes.hidden, sizes, rngs=rngs)
        widths = [sizes.features] + [sizes.hidden] * (sizes.layers - 1)
        self.layers = nnx.List([cell(width, sizes.hidden, rngs=rngs) for width in widths])

    def __call__(self, inputs: Array, valid: Array, *, last_only: bool) -> tuple[Array, Array]:
        """``inputs`` (B, T, F), ``valid`` (B, T). Outputs (B, T or 1, K) and constants."""
        hidden, valid = inputs.swapaxes(0, 1), valid.swapaxes(0, 1)
        *lower, top = self.layers
        for layer in lower:
            hidden = layer(hidden, valid)  # (T, B, H)
        hidden = top(hidden, valid, last_only=last_only)  # (B, H) of the last, or (T, B, H)
        hidden = hidden[:, None] if last_only else hidden.swapaxes(0, 1)
        return self.out(hidden), self.constants[...]
