"""Supervised learning: a task from any model and any loss."""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, cast

import jax
import jax.numpy as jnp
import optax
from jax.typing import DTypeLike
from jaxtyping import Bool, Int, Key, Shaped, UInt32

from forecaster.swarm.adapters.functions import Functions, pure_functions
from forecaster.swarm.checks import SwarmError, check_counts
from forecaster.swarm.devices.data_parallel import shard_batch
from forecaster.swarm.task import Hyperparams, Params, Task, Tree
from forecaster.swarm.training.convolutions import with_products
from forecaster.swarm.training.examples import Supervised
from forecaster.swarm.training.keys import typed_key
from forecaster.swarm.training.losses import (
    NOTHING,
    Batch,
    ElementwiseLoss,
    Metric,
    Watched,
    check_one_loss,
    filled,
    loss_of,
    predictions_of,
    watched,
)
from forecaster.swarm.training.optimizers import Optimizer, adamw, inject_hyperparams

Model: TypeAlias = Functions | Callable[..., Any] | tuple[Callable[..., Any], Callable[..., Any]]
"""``build(rngs)`` of a Flax module, a pair of pure functions ``(init, apply)``, or Functions."""

_Key: TypeAlias = Key[jax.Array, ""]


def functions_of(model: object) -> Functions:
    """Return a :data:`Model` as pure functions. Raises SwarmError for anything else."""
    if isinstance(model, Functions):
        return model
    if isinstance(model, tuple):
        pair = cast(tuple[Callable[..., Tree], ...], model)
        if len(pair) == 2:
            return pure_functions(*pair)
    if not callable(cast(object, model)):
        raise SwarmError(
            "model: expected a function build(rngs) of a flax.nnx module, or a pair (init, apply); "
            f"got {model!r}"
        )
    from forecaster.swarm.adapters.flax_modules import module_functions  # loads Flax

    return module_functions(cast(Callable[..., Any], model))


def shuffled_batches(
    key: _Key,
    valid: Bool[jax.Array, " example"],
    batch_size: int,
    labels: Int[jax.Array, " example"] | None = None,
) -> tuple[Int[jax.Array, "step batch"], Bool[jax.Array, "step batch"], Bool[jax.Array, " step"]]:
    """Shuffle the valid examples and cut them into batches.

    The order depends only on the key and on the examples' labels (whole numbers from 0, by default
    their positions), so padding does not change it. The last batch is filled up by repeating its
    own examples. Returns the indices of the examples, which of them count, and which steps have
    examples that count.
    """
    examples = valid.shape[0]
    steps = math.ceil(examples / batch_size)
    labels = jnp.arange(examples) if labels is None else labels
    last = jnp.uint32(2**32 - 1)
    order = jnp.argsort(jnp.where(valid, jnp.minimum(_priorities(key, labels), last - 1), last))
    order = jnp.pad(order, (0, steps * batch_size - examples)).reshape(steps, batch_size)
    position = jnp.arange(steps * batch_size).reshape(steps, batch_size)
    is_example = position < valid.sum()
    repeated = jnp.arange(batch_size) % jnp.maximum(is_example.sum(1, keepdims=True), 1)
    return jnp.take_along_axis(order, repeated, 1, mode="clip"), is_example, is_example.any(1)


def _priorities(key: _Key, labels: Int[jax.Array, " example"]) -> UInt32[jax.Array, " example"]:
    """Return a pseudo-random number for each label; different labels have different numbers.

    It is the last step of MurmurHash3 (Appleby), which is one-to-one, for each word of the key. A
    random key for every example would cost more than a small network's training.
    """
    mixed = labels.astype(jnp.uint32)
    words = jax.random.key_data(key).reshape(-1)
    for word in (words[0], words[1]):
        mixed ^= word
        mixed = (mixed ^ (mixed >> 16)) * jnp.uint32(0x85EBCA6B)
        mixed = (mixed ^ (mixed >> 13)) * jnp.uint32(0xC2B2AE35)
        mixed ^= mixed >> 16
    return mixed


