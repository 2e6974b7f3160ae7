"""A task from any Flax module and any elementwise loss: inputs in, targets out."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import nnx

from forecaster.swarm.task import Hyper, Task, adam


class Supervised(NamedTuple):
    """One member's examples. In a swarm each array has a leading member axis."""

    inputs: Any  # (example, ...)
    targets: Any  # (example, ...)
    weight: Any  # (example,) 1.0, or 0.0 for padding
    validation_inputs: Any  # (example, ...)
    validation_targets: Any  # (example, ...)
    validation_weight: Any  # (example,)


def module_functions(build: Callable[[nnx.Rngs], nnx.Module]):
    """Split a Flax module once into pure ``init(key) -> params`` and ``apply(params, *args)``.

    Params are a plain nested dict of arrays.
    """
    graph, _ = nnx.split(nnx.eval_shape(lambda: build(nnx.Rngs(0))))

    def init(key):
        return nnx.to_pure_dict(nnx.state(build(nnx.Rngs(key))))

    def apply(params, *args, **kwargs):
        return nnx.merge(graph, params)(*args, **kwargs)  # pyright: ignore[reportCallIssue]

    return init, apply


def shuffled_batches(
    key: jax.Array, valid: jax.Array, batch_size: int, labels: jax.Array | None = None
):
    """A random order of the valid examples, cut into batches.

    ``valid`` (example,) bool. Where an example comes depends on the key and on its label, whole
    numbers (example,), by default its place: padding changes nothing. Returns indices (step,
    batch), their weights (step, batch), 0.0 for places without an example, and which steps have
    any, (step,).
    """
    examples = valid.shape[0]
    steps = math.ceil(examples / batch_size)
    labels = jnp.arange(examples) if labels is None else labels
    draw = jax.vmap(lambda label: jax.random.uniform(jax.random.fold_in(key, label)))(labels)
    order = jnp.argsort(jnp.where(valid, draw, jnp.inf))
    order = jnp.pad(order, (0, steps * batch_size - examples)).reshape(steps, batch_size)
    place = jnp.arange(steps * batch_size).reshape(steps, batch_size)
    weight = place < valid.sum()
    return order, weight, weight.any(1)


def supervised(
    build: Callable[[nnx.Rngs], nnx.Module],
    loss: Callable[[jax.Array, jax.Array], jax.Array],
    *,
    batch_size: int,
    optimizer: Callable[[Hyper], optax.GradientTransformation] = adam,
) -> Task:
    """Make a :class:`Task` over :class:`Supervised` data.

    ``build(rngs)`` returns the module; ``loss(predictions, targets)`` is elementwise, its result
    has a leading example axis and is averaged over the valid examples here.
    """
    init, apply = module_functions(build)

    def mean_loss(params, inputs, targets, weight):
        used = weight > 0
        # What stands in padding, NaN even, must not reach the gradient.
        inputs, targets = (
            jnp.where(used.reshape(-1, *[1] * (x.ndim - 1)), x, 0) for x in (inputs, targets)
        )
        losses = loss(apply(params, inputs), targets)
        each = losses.reshape(losses.shape[0], -1).mean(1)
        total = weight.sum()
        return (weight * each).sum() / jnp.where(total > 0, total, 1)

    def batches(data: Supervised, key):
        index, weight, active = shuffled_batches(key, data.weight > 0, batch_size)
        return (index, weight), active

    def take(data: Supervised, index):
        rows, weight = index
        return data.inputs[rows], data.targets[rows], weight * data.weight[rows]

    def validate(params, data: Supervised):
        return mean_loss(
            params, data.validation_inputs, data.validation_targets, data.validation_weight
        )

    return Task(
        init=init,
        loss=lambda params, batch, key: mean_loss(params, *batch),
        batches=batches,
        take=take,
        validate=validate,
        optimizer=optimizer,
    )
