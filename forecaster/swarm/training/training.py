"""Training of ONE member: state, an epoch, a block of epochs. The engine maps it over members."""

import enum
import operator
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Bool, Float, Int32, Key, UInt32

from forecaster.swarm.arrays.variables import loss_of_weights, trained, value_and_grad, with_trained
from forecaster.swarm.devices.data_parallel import replicated, shard_batch
from forecaster.swarm.task import (
    AnyArray,
    Data,
    Hyperparams,
    Limits,
    OptState,
    Params,
    Task,
    Tree,
)
from forecaster.swarm.training.keys import typed_key

_T = TypeVar("_T")


class Status(enum.IntEnum):
    """Why a member trains or does not."""

    TRAINING = 0
    STOPPED_EARLY = 1
    FINISHED = 2
    DIVERGED = 3
    FAILED = 4  # its workers were lost, again and again: see Executor


class State(NamedTuple):
    """All that training carries along for a member. In a swarm every leaf has a member axis first.

    The leaves are JAX arrays on the devices and numpy arrays on the host.
    """

    key: UInt32[AnyArray, "*member 2"]  # raw key data
    params: Params
    opt_state: OptState
    epoch: Int32[AnyArray, "*member"]  # epochs completed
    status: Int32[AnyArray, "*member"]  # of Status
    best_params: Params
    best_loss: Float[AnyArray, "*member"]
    best_epoch: Int32[AnyArray, "*member"]  # 0: the initial weights


class Losses(NamedTuple):
    """Losses of one epoch or of several, and metrics; NaN where the member did not train."""

    train: Float[AnyArray, "..."]
    validation: Float[AnyArray, "..."]
    metrics: Mapping[str, Float[AnyArray, "..."]] = {}


def init_state(
    task: Task,
    key_data: UInt32[AnyArray, "2"],
    hyperparams: Hyperparams,
    params: Params | None = None,
) -> State:
    """State of one member before it has seen any data, by default with weights by its key."""
    if params is None:
        params = task.init(jax.random.fold_in(typed_key(key_data), 0))
    opt_state = task.optimizer(hyperparams).init(trained(params))
    none, training = jnp.int32(0), jnp.int32(Status.TRAINING)
    return State(key_data, params, opt_state, none, training, params, jnp.float32(jnp.inf), none)


def start(
    task: Task,
    key_data: UInt32[AnyArray, "2"],
    data: Data,
    hyperparams: Hyperparams,
    limits: Limits,
) -> State:
    """Initial state of one member; its initial weights are the first candidate for the best."""
    return resume(task, init_state(task, key_data, hyperparams), data, hyperparams, limits)


def resume(task: Task, state: State, data: Data, hyperparams: Hyperparams, limits: Limits) -> State:
    """State of one member that trains further, on these data and up to these limits.

    The loss of its best weights is measured anew. A member that had used up its epochs trains
    again if it has more of them now.
    """
    usable = all_finite(state.best_params)
    loss = jnp.float32(jnp.inf)
    if task.validate is not None:
        loss = task.validate(state.best_params, data, hyperparams)
        usable &= jnp.isfinite(loss)
        loss, _ = _criterion(task, state.best_params, data, hyperparams, loss)
        # A metric may be undefined before the first epoch: anything is better then.
        loss = jnp.where(usable & jnp.isfinite(loss), loss, jnp.inf).astype(loss.dtype)
    finished = jnp.where(state.epoch < limits.epochs, Status.TRAINING, Status.FINISHED)
    ended = (state.status == Status.STOPPED_EARLY) | (state.status == Status.DIVERGED)
    status = jnp.where(ended, state.status, finished)
    status = jnp.where(usable, status, Status.DIVERGED).astype(jnp.int32)
    return state._replace(status=status, best_loss=loss)


def _criterion(
    task: Task, params: Params, data: Data, hyperparams: Hyperparams, loss: Float[jax.Array, ""]
) -> tuple[Float[jax.Array, ""], dict[str, Float[jax.Array, ""]]]:
    """What the best weights are chosen by, and the metrics. ``loss``: that of these weights."""
    metrics = {} if task.measure is None else task.measure(params, data, hyperparams)
    return loss if task.criterion is None else task.criterion(metrics), metrics


