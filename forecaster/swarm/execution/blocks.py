"""A block of epochs of ONE member, and the programs of all: what lanes do between two looks."""

import functools
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeAlias, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Bool, Float, Int, Int32

from forecaster.swarm.arrays.data import with_shared
from forecaster.swarm.arrays.members import take_members, write_members
from forecaster.swarm.checks import SwarmError
from forecaster.swarm.devices.data_parallel import shard_batch
from forecaster.swarm.devices.programs import Program, spread
from forecaster.swarm.execution.flat import Flat, Form
from forecaster.swarm.execution.vectors import Vector
from forecaster.swarm.task import AnyArray, Data, Hyperparams, Limits, OptState, Params, Task
from forecaster.swarm.training.training import (
    Losses,
    State,
    Status,
    all_finite,
    epoch_keys,
    start,
    train_epoch,
    train_on_batches,
    update,
    where,
)


class Block(NamedTuple):
    """What a block of epochs came to."""

    state: State
    losses: Losses  # each (epoch of the block,), NaN where there was none
    sound: Bool[AnyArray, "*member"]  # whether all weights are finite
    # Whether the state's weights and optimiser count, and not those before; None where they do.
    changed: Bool[AnyArray, "*member"] | None = None


class Trained(NamedTuple):
    """The same of arrays (lane, chunk, member, ...), the states as :class:`Form` has them."""

    state: Flat
    losses: Losses
    sound: AnyArray


def is_plain(task: Task) -> bool:
    """Whether no epoch is looked at by itself: nothing is measured after it."""
    return task.validate is None and task.measure is None


def train_block(
    task: Task,
    state: State,
    data: Data,
    hyperparams: Hyperparams,
    limits: Limits,
    epochs: int | Int32[AnyArray, ""],
    max_epochs: int,
) -> Block:
    """Several epochs of one member; once it has stopped, nothing of it changes.

    - ``task``, ``data``, ``hyperparams``: as for :func:`train_epoch`
    - ``state``: where the member stands
    - ``limits``: when it stops
    - ``epochs``: how many; as data, so that blocks of other lengths compile nothing new. Without
      validation no more than any member that trains has left
    - ``max_epochs``: how many there is room for

    Without validation there is nothing to choose by, and no epoch is looked at by itself: a member
    that diverges goes on to the end of the block, and it is for the caller to take it back to the
    last epoch whose losses and weights were finite.
    """
    if is_plain(task):
        return _block_without_validation(task, state, data, hyperparams, limits, epochs, max_epochs)

    def one_epoch(i: Int32[jax.Array, ""], carry: tuple[State, Losses]) -> tuple[State, Losses]:
        state, history = carry
        training = state.status == Status.TRAINING
        after, losses = train_epoch(task, state, data, hyperparams, limits)

        def write(row: AnyArray, loss: AnyArray) -> jax.Array:
            row = jnp.asarray(row)
            return row.at[i].set(jnp.where(training, loss, jnp.nan).astype(row.dtype))

        return where(training, after, state), _by_name(write, history, losses)

    blank = _room(task, max_epochs)
    after, losses = cast(Any, jax.lax.fori_loop(0, epochs, one_epoch, (state, blank)))
    return Block(after, losses, jnp.bool_(True))


def _train_joined(
    task: Task,
    state: State,
    data: Data,
    hyperparams: Hyperparams,
    limits: Limits,
    epochs: Int32[AnyArray, ""],
    max_epochs: int,
) -> Block:
    """:func:`train_block`, the weights in a vector meanwhile where :class:`Vector` has them."""
    vector = Vector.of(task, state, hyperparams)
    if vector is None:
        return train_block(task, state, data, hyperparams, limits, epochs, max_epochs)
    task, state = vector.task(task), vector.joined_state(state)
    block = train_block(task, state, data, hyperparams, limits, epochs, max_epochs)
    return block._replace(state=vector.state(block.state))


