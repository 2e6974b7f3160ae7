"""The base class of networks, and their sizes."""

import dataclasses

import jax.numpy as jnp
from flax import nnx


@dataclasses.dataclass(frozen=True)
class Sizes:
    """The sizes of one network.

    - ``features``: inputs at each step
    - ``lookback``: steps of a window
    - ``hidden``: units of a layer
    - ``layers``: the number of layers
    - ``horizon``: steps ahead; each has two outputs, a location and the logarithm of a scale, and
      a trained constant beside the network
    """

    features: int
    lookback: int
    hidden: int
    layers: int
    horizon: int

    @property
    def outputs(self) -> int:
        """The number of outputs for each window and step."""
        return 2 * self.horizon


class Network(nnx.Module):
    """The base of all networks: it holds the trained constants."""

    def __init__(self, sizes: Sizes):
        self.constants = nnx.Param(jnp.zeros(sizes.horizon))


def last_layer(width: int, outputs: int, *, rngs: nnx.Rngs) -> nnx.Linear:
    """Return a linear layer that starts at zero.

    An untrained network then forecasts "unchanged, with the current volatility". Training starts
    from there.
    """
    return nnx.Linear(width, outputs, kernel_init=nnx.initializers.zeros, rngs=rngs)
