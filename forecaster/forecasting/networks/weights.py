"""The shapes of a network's weights, without JAX: a saved model is checked by them."""

from forecaster.forecasting.config import Config

GATES = {"lstm": 4, "gru": 3}


def plain_shapes(config: Config, features: int) -> dict[str, tuple[int, ...]] | None:
    """Return the shapes of one network's weights by path; None for models other than LSTM and GRU.

    ``features``: inputs at each step
    """
    if config.network not in GATES:
        return None
    hidden, horizon, gates = config.hidden, config.horizon, GATES[config.network]
    shapes: dict[str, tuple[int, ...]] = {"constants": (horizon,)}
    for layer in range(config.layers):
        width = hidden if layer else features
        shapes[f"layers/{layer}/bias"] = (gates * hidden,)
        shapes[f"layers/{layer}/kernel"] = (width + hidden, gates * hidden)
        if config.network == "gru":
            shapes[f"layers/{layer}/new_bias"] = (hidden,)
    return shapes | {"out/bias": (2 * horizon,), "out/kernel": (hidden, 2 * horizon)}
