"""Build the network of one series from the settings."""

import dataclasses
from collections.abc import Callable

from forecaster import swarm
from forecaster.forecasting.config import Config
from forecaster.forecasting.networks.base import Network, Sizes
from forecaster.forecasting.networks.mlp import MLP
from forecaster.forecasting.networks.own import OwnNetwork, own_functions
from forecaster.forecasting.networks.recurrent import Recurrent
from forecaster.forecasting.networks.transformer import Transformer

CELLS = {"lstm": swarm.LSTM, "gru": swarm.GRU}
NETWORKS: dict[str, Callable[..., Network]] = {"mlp": MLP, "transformer": Transformer}


def network_functions(
    config: Config, features: int, network: OwnNetwork | None = None
) -> swarm.Functions:
    """Return the functions ``init(key)`` and ``apply(params, inputs, valid, *, last_only)``.

    - ``config``: names the model and its sizes
    - ``features``: inputs at each step
    - ``network``: a user's own class; the config's model is its import path
    """
    sizes = Sizes(features, config.lookback, config.hidden, config.layers, config.horizon)
    if network is not None:
        return own_functions(network, sizes)
    if config.network in CELLS:
        sizes = dataclasses.replace(sizes, precision=config.precision)
        cell = CELLS[config.network]
        return swarm.module_functions(lambda rngs: Recurrent(cell, sizes, rngs=rngs))
    kind = NETWORKS[config.network]
    return swarm.module_functions(lambda rngs: kind(sizes, rngs=rngs))
