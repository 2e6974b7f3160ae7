"""Flax modules for ONE series. The swarm makes many of them."""

from collections.abc import Callable
from typing import Protocol

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import Array

from forecaster.swarm import Params
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


class Forecaster(nnx.Module):
    """Common to all networks: the last layer and the head's constants.

    The last layer starts at zero, so that an untrained network forecasts "unchanged, with the
    current volatility", and training can only move away from it when that pays.
    """

    def __init__(self, width: int, outputs: int, constants: int, *, rngs: nnx.Rngs):
        zeros = nnx.initializers.zeros
        self.out = nnx.Linear(width, outputs, kernel_init=zeros, rngs=rngs)
        self.constants = nnx.Param(jnp.zeros(constants))


class Head(Protocol):
    """How many numbers a head of :mod:`forecaster.forecasting.heads` needs from a network."""

    @property
    def outputs(self) -> int:
        """Outputs for each window and step."""
        ...

    @property
    def constants(self) -> int:
        """Trained numbers beside the outputs."""
        ...


class Recurrent(Forecaster):
    """Layers of LSTM or GRU over a window, and outputs at every step or at the last only."""

    def __init__(
        self,
        cell: type[LSTM] | type[GRU],
        features: int,
        lookback: int,
        hidden: int,
        layers: int,
        outputs: int,
        constants: int,
        *,
        rngs: nnx.Rngs,
    ):
        super().__init__(hidden, outputs, constants, rngs=rngs)
        widths = [features] + [hidden] * (layers - 1)
        self.layers = nnx.List([cell(width, hidden, rngs=rngs) for width in widths])

    def __call__(self, inputs: Array, valid: Array, *, last_only: bool) -> tuple[Array, Array]:
        """``inputs`` (B, T, F), ``valid`` (B, T). Outputs (B, T or 1, K) and constants."""
        hidden, valid = inputs.swapaxes(0, 1), valid.swapaxes(0, 1)
        *lower, top = self.layers
        for layer in lower:
            hidden = layer(hidden, valid)  # (T, B, H)
        hidden = top(hidden, valid, last_only=last_only)  # (B, H) of the last, or (T, B, H)
        hidden = hidden[:, None] if last_only else hidden.swapaxes(0, 1)
        return self.out(hidden), self.constants[...]


class MLP(Forecaster):
    """A multilayer perceptron over a whole window; it has outputs for the last step only."""

    def __init__(
        self,
        features: int,
        lookback: int,
        hidden: int,
        layers: int,
        outputs: int,
        constants: int,
        *,
        rngs: nnx.Rngs,
    ):
        super().__init__(hidden, outputs, constants, rngs=rngs)
        widths = [lookback * features] + [hidden] * (layers - 1)
        self.layers = nnx.List([nnx.Linear(width, hidden, rngs=rngs) for width in widths])

    def __call__(self, inputs: Array, valid: Array, *, last_only: bool) -> tuple[Array, Array]:
        """``inputs`` (B, T, F), ``valid`` (B, T). Outputs (B, 1, K) and constants."""
        if not last_only:
            raise ValueError("an MLP has no output for each step; train it with 'windowed'")
        hidden = (inputs * valid[..., None]).reshape(inputs.shape[0], -1)
        for layer in self.layers:
            hidden = jax.nn.relu(layer(hidden))
        return self.out(hidden)[:, None], self.constants[...]


def builder(
    name: str, features: int, lookback: int, hidden: int, layers: int, head: Head
) -> Callable[[nnx.Rngs], Forecaster]:
    """A function that builds a network, given random streams.

    - ``name``: ``lstm``, ``gru`` or ``mlp``
    - ``features``: inputs at each step
    - ``lookback``: steps of a window
    - ``hidden``: units of a layer
    - ``layers``: how many
    - ``head``: what the outputs are for
    """
    sizes = (features, lookback, hidden, layers, head.outputs, head.constants)
    if name == "mlp":
        return lambda rngs: MLP(*sizes, rngs=rngs)
    cell = {"lstm": LSTM, "gru": GRU}[name]
    return lambda rngs: Recurrent(cell, *sizes, rngs=rngs)


def widen(params: Params, shapes: Params, hidden: int, to: int) -> Params:
    """The same networks with a larger hidden layer, whose added units are zero throughout.

    - ``params``: a nested dict of arrays (series, ...) of networks with ``hidden`` units
    - ``shapes``: the same tree for one network with ``to`` units
    - ``hidden``, ``to``: units of a layer before and after

    A unit without weights has state zero in an LSTM (its candidate is tanh 0), a GRU and an MLP, so
    the outputs stay what they were. An axis that grows is made of what does not (inputs) and then
    of blocks of ``hidden`` units (states, gates).
    """

    def grow(leaf: np.ndarray, wide: jax.ShapeDtypeStruct) -> np.ndarray:
        for axis, (old, new) in enumerate(zip(leaf.shape[1:], wide.shape, strict=True), start=1):
            blocks = (new - old) // (to - hidden) if to > hidden else 0
            inputs = old - blocks * hidden
            units = [inputs + block * to + np.arange(hidden) for block in range(blocks)]
            grown = np.zeros((*leaf.shape[:axis], new, *leaf.shape[axis + 1 :]), leaf.dtype)
            index: list[slice | np.ndarray] = [slice(None)] * leaf.ndim
            index[axis] = np.concatenate([np.arange(inputs), *units]).astype(int)
            grown[tuple(index)] = leaf
            leaf = grown
        return leaf

    return jax.tree.map(grow, params, shapes)