def resume_unvalidated(state: State, limits: Limits) -> State:
    """The same for states (member, ...) on the host, where there is no validation to measure."""
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(state.best_params)]
    each = [np.isfinite(leaf).all(tuple(range(1, leaf.ndim))) for leaf in leaves]
    usable = np.all(each, axis=0) if each else np.ones(len(state.epoch), bool)
    finished = np.where(state.epoch < limits.epochs, Status.TRAINING, Status.FINISHED)
    ended = (state.status == Status.STOPPED_EARLY) | (state.status == Status.DIVERGED)
    status = np.where(usable, np.where(ended, state.status, finished), Status.DIVERGED)
    loss = np.full_like(np.asarray(state.best_loss), np.inf)
    return state._replace(status=status.astype(np.int32), best_loss=loss)


def epoch_keys(
    key_data: UInt32[AnyArray, "2"], epoch: int | Int32[AnyArray, ""]
) -> tuple[Key[jax.Array, ""], Key[jax.Array, ""]]:
    """The keys of a member's epoch, counted from 1: for its batches and for its losses."""
    first, second = jax.random.split(jax.random.fold_in(typed_key(key_data), epoch))
    return first, second


def train_epoch(
    task: Task, state: State, data: Data, hyperparams: Hyperparams, limits: Limits
) -> tuple[State, Losses]:
    """One epoch of one member that is still training.

    Training stops after ``limits.patience`` epochs without a better validation loss, and after
    ``limits.epochs`` in all. A loss or a weight that is not finite marks the member as diverged;
    its best weights are kept.
    """
    epoch = state.epoch + 1
    batch_key, loss_key = epoch_keys(state.key, epoch)
    params, opt_state, train_loss = train_on_batches(
        task, state, data, hyperparams, batch_key, loss_key
    )
    loss = train_loss if task.validate is None else task.validate(params, data, hyperparams)
    criterion, metrics = _criterion(task, params, data, hyperparams, loss)
    diverged = ~(jnp.isfinite(train_loss) & jnp.isfinite(loss) & all_finite(params))
    better = ~diverged & ((criterion < state.best_loss) | (task.validate is None))
    best_epoch = jnp.where(better, epoch, state.best_epoch)
    status = jnp.where(epoch - best_epoch >= limits.patience, Status.STOPPED_EARLY, state.status)
    status = jnp.where(epoch >= limits.epochs, Status.FINISHED, status)
    status = jnp.where(diverged, Status.DIVERGED, status).astype(jnp.int32)
    trained = State(
        key=state.key,
        params=params,
        opt_state=opt_state,
        epoch=epoch,
        status=status,
        best_params=where(better, params, state.best_params),
        best_loss=jnp.where(better, criterion, state.best_loss).astype(state.best_loss.dtype),
        best_epoch=best_epoch,
    )
    return trained, Losses(train_loss, loss, metrics)


def train_on_batches(
    task: Task,
    state: State,
    data: Data,
    hyperparams: Hyperparams,
    batch_key: Key[jax.Array, ""],
    loss_key: Key[jax.Array, ""],
) -> tuple[Params, OptState, Float[jax.Array, ""]]:
    """Weights and optimiser state after an epoch's batches, and their mean loss."""
    index, active = task.batches(data, batch_key)
    optimizer, steps = task.optimizer(hyperparams), active.shape[0]

    def step(
        carry: tuple[Params, OptState], batch_of_step: tuple[Tree, jax.Array, jax.Array]
    ) -> tuple[tuple[Params, OptState], jax.Array]:
        index, is_active, key = batch_of_step
        batch = shard_batch(task.take(data, index))
        params, opt_state, loss = update(task, optimizer, *carry, batch, key, hyperparams)
        return where(is_active, (params, opt_state), carry), jnp.where(is_active, loss, 0)

    keys = jax.random.split(loss_key, steps)
    xs, begin = (index, active, keys), (state.params, state.opt_state)
    if steps == 1 and task.validate is None:  # without a loop there is less to compile
        after, losses = step(begin, jax.tree.map(operator.itemgetter(0), xs))
    else:
        after, losses = jax.lax.scan(step, begin, xs)
    return *after, losses.sum() / jnp.maximum(active.sum(), 1)


