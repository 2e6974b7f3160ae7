"""The training loop of ONE member, in the order in which it happens; the engine maps it over all.

- init: :func:`init_state`, :func:`resumed`, :func:`measured`
- step: :func:`train_step`, the only place where an optimiser changes weights
- epoch: :func:`train_epoch`, a step on every batch (:func:`take_steps`), then validation
- stop: :func:`next_status`
- many epochs: :func:`train_one`, or :func:`train_block`, which is what a swarm compiles
"""

import enum
import operator
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Bool, Float, Int32, Key, UInt32

from forecaster.swarm.arrays import loss_of_weights, trained, value_and_grad, with_trained
from forecaster.swarm.checks import SwarmError
from forecaster.swarm.devices.data_parallel import replicated, shard_batch
from forecaster.swarm.task import (
    AnyArray,
    Data,
    Hyperparams,
    Limits,
    Member,
    OptState,
    Params,
    Task,
    Tree,
)
from forecaster.swarm.training.keys import typed_key

_T = TypeVar("_T")


class Status(enum.IntEnum):
    """Whether a member still trains, and if not, why."""

    TRAINING = 0
    STOPPED_EARLY = 1
    FINISHED = 2
    DIVERGED = 3
    FAILED = 4  # every worker that trained it was lost, see Executor


class State(NamedTuple):
    """The training state of a member. In a swarm every leaf has a leading member axis.

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
    """Losses and metrics of one epoch or of several; NaN where the member did not train."""

    train: Float[AnyArray, "..."]
    validation: Float[AnyArray, "..."]
    metrics: Mapping[str, Float[AnyArray, "..."]] = {}


# ---- init ----


def init_state(
    task: Task,
    key_data: UInt32[AnyArray, "2"],
    hyperparams: Hyperparams,
    params: Params | None = None,
) -> State:
    """Return the state of a member before training. ``params``: by default drawn with its key."""
    if params is None:
        params = task.init(jax.random.fold_in(typed_key(key_data), 0))
    opt_state = task.optimizer(hyperparams).init(trained(params))
    none, training = jnp.int32(0), jnp.int32(Status.TRAINING)
    return State(key_data, params, opt_state, none, training, params, jnp.float32(jnp.inf), none)


def resumed(state: State, limits: Limits, *, validated: bool) -> State:
    """Return the states (member, ...) of members that train on, perhaps with other limits or data.

    A member that had finished trains again if its limit is higher now. One whose best weights are
    not finite has diverged. Of those that train, the loss of the best weights is measured again:
    until then it is NaN.
    """
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(state.best_params)]
    each = [np.isfinite(leaf).all(tuple(range(1, leaf.ndim))) for leaf in leaves]
    usable = np.all(each, axis=0) if each else np.ones(len(state.epoch), bool)
    finished = np.where(state.epoch < limits.epochs, Status.TRAINING, Status.FINISHED)
    going = np.isin(state.status, (Status.TRAINING, Status.FINISHED))
    status = np.where(usable, np.where(going, finished, state.status), Status.DIVERGED)
    unknown = (status == Status.TRAINING) | np.isnan(state.best_loss)
    loss = np.where(unknown, np.nan if validated else np.inf, state.best_loss)
    return state._replace(
        status=status.astype(np.int32), best_loss=loss.astype(np.asarray(state.best_loss).dtype)
    )


def measured(
    task: Task, state: State, member: Member
) -> tuple[Int32[jax.Array, ""], Float[jax.Array, ""]]:
    """Return the status and the loss of a member's best weights; diverged where not finite."""
    assert task.validate is not None
    loss = task.validate(state.best_params, member.data, member.hyperparams)
    usable = jnp.isfinite(loss)
    loss, _ = _criterion(task, state.best_params, member, loss)
    # A metric may be undefined before the first epoch: then any value is better.
    loss = jnp.where(usable & jnp.isfinite(loss), loss, jnp.inf).astype(state.best_loss.dtype)
    return jnp.where(usable, state.status, Status.DIVERGED).astype(jnp.int32), loss


