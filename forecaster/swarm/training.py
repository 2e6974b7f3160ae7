"""Training of ONE member: state, an epoch, a block of epochs. The engine maps it over members."""

import enum
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from forecaster.swarm.task import Data, Hyper, Params, Task


class Status(enum.IntEnum):
    """Why a member trains or does not."""

    TRAINING = 0
    STOPPED_EARLY = 1
    FINISHED = 2
    DIVERGED = 3


class State(NamedTuple):
    """All that training a member carries along. In a swarm every leaf has a leading member axis.

    On the devices the leaves are JAX arrays, on the host numpy arrays.
    """

    key: Any  # raw key data, (2,) uint32
    params: Params
    opt_state: Any
    epoch: Any  # epochs completed
    status: Any
    best_params: Params
    best_loss: Any
    best_epoch: Any  # 0: the initial weights


class Losses(NamedTuple):
    """Losses of an epoch; NaN where the member did not train."""

    train: Any
    validation: Any


def start(task: Task, key_data: jax.Array, data: Data, hyper: Hyper) -> State:
    """Initial state of one member; its initial weights are the first candidate for the best."""
    params = task.init(jax.random.fold_in(jax.random.wrap_key_data(key_data), 0))
    loss = task.validate(params, data)
    usable = jnp.isfinite(loss) & _all_finite(params)
    return State(
        key=key_data,
        params=params,
        opt_state=task.optimizer(hyper).init(params),
        epoch=jnp.int32(0),
        status=jnp.where(usable, Status.TRAINING, Status.DIVERGED).astype(jnp.int32),
        best_params=params,
        best_loss=jnp.where(usable, loss, jnp.inf).astype(loss.dtype),
        best_epoch=jnp.int32(0),
    )


def train_epoch(task: Task, state: State, data: Data, hyper: Hyper) -> tuple[State, Losses]:
    """One epoch of one member that is still training.

    Reads ``patience`` and ``epochs`` from the hyperparameters: training stops after that many
    epochs without a better validation loss, and after that many in all. A loss or a weight that is
    not finite marks the member as diverged; its best weights are kept.
    """
    epoch = state.epoch + 1
    key = jax.random.fold_in(jax.random.wrap_key_data(state.key), epoch)
    batch_key, loss_key = jax.random.split(key)
    index, active = task.batches(data, batch_key)
    optimizer = task.optimizer(hyper)

    def step(carry, now):
        params, opt_state = carry
        index, is_active, key = now
        loss, grads = jax.value_and_grad(task.loss)(params, task.take(data, index), key)
        updates, opt_state = optimizer.update(grads, opt_state, params)
        after = optax.apply_updates(params, updates), opt_state
        return _where(is_active, after, carry), jnp.where(is_active, loss, 0)

    keys = jax.random.split(loss_key, active.shape[0])
    (params, opt_state), losses = jax.lax.scan(
        step, (state.params, state.opt_state), (index, active, keys)
    )
    train_loss = losses.sum() / jnp.maximum(active.sum(), 1)
    loss = task.validate(params, data)
    diverged = ~(jnp.isfinite(train_loss) & jnp.isfinite(loss) & _all_finite(params))
    better = ~diverged & (loss < state.best_loss)
    best_epoch = jnp.where(better, epoch, state.best_epoch)
    status = jnp.where(epoch - best_epoch >= hyper["patience"], Status.STOPPED_EARLY, state.status)
    status = jnp.where(epoch >= hyper["epochs"], Status.FINISHED, status)
    status = jnp.where(diverged, Status.DIVERGED, status).astype(jnp.int32)
    trained = State(
        key=state.key,
        params=params,
        opt_state=opt_state,
        epoch=epoch,
        status=status,
        best_params=_where(better, params, state.best_params),
        best_loss=jnp.where(better, loss, state.best_loss),
        best_epoch=best_epoch,
    )
    return trained, Losses(train_loss, loss)


def train_block(
    task: Task, state: State, data: Data, hyper: Hyper, epochs: int
) -> tuple[State, Losses]:
    """Up to ``epochs`` epochs of one member; once it has stopped, nothing of it changes.

    Returns the state and the losses of each epoch, shape (epochs,).
    """

    def one(state: State, _):
        training = state.status == Status.TRAINING
        after, losses = train_epoch(task, state, data, hyper)
        seen = Losses(*(jnp.where(training, loss, jnp.nan) for loss in losses))
        return _where(training, after, state), seen

    return jax.lax.scan(one, state, length=epochs)


def train_one(task: Task, key_data: jax.Array, data: Data, hyper: Hyper) -> State:
    """Train one member by itself until it stops: what a swarm does for each, without the swarm."""
    epoch = jax.jit(lambda state, data, hyper: train_epoch(task, state, data, hyper)[0])
    state = jax.jit(lambda *args: start(task, *args))(key_data, data, hyper)
    while state.status == Status.TRAINING:
        state = epoch(state, data, hyper)
    return state


def _all_finite(tree: Any) -> jax.Array:
    return jnp.all(jnp.array([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(tree)]))


def _where(condition: jax.Array, yes: Any, no: Any) -> Any:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), yes, no)
