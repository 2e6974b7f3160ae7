"""Build the network of one series from the settings."""

from collections.abc import Callable
from typing import TypeAlias

from flax import nnx

from forecaster import swarm
from forecaster.forecasting.config import Config
from forecaster.forecasting.networks.base import Head, Network, Sizes
from forecaster.forecasting.networks.linear import DLinear, NLinear
from forecaster.forecasting.networks.mlp import MLP
from forecaster.forecasting.networks.nhits import NHITS
from forecaster.forecasting.networks.own import own_functions
from forecaster.forecasting.networks.own_type import OwnNetwork
from forecaster.forecasting.networks.recurrent import Recurrent
from forecaster.forecasting.networks.tcn import TCN
from forecaster.forecasting.networks.transformer import Transformer

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
