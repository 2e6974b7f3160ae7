"""The functions of one network, and the windows that it sees.

Those of LSTM and GRU need no Flax, whose import takes long. They draw and compute the same bits as
layers of :class:`forecaster.swarm.LSTM` or :class:`forecaster.swarm.GRU` below a Flax layer that
starts at zero.
"""

import dataclasses
import functools
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Int

from forecaster import swarm
from forecaster.errors import UsageError
from forecaster.forecasting.config import NETWORKS, Config
from forecaster.swarm import gru, lstm

if TYPE_CHECKING:
    from forecaster.forecasting.flax_networks import OwnNetwork
else:
    OwnNetwork: TypeAlias = type


_glorot = jax.nn.initializers.glorot_uniform()


def with_network(config: Config, network: object | None) -> tuple[Config, OwnNetwork | None]:
    """Return a user's own class of networks, or None, and the config for it.

    The config names the class as its model, and has its training mode resolved.

    - ``config``: its model may be the import path of a class
    - ``network``: a class that takes precedence over the config's model

    Raises UsageError for anything but a class of Flax modules, and where it cannot be imported.
    """
    if network is None and not config.is_own:
        return config, None
    from forecaster.forecasting.flax_networks import check_class, import_network, import_path

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
    if network is not None:
        from forecaster.forecasting.flax_networks import own_functions

        return own_functions(network, config, features)
    kind = NETWORKS[config.network]
    if kind.gates:
        init, apply = partial(_init, config, features), partial(_apply, config)
        return swarm.Functions(init, apply, lambda params, _: partial(apply, params))
    from forecaster.forecasting import flax_networks

    module = getattr(flax_networks, kind.module)
    return swarm.module_functions(lambda rngs: module(config, features, rngs=rngs))


@functools.lru_cache(maxsize=8)
def param_shapes(config: Config, features: int, network: OwnNetwork | None = None) -> swarm.Params:
    """Return the shapes and types of one network's weights. Arguments as of :func:`functions`."""
    init = functions(config, features, network).init
    return jax.eval_shape(lambda: init(jax.random.key(0)))


def gather(
    features: Float[Array, "step feature"],
    first: int | Int[Array, ""],
    starts: Int[Array, " window"],
    lookback: int,
) -> tuple[Float[Array, "window lookback feature"], Float[Array, "window lookback"]]:
    """Cut windows out of one history.

    - ``features``: the features of every step
    - ``first``: the first step that may be an input
    - ``starts``: the first step of each window, which may be negative
    - ``lookback``: steps of a window

    Returns inputs, zero in the padding, and a mask, 1.0 for an input.
    """
    steps = starts[:, None] + jnp.arange(lookback)  # (window, lookback)
    valid = (steps >= first).astype(features.dtype)
    inputs = jnp.take(features, steps, axis=0, mode="clip")
    return inputs * valid[..., None], valid


def _init(config: Config, features: int, key: Array) -> swarm.Params:
    """Return random weights of an LSTM or GRU; the last layer starts at zero."""
    hidden, gates = config.hidden, NETWORKS[config.network].gates
    layers: dict[int, dict[str, Array]] = {}
    for layer in range(config.layers):
        width = hidden if layer else features
        # In Flax the first two keys are those of the last layer.
        drawn = _glorot(jax.random.fold_in(key, 2 + layer), (width + hidden, gates * hidden))
        layers[layer] = {"kernel": drawn, "bias": jnp.zeros(gates * hidden)}
        if config.network == "gru":
            layers[layer]["new_bias"] = jnp.zeros(hidden)
        else:  # forget gates start open: Jozefowicz, Zaremba & Sutskever (2015), ICML
            layers[layer]["bias"] = layers[layer]["bias"].at[hidden : 2 * hidden].set(1.0)
    outputs = 2 * config.horizon
    out = {"kernel": jnp.zeros((hidden, outputs)), "bias": jnp.zeros(outputs)}
    return {"constants": jnp.zeros(config.horizon), "layers": layers, "out": out}


def _apply(
    config: Config,
    params: Mapping[Any, Any],
    inputs: Array,
    valid: Array,
    *,
    last_only: bool,
    key: Array | None = None,
) -> tuple[Array, Array]:
    """Return outputs (B, T or 1, K) and constants of an LSTM or GRU, for inputs (B, T, F).

    ``key``: for networks that draw in training, which these do not
    """
    del key
    hidden, valid = inputs.swapaxes(0, 1), valid.swapaxes(0, 1)
    for layer in range(config.layers):
        weights = params["layers"][layer]
        last = last_only and layer == config.layers - 1
        options: dict[str, Any] = {"last_only": last, "precision": config.precision}
        kernel, bias = weights["kernel"], weights["bias"]
        if config.network == "lstm":
            hidden = lstm(kernel, bias, hidden, valid, **options)
        else:
            hidden = gru(kernel, bias, weights["new_bias"], hidden, valid, **options)
    hidden = hidden[:, None] if last_only else hidden.swapaxes(0, 1)
    out = params["out"]
    product = jax.lax.dot_general(hidden, out["kernel"], (((hidden.ndim - 1,), (0,)), ((), ())))
    bias = jnp.reshape(out["bias"], (1,) * (product.ndim - 1) + (-1,))
    return product + bias, params["constants"]
