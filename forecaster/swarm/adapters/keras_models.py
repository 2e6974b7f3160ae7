"""Turn a Keras 3 model into pure functions."""

import importlib
import zlib
from collections.abc import Callable, Sequence
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from forecaster.swarm.adapters.functions import Functions
from forecaster.swarm.arrays.variables import Variables, trained
from forecaster.swarm.checks import SwarmError
from forecaster.swarm.devices.lanes import use_all_cores
from forecaster.swarm.task import Hyperparams, Params, Tree


def check_backend(keras: Any) -> None:
    """Raise SwarmError unless Keras runs on JAX."""
    if keras.backend.backend() != "jax":
        raise SwarmError(
            f"Keras runs on {keras.backend.backend()}; expected JAX. Set the environment variable "
            "KERAS_BACKEND=jax before Keras is imported"
        )


def check_losses(model: Any, losses: Sequence[Any]) -> None:
    """Raise SwarmError if a model has losses of its own, which training would ignore."""
    if losses:
        raise SwarmError(
            f"Keras model {model.name} has {len(losses)} losses of its own, from regularisers or "
            "add_loss, which training would ignore. Make it without: for weight decay use an "
            "optimizer such as optax.adamw, for other penalties a loss_fn"
        )


def check_draws(model: Any, init: Callable[[jax.Array], Params]) -> None:
    """Raise SwarmError unless the model can be copied, and initial weights depend on the key."""
    try:
        both = jax.device_get(jax.vmap(init)(jax.random.split(jax.random.key(0))))
    except ValueError as error:
        raise SwarmError(
            f"Keras model {model.name}: expected a sequential or functional model, which can be "
            f"copied: {str(error).splitlines()[0]}"
        ) from error
    for path, (first, second) in trained(both).items():
        fixed = np.isin(first, (0, 1, np.ravel(first)[0])).all()  # such as biases
        if np.array_equal(first, second) and not fixed:
            raise SwarmError(
                f"Keras model {model.name}: {path} would start with the same values in all "
                "members: its layer draws it by an initialiser that is not an attribute of the "
                "layer. Give the layer its own initialiser, or use another layer"
            )


def keras_functions(model: Any) -> Functions:
    """Return the functions of a Keras model, sequential or functional, on Keras's JAX backend.

    The model is a template: each member draws its own initial weights; untrained variables, as in
    frozen or adapted layers, keep the model's values and are carried along. Params are named by the
    paths of the model's variables. With a key the model runs as in training, so that a batch norm
    uses the batch's statistics, in ``predict`` too. Importing Keras starts JAX: call
    :func:`use_all_cores` first.

    Raises SwarmError on another backend, for subclassed models, for layers whose weights are not
    drawn by initialisers among their attributes, and for regularisers and ``add_loss``.
    """
    use_all_cores()  # before JAX starts
    keras: Any = importlib.import_module("keras")
    check_backend(keras)
    template = _Template(keras, model)
    check_losses(model, model.losses)
    check_draws(model, template.init)
    made = template.init, template.apply, template.export, template.train
    return Functions(*made, made_of=(model, template.kept), takes=frozenset())


class _Template:
    """A Keras model that is called with a member's weights."""

    def __init__(self, keras: Any, model: Any):
        self._keras, self._model = keras, model
        self._weights: list[str] = [variable.path for variable in model.trainable_variables]
        others: list[Any] = list(model.non_trainable_variables)
        self._others: list[str] = [variable.path for variable in others]
        # Copies, because training the model again would change or delete its arrays.
        self.kept = {v.path: np.array(v.value) for v in others if not _is_seed(v.path)}

    def init(self, key: jax.Array) -> Params:
        made = self._copy(key)
        trained = {p: v.value for p, v in zip(self._weights, made.trainable_variables, strict=True)}
        state = {path: jnp.asarray(value) for path, value in self.kept.items()}
        return Variables(trained, state) if state else trained

    def apply(self, params: Params, *inputs: Tree, key: Any = None, hyperparams: Any = None) -> Any:
        return self.train(params, *inputs, key=key)[0]

    def train(self, params: Params, *inputs: Tree, key: Any = None, hyperparams: Any = None) -> Any:
        trained, state = _parts(params)
        words = jax.random.key_data(jax.random.key(0) if key is None else key)
        fixed = [words + n if _is_seed(p) else state[p] for n, p in enumerate(self._others)]
        given, options = [trained[p] for p in self._weights], {"training": key is not None}
        call = self._model.stateless_call
        out, after, losses = call(given, fixed, *inputs, return_losses=True, **options)
        check_losses(self._model, losses)
        return out, {p: v for p, v in zip(self._others, after, strict=True) if not _is_seed(p)}

    def export(self, params: Params, _: Hyperparams) -> Any:
        made, (trained, state) = self._copy(jax.random.key(0)), _parts(params)
        variables = [*made.trainable_variables, *made.non_trainable_variables]
        for path, variable in zip([*self._weights, *self._others], variables, strict=True):
            if not _is_seed(path):
                variable.assign((trained | state)[path])
        for layer in made._flatten_layers():
            if hasattr(layer, "finalize_state"):  # sets constants of adapted layers
                layer.finalize_state()
        return made

    def _copy(self, key: jax.Array) -> Any:
        """Return a copy of the model whose weights are drawn by a key."""

        def draw_anew(layer: Any) -> Any:
            new = layer.__class__.from_config(_unbuilt(layer.get_config()))
            for number, part in enumerate(new._flatten_layers()):
                for name, value in cast(dict[str, Any], vars(part)).items():
                    if isinstance(value, self._keras.initializers.Initializer):
                        label = zlib.crc32(f"{layer.name} {number} {name}".encode())
                        drawn: Any = value
                        drawn.seed = jax.random.key_data(jax.random.fold_in(key, label))
            return new

        return self._keras.models.clone_model(self._model, clone_function=draw_anew)


def _unbuilt(config: Any) -> Any:
    """Return a layer's config by which it and its inner layers are built later."""
    if isinstance(config, list):
        return [_unbuilt(part) for part in cast(list[Any], config)]
    if not isinstance(config, dict):
        return config
    parts = cast(dict[str, Any], config).items()
    return {name: _unbuilt(part) for name, part in parts if name != "build_config"}


def _is_seed(path: str) -> bool:
    return path.endswith("seed_generator_state")


def _parts(params: Params) -> tuple[dict[str, Any], dict[str, Any]]:
    return tuple(params) if isinstance(params, Variables) else (params, {})
