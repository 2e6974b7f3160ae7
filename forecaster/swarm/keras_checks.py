"""What a Keras model must be for its weights to be those of many members."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from forecaster.swarm.checks import SwarmError
from forecaster.swarm.task import Params
from forecaster.swarm.variables import trained


def check_backend(keras: Any) -> None:
    """Raise SwarmError unless Keras runs on JAX."""
    if keras.backend.backend() != "jax":
        raise SwarmError(
            f"Keras runs on {keras.backend.backend()}; expected JAX. Set the environment variable "
            "KERAS_BACKEND=jax before Keras is imported"
        )


def check_losses(model: Any, losses: Sequence[Any]) -> None:
    """Raise SwarmError where a model has losses of its own, which training would not see."""
    if losses:
        raise SwarmError(
            f"Keras model {model.name} has {len(losses)} losses of its own, from regularisers or "
            "add_loss, which would not count. Make it without: weights decay by the optimizer, as "
            "in optax.adamw, and other penalties go into a loss_fn"
        )


def check_draws(model: Any, init: Callable[[jax.Array], Params]) -> None:
    """Raise SwarmError unless the model can be copied, and its weights depend on the key."""
    try:
        both = jax.device_get(jax.vmap(init)(jax.random.split(jax.random.key(0))))
    except ValueError as error:
        raise SwarmError(
            f"Keras model {model.name}: expected a sequential or functional model, which can be "
            f"copied: {str(error).splitlines()[0]}"
        ) from error
    for path, (first, second) in trained(both).items():
        fixed = np.isin(first, (0, 1, np.ravel(first)[0])).all()  # as biases of open forget gates
        if np.array_equal(first, second) and not fixed:
            raise SwarmError(
                f"Keras model {model.name}: {path} would start alike in all members: its layer "
                "draws it by an initialiser that it does not hold. Give it one of its own, or use "
                "another layer"
            )
