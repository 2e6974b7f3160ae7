"""What a member is and how it learns, as pure functions written for ONE member."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import jax
import numpy as np
import optax

AnyArray: TypeAlias = jax.Array | np.ndarray
"""An array on the devices or on the host."""

Tree: TypeAlias = Any
"""Any pytree of arrays. (To a static type checker jaxtyping's ``PyTree`` is an unknown type.)"""

Params: TypeAlias = Tree
"""The weights of a model."""

Data: TypeAlias = Tree
"""What one member learns from."""

Hyperparams: TypeAlias = Mapping[str, Any]
"""One member's hyperparameters, scalars by name. They are data: changing them compiles nothing."""


@dataclasses.dataclass(frozen=True)
class Task:
    """The pure functions that define one member. ``vmap`` is applied to them once, by the engine.

    ``init(key) -> params``
    ``loss(params, batch, key, hyperparams) -> scalar``, the training loss of one batch
    ``batches(data, key) -> (index, active)``, an epoch's batches: a pytree whose leaves have a
    leading axis of steps, and a bool of shape (steps,); a step that is not active changes nothing,
    so members with less data than others simply have fewer active steps
    ``take(data, index) -> batch``, gathers one batch
    ``validate(params, data) -> scalar``, decides early stop and best weights; lower is better.
    ``None``: nobody stops early, and the latest weights are the best
    ``optimizer(hyperparams) -> optax.GradientTransformation``, called while tracing, so that learning
    rates and the like may differ between members without recompiling

    Two tasks are the same compiled program when they are the same object.
    """

    init: Callable[[jax.Array], Params]
    loss: Callable[[Params, Any, jax.Array, Hyperparams], jax.Array]
    batches: Callable[[Data, jax.Array], tuple[Any, jax.Array]]
    take: Callable[[Data, Any], Any]
    validate: Callable[[Params, Data], jax.Array] | None
    optimizer: Callable[[Hyperparams], optax.GradientTransformation]
