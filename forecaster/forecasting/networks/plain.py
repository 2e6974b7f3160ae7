"""What needs no Flax: trained LSTM and GRU networks, and the type of a user's own.

Flax takes longer to import than a forecast takes.

The operations are those of :class:`forecaster.forecasting.networks.Recurrent` in the same order, so
that the results are equal bit for bit.
"""

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jax import Array

from forecaster.forecasting.config import Config
from forecaster.swarm import gru, lstm

if TYPE_CHECKING:
    from flax import linen, nnx

    OwnNetwork: TypeAlias = type[linen.Module] | type[nnx.Module]
else:
    OwnNetwork: TypeAlias = type


class _Cell(NamedTuple):
    """A recurrence ``run``, its number of ``gates``, and its ``biases`` in order of arguments."""

    gates: int
    biases: tuple[str, ...]
    run: Callable[..., Array]


_CELLS = {"lstm": _Cell(4, ("bias",), lstm), "gru": _Cell(3, ("bias", "new_bias"), gru)}


def plain_shapes(config: Config, features: int) -> dict[str, tuple[int, ...]] | None:
    """Return the shapes of one network's weights by path; None for models other than LSTM and GRU.

    ``features``: inputs at each step
    """
    if config.network not in _CELLS:
        return None
    hidden, horizon, gates = config.hidden, config.horizon, _CELLS[config.network].gates
    shapes: dict[str, tuple[int, ...]] = {"constants": (horizon,)}
    for layer in range(config.layers):
        width = hidden if layer else features
        shapes[f"layers/{layer}/bias"] = (gates * hidden,)
        shapes[f"layers/{layer}/kernel"] = (width + hidden, gates * hidden)
        if config.network == "gru":
            shapes[f"layers/{layer}/new_bias"] = (hidden,)
    return shapes | {"out/bias": (2 * horizon,), "out/kernel": (hidden, 2 * horizon)}


def plain_apply(config: Config) -> Callable[..., tuple[Array, Array]] | None:
    """Return ``apply(params, inputs, valid, *, last_only)``; None for a model that needs Flax."""
    if config.network not in _CELLS:
        return None
    return functools.partial(_apply, _CELLS[config.network], config.layers, config.precision)


def _apply(
    cell: _Cell,
    layers: int,
    precision: str,
    params: Mapping[Any, Any],
    inputs: Array,
    valid: Array,
    *,
    last_only: bool,
) -> tuple[Array, Array]:
    """Return outputs (B, T or 1, K) and the head's constants, for inputs (B, T, F)."""
    hidden, valid = inputs.swapaxes(0, 1), valid.swapaxes(0, 1)
    for layer in range(layers):
        weights = params["layers"][layer]
        arrays = weights["kernel"], *(weights[name] for name in cell.biases)
        last = last_only and layer == layers - 1
        hidden = cell.run(*arrays, hidden, valid, last_only=last, precision=precision)
    hidden = hidden[:, None] if last_only else hidden.swapaxes(0, 1)
    out = params["out"]
    product = jax.lax.dot_general(hidden, out["kernel"], (((hidden.ndim - 1,), (0,)), ((), ())))
    bias = jnp.reshape(out["bias"], (1,) * (product.ndim - 1) + (-1,))
    return product + bias, params["constants"]
