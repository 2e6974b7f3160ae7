"""A model as pure functions, whatever library it comes from. Imports none of them."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Key

from forecaster.swarm.arrays import Variables
from forecaster.swarm.checks import takes
from forecaster.swarm.task import AnyArray, Hyperparams, Params, Tree


class Functions(NamedTuple):
    """One model as pure functions.

    - ``init(key) -> params``: weights, or :class:`Variables` for a model with state
    - ``apply(params, *inputs, key=None, hyperparams=None) -> predictions``: with a key, random
      layers draw by it, as in training; state stays as it is
    - ``export(params, hyperparams) -> model``: an ordinary model that can be called by itself
    - ``train``: ``apply`` in training for a model with state; returns ``(predictions, state)``
    - ``made_of``: the objects that define the model; equal ones define the same model
    - ``takes``: names of the hyperparameters that it uses; None if unknown
    """

    init: Callable[[Key[jax.Array, ""]], Params]
    apply: Callable[..., Tree]
    export: Callable[[Params, Hyperparams], Callable[..., Tree]]
    train: Callable[..., tuple[Tree, Tree]] | None = None
    made_of: tuple[Any, ...] = ()
    takes: frozenset[str] | None = None


class Given(NamedTuple):
    """What a module is called with, beside its weights.

    - ``options``: further arguments of the module by name
    - ``training``: whether running statistics and other state are updated
    """

    inputs: tuple[Tree, ...]
    key: jax.Array | None
    hyperparams: Hyperparams
    options: dict[str, Any]
    training: bool

    @property
    def drawn(self) -> bool:
        """Whether random layers draw."""
        return self.training or self.key is not None


def functions_of_module(
    init: Callable[[jax.Array], Params],
    call: Callable[[Params, Given], tuple[Tree, Tree]],
    export: Callable[[Params, Hyperparams], Callable[..., Tree]],
    made_of: tuple[Any, ...],
    takes: frozenset[str] = frozenset(),
) -> Functions:
    """Return a module of some library as pure functions.

    - ``call``: returns predictions, and the state after the call if there is any
    - other arguments: as of :class:`Functions`
    """

    def apply(
        params: Params, *inputs: Tree, key: Any = None, hyperparams: Any = None, **options: Any
    ) -> Tree:
        training = key is not None and not isinstance(params, Variables)
        return call(params, Given(inputs, key, hyperparams or {}, options, training))[0]

    def train(
        params: Params, *inputs: Tree, key: Any = None, hyperparams: Any = None, **options: Any
    ) -> tuple[Tree, Tree]:
        return call(params, Given(inputs, key, hyperparams or {}, options, training=True))

    return Functions(init, apply, export, train, made_of, takes)


def pure_functions(init: Callable[[jax.Array], Params], apply: Callable[..., Tree]) -> Functions:
    """Return a model of two pure functions, ``init(key) -> params`` and ``apply(params, inputs)``.

    ``apply`` may take ``key``: a random key in training, None otherwise.
    """
    takes_key = takes(apply, "key")

    def run(
        params: Params,
        *inputs: Tree,
        key: jax.Array | None = None,
        hyperparams: Hyperparams | None = None,
        **options: Any,
    ) -> Tree:
        del hyperparams
        return apply(params, *inputs, **options, **({"key": key} if takes_key else {}))

    def export(params: Params, hyperparams: Hyperparams) -> Callable[..., Tree]:
        del hyperparams
        return functools.partial(run, params)

    return Functions(init, run, export, made_of=(init, apply), takes=frozenset())


def on_device(leaf: AnyArray) -> jax.Array:
    """Return an array as a JAX array."""
    return jnp.asarray(leaf)
