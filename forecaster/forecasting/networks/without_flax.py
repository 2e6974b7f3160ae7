"""The functions of one network, where possible without Flax, whose import takes long.

The operations of trained LSTM and GRU networks are those of
:class:`forecaster.forecasting.networks.Recurrent` in the same order, so that the results are equal
bit for bit.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jax import Array

from forecaster import swarm
from forecaster.errors import UsageError
from forecaster.forecasting.config import Config
from forecaster.swarm import gru, lstm

if TYPE_CHECKING:
    from flax import linen, nnx

    OwnNetwork: TypeAlias = type[linen.Module] | type[nnx.Module]
else:
    OwnNetwork: TypeAlias = type


def with_network(config: Config, network: object | None) -> tuple[Config, OwnNetwork | None]:
    """Return a user's own class of networks, or None, and the config for it.

    The config names the class as its model, and has its training mode resolved.

    - ``config``: its model may be the import path of a class
    - ``network``: a class that takes precedence over the config's model

    Raises UsageError for anything but a class of Flax modules, and where it cannot be imported.
    """
    if network is None and not config.is_own:
        return config, None
    from forecaster.forecasting.networks.own import check_class, import_network, import_path

    own = import_network(config.model) if network is None else check_class(network)
    causal = bool(getattr(own, "causal", False))
    if config.training == "sequence" and not causal:
        raise UsageError(
            f"network {own.__name__} cannot be trained with 'sequence': it does not say "
            "causal = True, that no step sees a later one; use training = 'windowed'"
        )
    training = "windowed" if config.training == "auto" and not causal else config.training
    training = "sequence" if training == "auto" else training
    return dataclasses.replace(config, model=import_path(own), training=training), own


@functools.lru_cache(maxsize=8)
def functions(config: Config, features: int, network: OwnNetwork | None = None) -> swarm.Functions:
    """Return the functions ``init(key)`` and ``apply(params, inputs, valid, *, last_only)``.

    - ``features``: the number of features of a step
    - ``network``: a user's own class in place of the config's model
    """
    from forecaster.forecasting.networks.base import Sizes

    sizes = Sizes(features, config.lookback, config.hidden, config.layers, config.horizon)
    if network is not None:
        from forecaster.forecasting.networks.own import own_functions

        return own_functions(network, sizes)
    if config.network in _CELLS:
        from forecaster.forecasting.networks.recurrent import Recurrent

        sizes = dataclasses.replace(sizes, precision=config.precision)
        cell = swarm.LSTM if config.network == "lstm" else swarm.GRU
        return swarm.module_functions(lambda rngs: Recurrent(cell, sizes, rngs=rngs))
    if config.network == "mlp":
        from forecaster.forecasting.networks.mlp import MLP

        return swarm.module_functions(lambda rngs: MLP(sizes, rngs=rngs))
    from forecaster.forecasting.networks.transformer import Transformer

    return swarm.module_functions(lambda rngs: Transformer(sizes, rngs=rngs))


def trained_apply(
    config: Config, features: int, network: OwnNetwork | None = None
) -> Callable[..., tuple[Array, Array]]:
    """Return ``apply`` alone, for some networks without loading Flax. As :func:`functions`."""
    plain = plain_apply(config) if network is None else None
    return functions(config, features, network).apply if plain is None else plain


def init_of(
    config: Config, features: int, network: OwnNetwork | None = None
) -> Callable[[Array], swarm.Params]:
    """Return ``init``, for some networks without loading Flax before it is called.

    Arguments as of :func:`functions`.
    """
    if network is not None or plain_apply(config) is None:
        return functions(config, features, network).init
    return lambda key: functions(config, features).init(key)


@functools.lru_cache(maxsize=8)
def param_shapes(config: Config, features: int, network: OwnNetwork | None = None) -> swarm.Params:
    """Return the shapes and types of one network's weights. Arguments as of :func:`functions`."""
    init = functions(config, features, network).init
    return jax.eval_shape(lambda: init(jax.random.key(0)))


class _Cell(NamedTuple):
    """A recurrence ``run``, and its ``biases`` in order of arguments."""

    biases: tuple[str, ...]
    run: Callable[..., Array]


_CELLS = {"lstm": _Cell(("bias",), lstm), "gru": _Cell(("bias", "new_bias"), gru)}


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
