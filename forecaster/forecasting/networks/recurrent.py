"""LSTM and GRU networks."""

from flax import nnx
from jax import Array

from forecaster.forecasting.networks.base import Forecaster, Sizes
from forecaster.swarm import GRU, LSTM


class Recurrent(Forecaster):
    """Layers of LSTM or GRU over a window, and outputs at every step or at the last only."""

    def __init__(self, cell: type[LSTM] | type[GRU], sizes: Sizes, *, rngs: nnx.Rngs):
        super().__init__(sizes.hidden, sizes, rngs=rngs)
        widths = [sizes.features] + [sizes.hidden] * (sizes.layers - 1)
        size, precision = sizes.hidden, sizes.precision
        self.layers = nnx.List(
            [cell(width, size, precision=precision, rngs=rngs) for width in widths]
        )

    def __call__(self, inputs: Array, valid: Array, *, last_only: bool) -> tuple[Array, Array]:
        """Return outputs (B, T or 1, K) and constants, for inputs (B, T, F) and valid (B, T)."""
        hidden, valid = inputs.swapaxes(0, 1), valid.swapaxes(0, 1)
        *lower, top = self.layers
        for layer in lower:
            hidden = layer(hidden, valid)  # (T, B, H)
        hidden = top(hidden, valid, last_only=last_only)  # (B, H) of the last, or (T, B, H)
        hidden = hidden[:, None] if last_only else hidden.swapaxes(0, 1)
        return self.out(hidden), self.constants[...]
