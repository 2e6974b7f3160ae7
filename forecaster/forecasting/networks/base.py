"""The base class of networks, and their sizes."""

import dataclasses

import jax.numpy as jnp
from flax import nnx
from jax import Array


@dataclasses.dataclass(frozen=True)
class Sizes:
    """The sizes of one network.

    - ``features``: inputs at each step
    - ``lookback``: steps of a window
    - ``hidden``: units of a layer
    - ``layers``: the number of layers
    - ``horizon``: steps ahead; each has two outputs, a location and the logarithm of a scale, and
      a trained constant beside the network
    - ``precision``: precision of the matrix products of an LSTM or GRU
    """

    features: int
    lookback: int
    hidden: int
    layers: int
    horizon: int
    precision: str = "float32"

    @property
    def outputs(self) -> int:
        """The number of outputs for each window and step."""
        return 2 * self.horizon


class Network(nnx.Module):
    """The base of all networks: it holds the trained constants."""

    def __init__(self, sizes: Sizes):
        self.constants = nnx.Param(jnp.zeros(sizes.horizon))

    def __call__(self, inputs: Array, valid: Array, *, last_only: bool) -> tuple[Array, Array]:
        """Return outputs (B, T or 1, K) and constants, for inputs (B, T, F) and valid (B, T)."""
        raise NotImplementedError


class Forecaster(Network):
    """A network with one last layer.

    The last layer starts at zero, so that an untrained network forecasts "unchanged, with the
    current volatility". Training starts from there.
    """

    def __init__(self, width: int, sizes: Sizes, *, rngs: nnx.Rngs):
        super().__init__(sizes)
        self.out = last_layer(width, sizes.outputs, rngs=rngs)


def last_layer(width: int, outputs: int, *, rngs: nnx.Rngs) -> nnx.Linear:
    """Return a linear layer that starts at zero."""
    return nnx.Linear(width, outputs, kernel_init=nnx.initializers.zeros, rngs=rngs)


def check_last_only(name: str, *, last_only: bool) -> None:
    """Raise ValueError unless outputs of the last step alone are asked for."""
    if not last_only:
        raise ValueError(f"an {name} has no output for each step; train it with 'windowed'")