def _block_without_validation(
    task: Task,
    state: State,
    data: Data,
    hyperparams: Hyperparams,
    limits: Limits,
    epochs: int | Int32[AnyArray, ""],
    max_epochs: int,
) -> Block:
    """:func:`train_block` where the latest weights are the best, and nothing else is to be kept.

    Members that do not train are taken along and put back at the end by the caller, which costs
    less than to hold them still at every step.
    """
    training = (state.status == Status.TRAINING) & (state.epoch < limits.epochs)
    index, active = task.batches(data, epoch_keys(state.key, state.epoch)[0])
    whole = index is None  # one batch of all that there is, in every epoch

    def one_epoch(
        i: Int32[jax.Array, ""], carry: tuple[Params, OptState, jax.Array]
    ) -> tuple[Params, OptState, jax.Array]:
        params, opt_state, losses = carry
        now = state._replace(params=params, opt_state=opt_state)
        epoch = state.epoch + 1 + i
        params, opt_state, loss = _epoch(task, now, data, hyperparams, epoch, whole=whole)
        return params, opt_state, losses.at[i].set(loss.astype(losses.dtype))

    blank = _room(task, max_epochs).train
    carry = state.params, state.opt_state, jnp.asarray(blank)
    params, opt_state, losses = cast(Any, jax.lax.fori_loop(0, epochs, one_epoch, carry))
    trained = jnp.where(training, epochs, 0)
    if whole:
        losses = jnp.where(active[0], losses, 0)
    losses = jnp.where(jnp.arange(max_epochs) < trained, losses, jnp.nan)
    changed = (trained > 0) & (active[0] | (not whole))
    best = where(changed, params, state.params)
    best = where(trained > 0, best, state.best_params)
    after = _after(state, params, opt_state, trained, losses, limits)._replace(best_params=best)
    return Block(after, Losses(losses, losses), all_finite(params) | ~changed, changed)


def _room(task: Task, epochs: int) -> Losses:
    """Room for the losses of so many epochs: NaN.

    Of the widest type that JAX computes with, whatever that of the losses: to ask for it an epoch
    would have to be traced, which is half of what it takes to trace a training.
    """
    one = jnp.full((epochs,), jnp.nan, jax.dtypes.canonicalize_dtype(float))
    return Losses(one, one, dict.fromkeys(task.metrics, one))


def _by_name(write: Callable[..., jax.Array], history: Losses, losses: Losses) -> Losses:
    """A history into which the losses of an epoch are written; metrics that it lacks stay NaN.

    Raises SwarmError for a metric that the task does not name.
    """
    if unknown := losses.metrics.keys() - history.metrics.keys():
        raise SwarmError(
            f"measure: expected the metrics that the task names ({_words(history.metrics)}); got "
            f"{_words(losses.metrics)}. Name {_words(unknown)} in Task(metrics=...)"
        )
    metrics = {
        name: write(row, losses.metrics[name]) if name in losses.metrics else row
        for name, row in history.metrics.items()
    }
    train = write(history.train, losses.train)
    return Losses(train, write(history.validation, losses.validation), metrics)