# ---- step ----


def train_step(
    task: Task,
    optimizer: optax.GradientTransformation,
    params: Params,
    opt_state: OptState,
    batch: Tree,
    key: jax.Array,
    hyperparams: Hyperparams,
) -> tuple[Params, OptState, Float[jax.Array, ""]]:
    """Take one optimiser step on one batch.

    - ``task``: gives the loss
    - ``optimizer``: made of the member's hyperparameters
    - ``params``, ``opt_state``: weights and the optimiser's state before the step
    - ``batch``, ``key``, ``hyperparams``: arguments of the loss

    Returns weights and optimiser state after the step, and the loss before it.
    """
    of_weights = loss_of_weights(task.loss, params, batch, key, hyperparams)
    loss, grads, after = replicated(value_and_grad(of_weights, params))
    weights, extra = trained(params), dict[str, Any]()
    if isinstance(optimizer, optax.GradientTransformationExtraArgs):
        # For optimisers that search along a line.

        def value_fn(weights: Params) -> Float[jax.Array, ""]:
            return of_weights(weights)[0]

        extra = {"value": loss, "grad": grads, "value_fn": value_fn}
    updates, opt_state = optimizer.update(grads, opt_state, weights, **extra)
    return with_trained(after, optax.apply_updates(weights, updates)), opt_state, loss


def train_on_batch(
    task: Task,
    state: State,
    batch: Tree,
    hyperparams: Hyperparams,
    active: Bool[jax.Array, ""],
) -> tuple[State, Float[jax.Array, ""], Bool[jax.Array, ""]]:
    """Take one step on a batch of the caller's, which counts as an epoch.

    It starts from the best weights, as another fit does. There is no validation: the weights after
    the step are the best. A member that is not ``active``, for lack of examples, has a loss of 0.
    The loss of a member that had diverged before is NaN.

    Returns the state, the loss, and whether the step counts. Where it does not, for lack of
    examples or because the loss or a weight is not finite, :func:`chosen_state` returns the state.
    """
    epoch = state.epoch + 1
    key = jax.random.fold_in(typed_key(state.key), epoch)
    before, optimizer = (state.best_params, state.opt_state), task.optimizer(hyperparams)
    params, opt_state, loss = train_step(task, optimizer, *before, batch, key, hyperparams)
    loss = jnp.where(active, loss, 0)
    sound = jnp.isfinite(loss) & all_finite(params)
    training = state.status != Status.DIVERGED
    failed = training & active & ~sound
    after = state._replace(
        params=params,
        opt_state=opt_state,
        epoch=jnp.where(training, epoch, state.epoch),
        status=jnp.where(failed, Status.DIVERGED, state.status).astype(np.int32),
        best_params=params,
        best_loss=loss.astype(state.best_loss.dtype),
        best_epoch=epoch,
    )
    return after, jnp.where(training, loss, jnp.nan), training & active & sound


def chosen_state(counts: Bool[jax.Array, ""], after: State, before: State) -> State:
    """Return the state after a step, with weights and optimiser as before unless it counts."""
    return where(counts, after, before._replace(epoch=after.epoch, status=after.status))


# ---- epoch ----


def epoch_keys(
    key_data: UInt32[AnyArray, "2"], epoch: int | Int32[AnyArray, ""]
) -> tuple[Key[jax.Array, ""], Key[jax.Array, ""]]:
    """Return the keys of a member's epoch, counted from 1: for its batches and for its losses."""
    first, second = jax.random.split(jax.random.fold_in(typed_key(key_data), epoch))
    return first, second