def train_step(
    task: Task,
    state: State,
    batch: Tree,
    hyperparams: Hyperparams,
    active: Bool[jax.Array, ""],
) -> tuple[State, Float[jax.Array, ""]]:
    """One step of one member on a batch of the caller's; it counts as an epoch.

    It goes on from the best weights, as another fit does. There is no validation: the weights after
    the step are the best. Where it is not ``active``, for lack of examples, its loss is 0 and
    nothing else changes. A loss or a weight that is not finite changes nothing but the status, and
    the loss of a member that does not train any more is NaN.
    """
    epoch = state.epoch + 1
    key = jax.random.fold_in(typed_key(state.key), epoch)
    before, optimizer = (state.best_params, state.opt_state), task.optimizer(hyperparams)
    params, opt_state, loss = update(task, optimizer, *before, batch, key, hyperparams)
    loss = jnp.where(active, loss, 0)
    sound = jnp.isfinite(loss) & all_finite(params)
    stepped = state._replace(
        params=params,
        opt_state=opt_state,
        epoch=epoch,
        best_params=params,
        best_loss=loss.astype(state.best_loss.dtype),
        best_epoch=epoch,
    )
    still = state._replace(epoch=epoch)
    failed = still._replace(status=jnp.int32(Status.DIVERGED))
    training = state.status != Status.DIVERGED
    after = where(active, where(sound, stepped, failed), still)
    return where(training, after, state), jnp.where(training, loss, jnp.nan)


def update(
    task: Task,
    optimizer: optax.GradientTransformation,
    params: Params,
    opt_state: OptState,
    batch: Tree,
    key: jax.Array,
    hyperparams: Hyperparams,
) -> tuple[Params, OptState, Float[jax.Array, ""]]:
    """One member after a step on a batch: params, the optimiser's state, and the loss before it.

    - ``task``, ``optimizer``: the member's
    - ``params``, ``opt_state``: what it knows, and what its optimiser remembers
    - ``batch``, ``key``, ``hyperparams``: what its loss is made from
    """
    loss, grads, after = replicated(value_and_grad(task.loss, params, batch, key, hyperparams))
    weights, extra = trained(params), dict[str, Any]()
    if isinstance(optimizer, optax.GradientTransformationExtraArgs):
        # For optimisers that search along a line.
        value_fn = loss_of_weights(task.loss, params, batch, key, hyperparams)
        extra = {"value": loss, "grad": grads, "value_fn": value_fn}
    updates, opt_state = optimizer.update(grads, opt_state, weights, **extra)
    return with_trained(after, optax.apply_updates(weights, updates)), opt_state, loss


def train_one(
    task: Task,
    key_data: UInt32[AnyArray, "2"],
    data: Data,
    hyperparams: Hyperparams,
    *,
    epochs: int,
    patience: int | None = None,
) -> State:
    """Train one member by itself until it stops: what a swarm does for each, without the swarm.

    - ``task``: how it learns
    - ``key_data``: its raw random key, see :func:`forecaster.swarm.member_keys`
    - ``data``: what it learns from, without a member axis
    - ``hyperparams``: by name, scalars
    - ``epochs``, ``patience``: as in :func:`forecaster.swarm.fit`
    """
    limits = Limits(jnp.int32(epochs), jnp.int32(epochs if patience is None else patience))

    @jax.jit
    def begin(key_data: jax.Array, data: Data, hyperparams: Hyperparams, limits: Limits) -> State:
        return start(task, key_data, data, hyperparams, limits)

    @jax.jit
    def epoch(state: State, data: Data, hyperparams: Hyperparams, limits: Limits) -> State:
        return train_epoch(task, state, data, hyperparams, limits)[0]

    state = cast(State, begin(key_data, data, hyperparams, limits))
    while state.status == Status.TRAINING:
        state = cast(State, epoch(state, data, hyperparams, limits))
    return state


def all_finite(tree: Tree) -> Bool[jax.Array, ""]:
    """Whether all numbers of a tree of arrays are finite."""
    return jnp.all(jnp.array([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(tree)]))


def where(condition: Bool[AnyArray, ""], yes: _T, no: _T) -> _T:
    """One of two trees of arrays of the same structure."""

    def choose(a: AnyArray, b: AnyArray) -> jax.Array:
        return jnp.where(condition, a, b)

    return jax.tree.map(choose, yes, no)
