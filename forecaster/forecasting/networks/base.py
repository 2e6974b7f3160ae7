"""What all networks have in common."""

import dataclasses
from typing import Protocol

import jax.numpy as jnp
from flax import nnx
from jax import Array


class Head(Protocol):
    """How many numbers a head of :mod:`forecaster.forecasting.bands.heads` needs from a network."""

    @property
    def horizon(self) -> int:
        """Steps ahead."""
        ...

    @property
    def outputs(self) -> int:
        """Outputs for each window and step: ``horizon`` of the first kind, then of the next."""
        ...

    @property
    def constants(self) -> int:
        """Trained numbers beside the outputs."""
        ...


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Of one network.

    - ``features``: inputs at each step
    - ``lookback``: steps of a window
    - ``hidden``: units of a layer
    - ``layers``: how many
    - ``head``: what the outputs are for
    - ``precision``: of an LSTM's or GRU's matrix products
    """

    features: int
    lookback: int
    hidden: int
    layers: int
    head: Head
    precision: str = "float32"


class Network(nnx.Module):
    """Common to all networks: the head's constants, and how they are called."""

    def __init__(self, sizes: Sizes):
        self.constants = nnx.Param(jnp.zeros(sizes.head.constants))

    def __call__(self, inputs: Array, valid: Array, *, last_only: bool) -> tuple[Array, Array]:
        """``inputs`` (B, T, F), ``valid`` (B, T). Outputs (B, T or 1, K) and constants."""
        raise NotImplementedError


class Forecaster(Network):
    """A network with one last layer.

    The last layer starts at zero, so that an untrained network forecasts "unchanged, with the
    current volatility", and training can only move away from it when that pays.
    """

    def __init__(self, width: int, sizes: Sizes, *, rngs: nnx.Rngs):
        super().__init__(sizes)
        self.out = last_layer(width, sizes.head.outputs, rngs=rngs)


def last_layer(width: int, outputs: int, *, rngs: nnx.Rngs) -> nnx.Linear:
    """A linear layer that starts at zero."""
    return nnx.Linear(width, outputs, kernel_init=nnx.initializers.zeros, rngs=rngs)


def check_last_only(name: str, *, last_only: bool) -> None:
    """Raises ValueError for outputs at every step of a network that has them at the last only."""
    if not last_only:
        raise ValueError(f"an {name} has no output for each step; train it with 'windowed'")