def take_steps(
    task: Task,
    state: State,
    member: Member,
    batch_key: Key[jax.Array, ""],
    loss_key: Key[jax.Array, ""],
) -> tuple[Params, OptState, Float[jax.Array, ""]]:
    """Take a step on each batch of an epoch; return weights, optimiser state and the mean loss."""
    data, hyperparams = member.data, member.hyperparams
    index, active = task.batches(data, batch_key)
    optimizer, steps = task.optimizer(hyperparams), active.shape[0]

    def step(
        carry: tuple[Params, OptState], batch_of_step: tuple[Tree, jax.Array, jax.Array]
    ) -> tuple[tuple[Params, OptState], jax.Array]:
        index, is_active, key = batch_of_step
        batch = shard_batch(task.take(data, index))
        params, opt_state, loss = train_step(task, optimizer, *carry, batch, key, hyperparams)
        return where(is_active, (params, opt_state), carry), jnp.where(is_active, loss, 0)

    keys = jax.random.split(loss_key, steps)
    xs, begin = (index, active, keys), (state.params, state.opt_state)
    if steps == 1 and task.validate is None:  # without a loop there is less to compile
        after, losses = step(begin, jax.tree.map(operator.itemgetter(0), xs))
    else:
        after, losses = jax.lax.scan(step, begin, xs)
    return *after, losses.sum() / jnp.maximum(active.sum(), 1)


def train_epoch(task: Task, state: State, member: Member) -> tuple[State, Losses]:
    """Train a member for one epoch and validate it; return its state and the epoch's losses.

    The weights become the best ones if their validation loss is the lowest so far; without
    validation the latest are the best. After an epoch in which a loss or a weight is not finite,
    the best weights stay as they were.
    """
    epoch = state.epoch + 1
    keys = epoch_keys(state.key, epoch)
    params, opt_state, train_loss = take_steps(task, state, member, *keys)
    loss = train_loss
    if task.validate is not None:
        loss = task.validate(params, member.data, member.hyperparams)
    criterion, metrics = _criterion(task, params, member, loss)
    diverged = ~(jnp.isfinite(train_loss) & jnp.isfinite(loss) & all_finite(params))
    better = ~diverged & ((criterion < state.best_loss) | (task.validate is None))
    best_epoch = jnp.where(better, epoch, state.best_epoch)
    after = State(
        key=state.key,
        params=params,
        opt_state=opt_state,
        epoch=epoch,
        status=next_status(state.status, epoch, best_epoch, diverged, member.limits),
        best_params=where(better, params, state.best_params),
        best_loss=jnp.where(better, criterion, state.best_loss).astype(state.best_loss.dtype),
        best_epoch=best_epoch,
    )
    return after, Losses(train_loss, loss, metrics)


def _criterion(
    task: Task, params: Params, member: Member, loss: Float[jax.Array, ""]
) -> tuple[Float[jax.Array, ""], dict[str, Float[jax.Array, ""]]]:
    """Return the number that decides the best weights, and the metrics, from the weights' loss."""
    metrics: dict[str, jax.Array] = {}
    if task.measure is not None:
        metrics = dict(task.measure(params, member.data, member.hyperparams))
    if metrics.keys() != set(task.metrics):
        raise SwarmError(
            f"measure: expected the metrics in Task(metrics=...), {_listed(task.metrics)}; got "
            f"{_listed(metrics)}"
        )
    return loss if task.criterion is None else task.criterion(metrics), metrics


# ---- stop ----


def next_status(
    status: Int32[AnyArray, ""],
    epoch: Int32[AnyArray, ""],
    best_epoch: Int32[AnyArray, ""],
    diverged: Bool[AnyArray, ""],
    limits: Limits,
) -> Int32[jax.Array, ""]:
    """Return the status of a member after an epoch.

    It stops after ``limits.patience`` epochs without a better validation loss, after
    ``limits.epochs`` in all, and when it has diverged.
    """
    status = jnp.where(epoch - best_epoch >= limits.patience, Status.STOPPED_EARLY, status)
    status = jnp.where(epoch >= limits.epochs, Status.FINISHED, status)
    return jnp.where(diverged, Status.DIVERGED, status).astype(jnp.int32)