def _words(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"


def _epoch(
    task: Task,
    state: State,
    data: Data,
    hyperparams: Hyperparams,
    epoch: Int32[AnyArray, ""],
    *,
    whole: bool,
) -> tuple[Params, OptState, jax.Array]:
    """Weights, optimiser state and mean loss after an epoch, with a number of its own.

    ``whole``: all that there is is one batch; whether there is anything is for the caller to ask.
    """
    batch_key, loss_key = epoch_keys(state.key, epoch)
    if not whole:
        return train_on_batches(task, state, data, hyperparams, batch_key, loss_key)
    optimizer, key = task.optimizer(hyperparams), jax.random.split(loss_key, 1)[0]
    batch = shard_batch(task.take(data, None))
    return update(task, optimizer, state.params, state.opt_state, batch, key, hyperparams)


def _after(
    state: State,
    params: Params,
    opt_state: OptState,
    trained: Int32[AnyArray, ""],
    losses: AnyArray,
    limits: Limits,
) -> State:
    """The state after so many epochs with these losses, the latest weights being the best.

    All but weights and optimiser are as they were where there was no epoch.
    """
    epoch = (state.epoch + trained).astype(jnp.int32)
    finished = (trained > 0) & (epoch >= limits.epochs)
    latest = losses[jnp.maximum(trained - 1, 0)].astype(state.best_loss.dtype)
    return State(
        key=state.key,
        params=params,
        opt_state=opt_state,
        epoch=epoch,
        status=jnp.where(finished, Status.FINISHED, state.status).astype(jnp.int32),
        best_params=params,
        best_loss=jnp.where(trained > 0, latest, state.best_loss),
        best_epoch=jnp.where(trained > 0, epoch, state.best_epoch),
    )


@functools.lru_cache(maxsize=32)
def compiled(
    task: Task, mesh: Mesh, max_epochs: int, form: Form, begin: Callable[..., State] = start
) -> tuple[Program, Program]:
    """The two compiled programs of a fit: one starts members, the other trains them.

    ``begin``: :func:`start` or :func:`resume`. A block has at most ``max_epochs`` epochs. States
    come and go in this form. Common to all members are the data that they share. Each chunk of each
    lane has a number of epochs of its own, 0 where nobody trains, and a flag of whether anybody
    starts.
    """

    def first(
        common: tuple[Data],
        somebody: jax.Array,
        origin: Flat | jax.Array,
        unshared: Data,
        hyperparams: Hyperparams,
        limits: Limits,
    ) -> Flat:
        def go() -> Flat:
            before = form.tree(origin) if isinstance(origin, dict) else origin
            data = with_shared(unshared, common[0])
            return form.flat(begin(task, before, data, hyperparams, limits))

        return cast(Flat, jax.lax.cond(somebody > 0, go, form.zeros))

    def train(
        common: tuple[Data],
        epochs: jax.Array,
        state: Flat,
        unshared: Data,
        hyperparams: Hyperparams,
        limits: Limits,
    ) -> Trained:
        data, before = with_shared(unshared, common[0]), form.tree(state)
        block = _train_joined(task, before, data, hyperparams, limits, epochs, max_epochs)
        flat = form.flat(block.state)
        if block.changed is not None:  # chosen at once, not leaf by leaf: there is less to compile
            flat = form.where(block.changed, flat, state, first=("key", "params", "opt_state"))
        return Trained(flat, block.losses, block.sound)

    return (
        spread(first, mesh, once=True, name=begin.__name__, chunked=True),
        spread(train, mesh, name="train", chunked=True),
    )


def first_bad(
    losses: Float[np.ndarray, "row epoch"],
    sound: Bool[np.ndarray, " row"],
    trained: Int[np.ndarray, " row"],
) -> Int[np.ndarray, " row"]:
    """The first epoch of a block that went wrong, counted from 0; -1 where nothing did.

    That is one whose loss is not finite, or the last, where only the weights at the end are not
    finite.

    - ``losses``: of the block's epochs
    - ``sound``: whether the weights at the end are finite
    - ``trained``: how many epochs each member trained
    """
    bad = np.array(~np.isfinite(losses), bool)
    bad[np.arange(bad.shape[1]) >= trained[:, None]] = False
    at_the_end = np.array(trained - 1, int)
    at_the_end[np.asarray(sound | (trained == 0))] = -1
    return np.where(bad.any(1), bad.argmax(1), at_the_end)


_Train: TypeAlias = Callable[[int, int], tuple[State, np.ndarray]]


def put_right(state: State, bad: Int[np.ndarray, " row"], train: _Train) -> State:
    """States of members, in which those that diverged are as they were before it happened.

    - ``state``: those after the block, arrays (row, ...)
    - ``bad``: the epoch of the block that went wrong, see :func:`first_bad`
    - ``train``: of a row and a number of epochs, the states after so many of the block, of that
      row at least, and whether weights are finite
    """
    for row in (int(row) for row in np.flatnonzero(bad >= 0)):
        state = write_members(state, np.array([row]), _last_sound(train, row, int(bad[row])))
    return state


def _last_sound(train: _Train, row: int, bad: int) -> State:
    """The state (1, ...) of a member that diverged in epoch ``bad``, with its last finite weights.

    Where its loss was not finite, the weights after the epoch before may not have been either, nor
    those of many epochs if no loss depends on them. Weights that are not finite stay so: it looks
    back by ever longer steps until they are, and then between the last two.
    """
    after, sound = train(row, bad)
    if bad and not sound[row]:
        after = _before(train, row, bad)
    state = take_members(after, slice(row, row + 1))
    diverged = np.array([Status.DIVERGED], np.int32)
    return state._replace(epoch=state.epoch + np.int32(1), status=diverged)


def _before(train: _Train, row: int, ill: int) -> State:
    """The states with a member's last finite weights, where those after ``ill`` are not."""
    good, back = ill - 1, 1
    after, sound = train(row, good)
    while good and not sound[row]:
        ill, back = good, 2 * back
        good = max(0, ill - back)
        after, sound = train(row, good)
    while ill - good > 1:
        middle = (good + ill) // 2
        found, sound = train(row, middle)
        if sound[row]:
            good, after = middle, found
        else:
            ill = middle
    return after
