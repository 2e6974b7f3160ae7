"""The arrays of LSTM and GRU networks, known without building one."""

from forecaster.config import Config

_GATES = {"lstm": 4, "gru": 3}
_HEADS = {"student_t": (2, 1), "point": (1, 0)}  # for each step ahead: outputs, constants


def plain_shapes(config: Config, features: int) -> dict[str, tuple[int, ...]] | None:
    """The shapes of one network's arrays by path; None of a model whose network must be built.

    ``features``: inputs at each step
    """
    if config.model not in _GATES:
        return None
    hidden = config.hidden
    gates = _GATES[config.model] * hidden
    outputs, constants = (count * config.horizon for count in _HEADS[config.head])
    shapes: dict[str, tuple[int, ...]] = {"constants": (constants,)}
    for place in range(config.layers):
        width = hidden if place else features
        shapes[f"layers/{place}/bias"] = (gates,)
        shapes[f"layers/{place}/kernel"] = (width + hidden, gates)
        if config.model == "gru":
            shapes[f"layers/{place}/new_bias"] = (hidden,)
    return shapes | {"out/bias": (outputs,), "out/kernel": (hidden, outputs)}
