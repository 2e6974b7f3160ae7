"""The shapes of the weights of LSTM and GRU networks, without building one."""

from forecaster.forecasting.config import Config

_GATES = {"lstm": 4, "gru": 3}
_HEADS = {"student_t": (2, 1), "point": (1, 0)}  # for each step ahead: outputs, constants


def plain_shapes(config: Config, features: int) -> dict[str, tuple[int, ...]] | None:
    """Return the shapes of one network's weights by path; None for models other than LSTM and GRU.

    ``features``: inputs at each step
    """
    if config.network not in _GATES:
        return None
    hidden = config.hidden
    gates = _GATES[config.network] * hidden
    outputs, constants = (count * config.horizon for count in _HEADS[config.head])
    shapes: dict[str, tuple[int, ...]] = {"constants": (constants,)}
    for layer in range(config.layers):
        width = hidden if layer else features
        shapes[f"layers/{layer}/bias"] = (gates,)
        shapes[f"layers/{layer}/kernel"] = (width + hidden, gates)
        if config.network == "gru":
            shapes[f"layers/{layer}/new_bias"] = (hidden,)
    return shapes | {"out/bias": (outputs,), "out/kernel": (hidden, outputs)}
