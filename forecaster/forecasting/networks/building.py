"""Build the network of one series from the settings."""

import dataclasses
from collections.abc import Callable
from typing import TypeAlias

import jax
import numpy as np
from flax import nnx

from forecaster import swarm
from forecaster.config import Config
from forecaster.errors import UsageError
from forecaster.forecasting.networks.base import Head, Network, Sizes
from forecaster.forecasting.networks.linear import DLinear, NLinear
from forecaster.forecasting.networks.mlp import MLP
from forecaster.forecasting.networks.nhits import NHITS
from forecaster.forecasting.networks.own import (
    check_class,
    import_network,
    import_path,
    own_functions,
)
from forecaster.forecasting.networks.own_type import OwnNetwork
from forecaster.forecasting.networks.recurrent import Recurrent
from forecaster.forecasting.networks.tcn import TCN
from forecaster.forecasting.networks.transformer import Transformer
from forecaster.swarm import Params

CELLS = {"lstm": swarm.LSTM, "gru": swarm.GRU}
NETWORKS: dict[str, Callable[..., Network]] = {
    "mlp": MLP,
    "transformer": Transformer,
    "tcn": TCN,
    "nhits": NHITS,
    "dlinear": DLinear,
    "nlinear": NLinear,
}

Build: TypeAlias = Callable[[nnx.Rngs], Network]


def builder(
    name: str, features: int, lookback: int, hidden: int, layers: int, head: Head,
    precision: str = "float32",
) -> Build:  # fmt: skip
    """Return a function that builds a network from random streams.

    - ``name``: one of the models of :class:`forecaster.Config`
    - others as of :class:`Sizes`
    """
    sizes = Sizes(features, lookback, hidden, layers, head, precision)
    if name in CELLS:
        return lambda rngs: Recurrent(CELLS[name], sizes, rngs=rngs)
    return lambda rngs: NETWORKS[name](sizes, rngs=rngs)


def network_functions(
    config: Config, features: int, head: Head, network: OwnNetwork | None = None
) -> swarm.Functions:
    """Return the functions ``init(key)`` and ``apply(params, inputs, valid, *, last_only)``.

    - ``config``: names the model and its sizes
    - ``features``: inputs at each step
    - ``head``: the head that takes the outputs
    - ``network``: a user's own class; the config's model is its import path
    """
    sizes = config.lookback, config.hidden, config.layers
    if network is None:
        build = builder(config.network, features, *sizes, head, config.precision)
        return swarm.module_functions(build)
    return own_functions(network, Sizes(features, *sizes, head))


def with_network(config: Config, network: object | None) -> tuple[Config, OwnNetwork | None]:
    """Return a user's own class of networks, or None, and the config for it.

    The config names the class as its model, and has its training mode resolved.

    - ``config``: its model may be the import path of a class
    - ``network``: a class that takes precedence over the config's model

    Raises UsageError for anything but a class of Flax modules, and where it cannot be imported.
    """
    if network is None and not config.is_own:
        return config, None
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


def widen(params: Params, shapes: Params, hidden: int, to: int) -> Params:
    """Widen the hidden layers of networks with units whose weights are zero; outputs stay equal.

    - ``params``: a nested dict of arrays (series, ...) of networks with ``hidden`` units
    - ``shapes``: the same tree for one network with ``to`` units
    - ``hidden``, ``to``: units of a layer before and after

    In every network a unit without weights is zero (in an LSTM its candidate is tanh 0), and no
    normalisation takes a mean over units. An axis that grows begins with inputs, whose number
    stays, followed by blocks of ``hidden`` units (states, gates).
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
