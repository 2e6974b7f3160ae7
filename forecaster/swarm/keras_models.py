"""From a Keras 3 model to pure functions."""

import importlib
import zlib
from collections.abc import Callable
from typing import Any, cast

import jax
import numpy as np

from forecaster.swarm.checks import SwarmError
from forecaster.swarm.lanes import use_all_cores
from forecaster.swarm.modules import Functions
from forecaster.swarm.task import Hyperparams, Params, Tree
from forecaster.swarm.variables import Variables


def keras_functions(model: Any) -> Functions:
    """A model from a Keras model, sequential or functional, on Keras's JAX backend.

    It serves as the pattern: each member has initial weights of its own. Params are by the paths of
    the model's variables; those that are not trained are carried along. With a key the model runs
    as in training, so a batch norm then sees the batch, in ``predict`` too. Importing Keras starts
    JAX: call :func:`use_all_cores` before.

    Raises SwarmError on another backend, for models of a class of one's own, and where a layer does
    not draw its weights by the initialisers that it holds.
    """
    use_all_cores()  # before anything starts JAX
    keras: Any = importlib.import_module("keras")
    if keras.backend.backend() != "jax":
        raise SwarmError(
            f"Keras runs on {keras.backend.backend()}; expected JAX. Set the environment variable "
            "KERAS_BACKEND=jax before Keras is imported"
        )
    weights = [variable.path for variable in model.trainable_variables]
    others = [variable.path for variable in model.non_trainable_variables]
    kept = [path for path in others if not path.endswith("seed_generator_state")]

    initialiser = cast(type, keras.initializers.Initializer)

    def copied(key: jax.Array | None) -> Any:
        def draw_anew(layer: Any) -> Any:
            new = layer.__class__.from_config(layer.get_config())
            for name, value in cast(dict[str, Any], vars(new)).items():
                drawn = isinstance(value, initialiser) and hasattr(value, "seed")
                if drawn and key is not None:
                    label = zlib.crc32(f"{layer.name} {name}".encode())
                    value.seed = jax.random.key_data(jax.random.fold_in(key, label))
            return new

        return keras.models.clone_model(model, clone_function=draw_anew)

    def init(key: jax.Array) -> Params:
        made = copied(key)
        trained = {p: v.value for p, v in zip(weights, made.trainable_variables, strict=True)}
        values = dict(zip(others, made.non_trainable_variables, strict=True))
        state = {path: values[path].value for path in kept}
        return Variables(trained, state) if state else trained

    def call(params: Params, inputs: Any, key: jax.Array | None) -> tuple[Tree, Tree]:
        trained, state = _parts(params)
        words = jax.random.key_data(jax.random.key(0) if key is None else key)
        fixed = [state[path] if path in state else words + n for n, path in enumerate(others)]
        out, after = model.stateless_call(
            [trained[path] for path in weights], fixed, *inputs, training=key is not None
        )
        return out, {path: v for path, v in zip(others, after, strict=True) if path in state}

    def apply(params: Params, *inputs: Tree, key: Any = None, hyperparams: Any = None) -> Tree:
        return call(params, inputs, key)[0]

    def train(params: Params, *inputs: Tree, key: Any = None, hyperparams: Any = None) -> Any:
        return call(params, inputs, key)

    def export(params: Params, _: Hyperparams) -> Any:
        made, (trained, state) = copied(None), _parts(params)
        variables = [*made.trainable_variables, *made.non_trainable_variables]
        for path, variable in zip([*weights, *others], variables, strict=True):
            if path in trained or path in state:
                variable.assign(trained[path] if path in trained else state[path])
        return made

    _check(model, init)
    return Functions(init, apply, export, train, (model,))


def _parts(params: Params) -> tuple[dict[str, Any], dict[str, Any]]:
    return tuple(params) if isinstance(params, Variables) else (params, {})


def _check(model: Any, init: Callable[[jax.Array], Params]) -> None:
    """Raise SwarmError unless the model can be copied, and its weights depend on the key."""
    try:
        both = jax.device_get(jax.vmap(init)(jax.random.split(jax.random.key(0))))
    except ValueError as error:
        raise SwarmError(
            f"Keras model {model.name}: expected a sequential or functional model, which can be "
            f"copied: {str(error).splitlines()[0]}"
        ) from error
    for path, (first, second) in _parts(both)[0].items():
        if np.array_equal(first, second) and not np.all(first == np.ravel(first)[0]):
            raise SwarmError(
                f"Keras model {model.name}: {path} would start alike in all members: its layer "
                "draws it by an initialiser that it does not hold. Give it one of its own, or use "
                "another layer"
            )
