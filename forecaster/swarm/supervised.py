"""A task from any model and any loss: inputs in, targets out."""

import functools
import inspect
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from forecaster.swarm.checks import SwarmError
from forecaster.swarm.modules import Functions, module_functions, pure_functions
from forecaster.swarm.optimizers import adamw, inject_hyperparams
from forecaster.swarm.task import Task


class Supervised(NamedTuple):
    """One member's examples. In a swarm each array has a leading member axis, or is Shared."""

    inputs: Any  # (example, ...), or a pytree of such
    targets: Any  # (example, ...), or a pytree of such, or None
    weight: Any  # (example,) 1.0, or 0.0 for padding
    validation_inputs: Any = None  # (example, ...)
    validation_targets: Any = None  # (example, ...)
    validation_weight: Any = None  # (example,)
    bootstrap: Any = None  # raw key (2,) uint32: learn from a bootstrap sample that it decides


class Batch(NamedTuple):
    """Examples of one step. ``weight`` is 0.0 in places without an example."""

    inputs: Any  # (example, ...)
    targets: Any  # (example, ...)
    weight: Any  # (example,)


def functions_of(model: Any) -> Functions:
    """A model as pure functions: a function ``build(rngs)`` of a module, a pair ``(init, apply)``,
    or :class:`Functions`."""
    if isinstance(model, Functions):
        return model
    if isinstance(model, tuple) and len(model) == 2:
        return pure_functions(*model)
    if not callable(model):
        raise SwarmError(
            "model: expected a function build(rngs) of a flax.nnx module, or a pair (init, apply); "
            f"got {model!r}"
        )
    build: Any = model
    return module_functions(build)


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


def bootstrap_sample(key: jax.Array, valid: jax.Array) -> jax.Array:
    """For each example the valid one that stands in its place in a bootstrap sample, (example,).

    Efron (1979): as many draws with replacement as there are examples.
    """
    places = jnp.argsort(~valid, stable=True)  # the valid ones first
    return places[jax.random.randint(key, valid.shape, 0, jnp.maximum(valid.sum(), 1))]


def supervised(
    model: Any,
    loss: Callable[[Any, Any], jax.Array] | None = None,
    *,
    loss_fn: Callable[..., jax.Array] | None = None,
    batch_size: int | None = None,
    optimizer: Any = adamw,
    accumulate: int = 1,
    validated: bool = True,
    compute_dtype: Any = None,
) -> Task:
    """Make a :class:`Task` over :class:`Supervised` data.

    ``model``: ``build(rngs)`` of a Flax module, a pair ``(init, apply)``, or :class:`Functions`.
    ``loss(predictions, targets)`` is elementwise; it has a leading example axis and is averaged
    over the valid examples here. Or ``loss_fn(params, batch, key)`` of a :class:`Batch`, a scalar;
    its key is None in validation. ``batch_size``: by default all examples. ``compute_dtype``: of
    the model's arithmetic, such as ``bfloat16``; weights and losses stay float32.
    """
    functions = functions_of(model)
    if (loss is None) == (loss_fn is None):
        raise SwarmError("give either loss, elementwise, or loss_fn(params, batch, key)")
    if loss_fn is None:
        assert loss is not None
        one_loss = functools.partial(_mean_loss, functions.apply, loss, compute_dtype)
    else:
        one_loss = functools.partial(_whole_loss, loss_fn, compute_dtype)

    def batches(data: Supervised, key):
        valid = data.weight > 0
        size = batch_size or valid.shape[0]
        index, weight, active = shuffled_batches(key, valid, size)
        if data.bootstrap is not None:
            index = bootstrap_sample(jax.random.wrap_key_data(data.bootstrap), valid)[index]
        return (index, weight), active

    def take(data: Supervised, index):
        rows, weight = index
        inputs, targets = jax.tree.map(lambda a: a[rows], (data.inputs, data.targets))
        return Batch(inputs, targets, weight * data.weight[rows])

    def validate(params, data: Supervised):
        if data.validation_weight is None:
            raise SwarmError(
                "validation: expected validation_inputs, validation_targets and validation_weight; "
                "got none. Give them, or make the task with validated=False"
            )
        held_back = data.validation_inputs, data.validation_targets, data.validation_weight
        return one_loss(params, Batch(*held_back), None, None)

    return Task(
        init=functions.init,
        loss=one_loss,
        batches=batches,
        take=take,
        validate=validate if validated else None,
        optimizer=inject_hyperparams(optimizer, accumulate),
    )


def _mean_loss(apply, loss, dtype, params, batch: Batch, key, hyperparams):
    """An elementwise loss, averaged over the valid examples."""
    used = batch.weight > 0

    def known(x):
        # What stands in padding, NaN even, must not reach the gradient.
        return jnp.where(used.reshape(-1, *[1] * (x.ndim - 1)), x, 0)

    inputs, targets = jax.tree.map(known, (batch.inputs, batch.targets))
    predictions = apply(
        _cast(params, dtype), _cast(inputs, dtype), key=key, hyperparams=hyperparams
    )
    losses = loss(_cast(predictions, dtype and jnp.float32), targets)
    if losses.ndim == 0 or losses.shape[0] != used.shape[0]:
        raise SwarmError(
            f"loss(predictions, targets): expected one loss per example, shape ({used.shape[0]}, "
            f"...); got {losses.shape} from predictions {_shapes(predictions)} and targets "
            f"{_shapes(targets)}. A loss of a whole batch goes in as loss_fn(params, batch, key)"
        )
    sizes = [leaf.size for leaf in jax.tree.leaves((predictions, targets))]
    if losses.size > max(sizes):
        raise SwarmError(
            f"loss(predictions, targets): expected at most one loss per number; got {losses.shape} "
            f"from predictions {_shapes(predictions)} and targets {_shapes(targets)}, which were "
            "spread over each other. Give both the same shape"
        )
    each = losses.reshape(losses.shape[0], -1).mean(1)
    total = batch.weight.sum()
    return (batch.weight * each).sum() / jnp.where(total > 0, total, 1)


def _whole_loss(loss_fn, dtype, params, batch: Batch, key, hyperparams):
    """The caller's own loss of a whole batch."""
    extra = (
        {"hyperparams": hyperparams}
        if "hyperparams" in inspect.signature(loss_fn).parameters
        else {}
    )
    batch = batch._replace(inputs=_cast(batch.inputs, dtype))
    try:
        loss = loss_fn(_cast(params, dtype), batch, key, **extra)
    except TypeError as error:
        if key is None:
            raise SwarmError(
                f"loss_fn failed without a key: {str(error).splitlines()[0]}. In validation "
                "nothing is random: its key is None; use a key only when there is one"
            ) from error
        raise
    if jnp.shape(loss) != ():
        raise SwarmError(
            f"loss_fn(params, batch, key): expected a scalar, shape (); got shape "
            f"{jnp.shape(loss)}. An elementwise loss goes in as loss(predictions, targets)"
        )
    return loss.astype(jnp.float32)


def _cast(tree: Any, dtype: Any) -> Any:
    """Floats as another type; nothing changes without one."""
    if dtype is None:
        return tree

    def cast(leaf):
        return leaf.astype(dtype) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf

    return jax.tree.map(cast, tree)


def _shapes(tree: Any) -> Any:
    return jax.tree.map(jnp.shape, tree)
