"""What a member is and how it learns, as pure functions written for ONE member."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import jax
import optax

Params: TypeAlias = Any
"""Any pytree of arrays."""

Data: TypeAlias = Any
"""Any pytree of arrays: what one member learns from."""

Hyper: TypeAlias = Mapping[str, Any]
"""One member's hyperparameters, scalars by name. They are data: changing them compiles nothing."""


@dataclasses.dataclass(frozen=True)
class Task:
    """The pure functions that define one member. ``vmap`` is applied to them once, by the engine.

    ``init(key) -> params``
    ``loss(params, batch, key) -> scalar``, the training loss of one batch
    ``batches(data, key) -> (index, active)``, an epoch's batches: a pytree whose leaves have a
    leading axis of steps, and a bool of shape (steps,); a step that is not active changes nothing,
    so members with less data than others simply have fewer active steps
    ``take(data, index) -> batch``, gathers one batch
    ``validate(params, data) -> scalar``, decides early stop and best weights; lower is better
    ``optimizer(hyper) -> optax.GradientTransformation``, called while tracing, so that learning
    rates and the like may differ between members without recompiling

    Two tasks are the same compiled program when they are the same object.
    """

    init: Callable[[jax.Array], Params]
    loss: Callable[[Params, Any, jax.Array], jax.Array]
    batches: Callable[[Data, jax.Array], tuple[Any, jax.Array]]
    take: Callable[[Data, Any], Any]
    validate: Callable[[Params, Data], jax.Array]
    optimizer: Callable[[Hyper], optax.GradientTransformation]


def adam(hyper: Hyper) -> optax.GradientTransformation:
    """AdamW after clipping by the member's own global norm.

    Reads ``learning_rate``, ``weight_decay`` and ``clip`` (a global gradient norm).
    Loshchilov & Hutter (2019), arXiv 1711.05101.
    """
    # optax annotates these as floats; traced scalars work alike and are what makes them data.
    rate: Any = hyper["learning_rate"]
    decay: Any = hyper["weight_decay"]
    clip: Any = hyper["clip"]
    return optax.chain(optax.clip_by_global_norm(clip), optax.adamw(rate, weight_decay=decay))
