"""A multilayer perceptron."""

import jax
from flax import nnx
from jax import Array

from forecaster.forecasting.config import Config
from forecaster.forecasting.networks.base import Network


class MLP(Network):
    """A multilayer perceptron over a whole window; it has outputs for the last step only."""

    def __init__(self, config: Config, features: int, *, rngs: nnx.Rngs):
        super().__init__(config, rngs=rngs)
        widths = [config.lookback * features] + [config.hidden] * (config.layers - 1)
        self.layers = nnx.List([nnx.Linear(width, config.hidden, rngs=rngs) for width in widths])

    def __call__(self, inputs: Array, valid: Array, *, last_only: bool) -> tuple[Array, Array]:
        """Return outputs (B, 1, K) and constants, for inputs (B, T, F) and valid (B, T)."""
        assert last_only, "an MLP has no output for each step"
        hidden = (inputs * valid[..., None]).reshape(inputs.shape[0], -1)
        for layer in self.layers:
            hidden = jax.nn.relu(layer(hidden))
        return self.out(hidden)[:, None], self.constants[...]
