"""LSTM and GRU networks as functions of their weights alone, for a forecast with trained ones.

Flax takes longer to import than such a forecast takes. These are the computations of
:class:`forecaster.forecasting.networks.Recurrent`, operation by operation, so that bits agree.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from forecaster.config import Config
from forecaster.swarm import gru, lstm


class _Cell(NamedTuple):
    """``biases``: their names, in the order in which ``run``, the recurrence, takes them."""

    biases: tuple[str, ...]
    run: Callable[..., Array]


_CELLS = {"lstm": _Cell(("bias",), lstm), "gru": _Cell(("bias", "new_bias"), gru)}


def plain_apply(config: Config) -> Callable[..., tuple[Array, Array]] | None:
    """``apply(params, inputs, valid, *, last_only)`` of a model; None of one that needs Flax."""
    if config.model not in _CELLS:
        return None
    return functools.partial(_apply, _CELLS[config.model], config.layers, config.precision)


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
    """``inputs`` (B, T, F), ``valid`` (B, T). Outputs (B, T or 1, K) and the head's constants."""
    hidden, valid = inputs.swapaxes(0, 1), valid.swapaxes(0, 1)
    for place in range(layers):
        weights = params["layers"][place]
        arrays = weights["kernel"], *(weights[name] for name in cell.biases)
        last = last_only and place == layers - 1
        hidden = cell.run(*arrays, hidden, valid, last_only=last, precision=precision)
    hidden = hidden[:, None] if last_only else hidden.swapaxes(0, 1)
    out = params["out"]
    product = jax.lax.dot_general(hidden, out["kernel"], (((hidden.ndim - 1,), (0,)), ((), ())))
    bias = jnp.reshape(out["bias"], (1,) * (product.ndim - 1) + (-1,))
    return product + bias, params["constants"]