def bootstrap_sample(key: _Key, valid: Bool[jax.Array, " example"]) -> Int[jax.Array, " example"]:
    """Draw a bootstrap sample: for each example, the index of a valid one.

    Efron (1979), Annals of Statistics 7: draws with replacement, one for each example.
    """
    positions = jnp.argsort(~valid, stable=True)  # the valid ones first
    return positions[jax.random.randint(key, valid.shape, 0, jnp.maximum(valid.sum(), 1))]


def supervised(
    model: Model,
    loss: ElementwiseLoss | None = None,
    *,
    loss_fn: Callable[..., Any] | None = None,
    batch_size: int | None = None,
    optimizer: Optimizer = adamw,
    accumulate: int = 1,
    validated: bool = True,
    compute_dtype: DTypeLike | None = None,
    metrics: Mapping[str, Metric] | None = None,
    monitor: str | None = None,
    mode: str = "min",
) -> Task:
    """Make a :class:`Task` over :class:`Supervised` data.

    - ``model``: ``build(rngs)`` of a Flax module, a pair ``(init, apply)``, or :class:`Functions`.
    - ``loss(predictions, targets)``: elementwise, with a leading example axis; it is averaged over
      the valid examples.
    - ``loss_fn(params, batch, key)``: instead of ``loss``, a scalar of a whole :class:`Batch`.
      Examples whose ``batch.weight`` is 0.0 repeat others to fill up the batch; they must not
      count.
      The key is None in validation. It may take ``hyperparams`` too. Where ``params`` are
      :class:`Variables`, it may return ``(loss, state)``.
    - ``batch_size``: by default all examples.
    - ``optimizer``, ``accumulate``: see :func:`inject_hyperparams`.
    - ``validated``: whether the data have validation examples, which decide when to stop.
    - ``compute_dtype``: type of the model's arithmetic, such as ``bfloat16``; weights and losses
      stay float32.
    - ``metrics``, ``monitor``, ``mode``: see :meth:`Swarm.fit`.

    Raises SwarmError unless exactly one of ``loss`` and ``loss_fn`` is given, and unless
    ``batch_size`` and ``accumulate`` are whole numbers of 1 or more.
    """
    check_one_loss(loss, loss_fn)
    learned = functions_of(model), loss, loss_fn, optimizer, accumulate, compute_dtype
    seen = watched(metrics, monitor, mode, validated=validated)
    return Recipe(*learned).task(batch_size, validated=validated, seen=seen)


@dataclasses.dataclass(frozen=True, eq=False)
class Recipe:
    """Model, loss and optimiser of all members; fields as of :func:`supervised`."""

    functions: Functions
    loss: ElementwiseLoss | None
    loss_fn: Callable[..., Any] | None
    optimizer: Optimizer
    accumulate: int
    compute_dtype: DTypeLike | None

    @functools.cached_property
    def loss_of_batch(self) -> Callable[..., Any]:
        """The loss of params, a :class:`Batch`, a key or None, and hyperparameters."""
        return loss_of(self.functions, self.loss, self.loss_fn, self.compute_dtype)

    @functools.lru_cache(maxsize=32)  # noqa: B019, keeps few recipes alive
    def task(
        self,
        batch_size: int | None = None,
        *,
        validated: bool = False,
        seen: Watched = NOTHING,
    ) -> Task:
        """Return the task of a fit. Programs are traced once per task."""
        check_counts(batch_size=batch_size, accumulate=self.accumulate)
        made = _SupervisedTask(self, batch_size, seen, validated)
        return Task(
            init=self.functions.init,
            loss=with_products(self.loss_of_batch),
            batches=made.batches,
            take=made.take,
            validate=made.validate if validated else None,
            optimizer=inject_hyperparams(self.optimizer, self.accumulate),
            measure=made.measure if seen.metrics else None,
            metrics=seen.names,
            criterion=seen.criterion if seen.monitor else None,
            said=self._said(batch_size, seen),
        )

    def _said(self, batch_size: int | None, seen: Watched) -> str:
        """Describe how members learn, by names that are the same in every process."""
        loss, optimizer = (_inside(each) for each in (self.loss or self.loss_fn, self.optimizer))
        made, dtype = isinstance(optimizer, optax.GradientTransformation), self.compute_dtype
        said = {
            "loss": getattr(loss, "__qualname__", type(loss).__qualname__),
            "optimizer": "made" if made else getattr(optimizer, "__qualname__", "another"),
            "batch_size": batch_size,
            "accumulate": self.accumulate,
            "compute_dtype": None if dtype is None else jnp.dtype(dtype).name,
        }
        said |= {"metrics": ", ".join(seen.names)} if seen.names else {}
        said |= {"monitor": seen.monitor, "mode": seen.mode} if seen.monitor else {}
        return "; ".join(f"{name}={value}" for name, value in said.items())


