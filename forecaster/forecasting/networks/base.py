"""The base class of networks, and their sizes."""

import dataclasses
from typing import Protocol

import jax.numpy as jnp
from flax import nnx
from jax import Array


class Head(Protocol):
    """The sizes that a head of :mod:`forecaster.forecasting.bands.heads` demands of a network."""

    @property
    def horizon(self) -> int:
        """Steps ahead."""
        ...

    @property
    def outputs(self) -> int:
        """Outputs for each window and step: ``horizon`` locations, then as many scales if any."""
        ...

    @property
    def constants(self) -> int:
        """The number of trained constants beside the network."""
        ...


@dataclasses.dataclass(frozen=True)
class Sizes:
    """The sizes of one network.

    - ``features``: inputs at each step
    - ``lookback``: steps of a window
    - ``hidden``: units of a layer
    - ``layers``: the number of layers
    - ``head``: the head that takes the outputs
    - ``precision``: precision of the matrix products of an LSTM or GRU
    """

    features: int
    lookback: int
    hidden: int
    layers: int
    head: Head
    precision: str = "float32"


class Network(nnx.Module):
    """The base of all networks: it holds the head's constants."""

    def __init__(self, sizes: Sizes):
        self.constants = nnx.Param(jnp.zeros(sizes.head.constants))

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
        self.out = last_layer(width, sizes.head.outputs, rngs=rngs)


def last_layer(width: int, outputs: int, *, rngs: nnx.Rngs) -> nnx.Linear:
    """Return a linear layer that starts at zero."""
    return nnx.Linear(width, outputs, kernel_init=nnx.initializers.zeros, rngs=rngs)


def check_last_only(name: str, *, last_only: bool) -> None:
    """Raise ValueError unless outputs of the last step alone are asked for."""
    if not last_only:
        raise ValueError(f"an {name} has no output for each step; train it with 'windowed'")
