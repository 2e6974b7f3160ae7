"""Choose a user's own class of networks. Loads Flax only where there is one."""

import dataclasses

from forecaster.errors import UsageError
from forecaster.forecasting.config import Config
from forecaster.forecasting.networks.plain import OwnNetwork


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