@dataclasses.dataclass(frozen=True, eq=False)
class _SupervisedTask:
    """The functions of a task over :class:`Supervised` data."""

    recipe: Recipe
    batch_size: int | None
    seen: Watched
    validated: bool

    def batches(
        self, data: Supervised, key: _Key
    ) -> tuple[tuple[jax.Array, jax.Array] | None, Bool[jax.Array, " step"]]:
        """Return an epoch's batches; one of all examples needs no order: its index is None."""
        valid = cast(jax.Array, data.weight) > 0
        sample = None
        if data.bootstrap is not None:
            key_data = cast(jax.Array, data.bootstrap)
            sample = bootstrap_sample(typed_key(key_data), valid)
        if self.batch_size is None:
            return None if sample is None else (sample[None], valid[None]), valid.any()[None]
        # A batch is not filled up beyond the examples that there are.
        drawn, weight, active = shuffled_batches(key, valid, min(self.batch_size, len(valid)))
        return (drawn if sample is None else sample[drawn], weight), active

    def take(
        self,
        data: Supervised,
        index: tuple[Int[jax.Array, " batch"], Shaped[jax.Array, " batch"]] | None,
    ) -> Batch:
        """Return one batch."""
        if index is None:
            return self._ready(data.inputs, data.targets, data.weight)
        rows, is_example = index
        cut = functools.partial(jnp.take, indices=rows, axis=0, mode="clip")
        inputs, targets, weight = jax.tree.map(cut, (data.inputs, data.targets, data.weight))
        return self._ready(inputs, targets, is_example * weight)

    def validate(self, params: Params, data: Supervised, hyperparams: Hyperparams) -> jax.Array:
        """Return the loss of the validation examples."""
        if data.validation_weight is None:
            raise SwarmError(
                "validation: expected validation_inputs, validation_targets and validation_weight; "
                "got none. Give them, or make the task with validated=False"
            )
        batch = self._ready(*shard_batch(data[3:6]))
        return self.recipe.loss_of_batch(params, batch, None, hyperparams)

    def measure(
        self, params: Params, data: Supervised, hyperparams: Hyperparams
    ) -> dict[str, jax.Array]:
        """Measure the validation examples, or the training examples if there are no others."""
        batch = Batch(*shard_batch(data[3:6] if self.validated else data[:3]))
        used = self.recipe.functions, self.recipe.compute_dtype
        predictions, targets = predictions_of(*used, params, batch, hyperparams)
        return self.seen.values(predictions, targets, batch.weight)

    def _ready(self, inputs: Tree, targets: Tree, weight: Any) -> Batch:
        batch = Batch(inputs, targets, weight)
        return filled(batch) if self.recipe.loss_fn else batch


def _inside(function: Any) -> object:
    """Return the function of partials."""
    while isinstance(function, functools.partial):
        function = cast(Any, function).func
    return function