# ---- many epochs ----


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
    - ``data``: its examples, without a member axis
    - ``hyperparams``: by name, scalars
    - ``epochs``, ``patience``: as in :func:`forecaster.swarm.fit`
    """
    limits = Limits(jnp.int32(epochs), jnp.int32(epochs if patience is None else patience))

    @jax.jit
    def train(key_data: jax.Array, member: Member) -> State:
        new = init_state(task, key_data, member.hyperparams)
        new = new._replace(best_loss=jnp.float32(jnp.nan))  # still to be measured
        return train_block(task, new, member, epochs, epochs, begins=True)[0]

    return cast(State, train(key_data, Member(data, hyperparams, limits)))


def train_block(
    task: Task,
    state: State,
    member: Member,
    epochs: int | Int32[AnyArray, ""],
    max_epochs: int,
    *,
    begins: bool | Bool[AnyArray, ""],
) -> tuple[State, Losses]:
    """Train a member for several epochs; after its last one nothing of it changes.

    - ``task``, ``state``, ``member``: as for :func:`train_epoch`
    - ``epochs``: the number of epochs, passed as data so that blocks of other lengths compile
      nothing new
    - ``max_epochs``: the number of epochs that the arrays of losses have room for
    - ``begins``: whether the loss of the best weights may have to be measured before

    Returns the state and the losses, each (epoch of the block,), NaN where it did not train.
    """

    def one_epoch(i: Int32[jax.Array, ""], carry: tuple[State, Losses]) -> tuple[State, Losses]:
        state, history = carry
        after, losses = train_epoch(task, state, member)
        training = state.status == Status.TRAINING

        def write(row: AnyArray, loss: AnyArray) -> jax.Array:
            row = jnp.asarray(row)
            return row.at[i].set(jnp.where(training, loss, jnp.nan).astype(row.dtype))

        return where(training, after, state), jax.tree.map(write, history, losses)

    if task.validate is not None:
        before, unknown = (state.status, state.best_loss), jnp.isnan(state.best_loss)

        def begin() -> tuple[AnyArray, AnyArray]:
            return where(unknown, measured(task, state, member), before)

        status, loss = cast(Any, jax.lax.cond(begins, begin, lambda: before))
        state = state._replace(status=status, best_loss=loss)
    blank = _blank_losses(task, max_epochs)
    return cast(Any, jax.lax.fori_loop(0, epochs, one_epoch, (state, blank)))


def _blank_losses(task: Task, epochs: int) -> Losses:
    """Return losses and metrics (epoch,) of NaN.

    They have the widest type that JAX computes with: to find out the type of the losses, an epoch
    would have to be traced, which takes half as long as to trace a whole training.
    """
    one = jnp.full((epochs,), jnp.nan, jax.dtypes.canonicalize_dtype(float))
    return Losses(one, one, dict.fromkeys(task.metrics, one))


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"


# ---- trees of arrays ----


def all_finite(tree: Tree) -> Bool[jax.Array, ""]:
    """Return whether all numbers of a tree of arrays are finite.

    On CPUs, XLA vectorises a reduction over all axes but the last, not one over the last axis, so
    that an array is reduced in two passes; the barrier keeps XLA from merging them. The
    program of a step of sixteen 8-64-64-4 then takes 0.94 of its time (AMD EPYC, 2026-11).
    """

    def finite(leaf: AnyArray) -> jax.Array:
        each = jnp.isfinite(leaf)
        return jax.lax.optimization_barrier(each.all(tuple(range(each.ndim - 1)))).all()

    return jnp.all(jnp.array([finite(leaf) for leaf in jax.tree.leaves(tree)]))


def where(condition: Bool[AnyArray, ""], yes: _T, no: _T) -> _T:
    """Return one of two trees of arrays of the same structure."""

    def choose(a: AnyArray, b: AnyArray) -> jax.Array:
        return jnp.where(condition, a, b)

    return jax.tree.map(choose, yes, no)
