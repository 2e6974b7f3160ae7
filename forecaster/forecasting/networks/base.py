"""The base class of networks that are Flax modules."""

import jax.numpy as jnp
from flax import nnx

from forecaster.forecasting.config import Config


class Network(nnx.Module):
    """The base of all networks: it holds the trained constants, and a last layer.

    For each step ahead there are two outputs, a location and the logarithm of a scale, and a
    constant. The last layer starts at zero. An untrained network then forecasts "unchanged, with
    the current volatility". Training starts from there.
    """

    def __init__(self, config: Config, *, rngs: nnx.Rngs):
        self.constants = nnx.Param(jnp.zeros(config.horizon))
        zeros, outputs = nnx.initializers.zeros, 2 * config.horizon
        self.out = nnx.Linear(config.hidden, outputs, kernel_init=zeros, rngs=rngs)
