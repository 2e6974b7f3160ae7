"""Training of ONE member: state, an epoch, a block of epochs. The engine maps it over members."""

import enum
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from forecaster.swarm.task import Data, Hyperparams, Params, Task


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


def init_state(task: Task, key_data: jax.Array, hyperparams: Hyperparams) -> State:
    """State of one member before it has seen any data."""
    params = task.init(jax.random.fold_in(jax.random.wrap_key_data(key_data), 0))
    opt_state = task.optimizer(hyperparams).init(params)
    none, training = jnp.int32(0), jnp.int32(Status.TRAINING)
    return State(key_data, params, opt_state, none, training, params, jnp.float32(jnp.inf), none)


def start(task: Task, key_data: jax.Array, data: Data, hyperparams: Hyperparams) -> State:
    """Initial state of one member; its initial weights are the first candidate for the best."""
    return go_on(task, init_state(task, key_data, hyperparams), data, hyperparams)


def go_on(task: Task, state: State, data: Data, hyperparams: Hyperparams) -> State:
    """State of one member that trains further, on these data and up to ``hyperparams["epochs"]``.

    Its best weights are judged anew. One that had used up its epochs trains if it has more now.
    """
    usable = _all_finite(state.best_params)
    loss = jnp.float32(jnp.inf)
    if task.validate is not None:
        loss = task.validate(state.best_params, data)
        usable &= jnp.isfinite(loss)
        loss = jnp.where(usable, loss, jnp.inf).astype(loss.dtype)
    finished = jnp.where(state.epoch < hyperparams["epochs"], Status.TRAINING, Status.FINISHED)
    ended = (state.status == Status.STOPPED_EARLY) | (state.status == Status.DIVERGED)
    status = jnp.where(ended, state.status, finished)
    status = jnp.where(usable, status, Status.DIVERGED).astype(jnp.int32)
    return state._replace(status=status, best_loss=loss)


def epoch_keys(key_data: jax.Array, epoch: Any) -> tuple[jax.Array, jax.Array]:
    """The keys of a member's epoch, counted from 1: for its batches and for its losses."""
    first, second = jax.random.split(jax.random.fold_in(jax.random.wrap_key_data(key_data), epoch))
    return first, second


def train_epoch(
    task: Task, state: State, data: Data, hyperparams: Hyperparams
) -> tuple[State, Losses]:
    """One epoch of one member that is still training.

    Reads ``patience`` and ``epochs`` from the hyperparameters: training stops after that many
    epochs without a better validation loss, and after that many in all. A loss or a weight that is
    not finite marks the member as diverged; its best weights are kept.
    """
    epoch = state.epoch + 1
    batch_key, loss_key = epoch_keys(state.key, epoch)
    index, active = task.batches(data, batch_key)
    optimizer = task.optimizer(hyperparams)

    def step(carry, now):
        params, opt_state = carry
        index, is_active, key = now
        batch = task.take(data, index)
        loss, grads = jax.value_and_grad(task.loss)(params, batch, key, hyperparams)
        updates, opt_state = update(
            task, optimizer, grads, opt_state, params, loss, batch, key, hyperparams
        )
        after = optax.apply_updates(params, updates), opt_state
        return _where(is_active, after, carry), jnp.where(is_active, loss, 0)

    keys = jax.random.split(loss_key, active.shape[0])
    (params, opt_state), losses = jax.lax.scan(
        step, (state.params, state.opt_state), (index, active, keys)
    )
    train_loss = losses.sum() / jnp.maximum(active.sum(), 1)
    loss = train_loss if task.validate is None else task.validate(params, data)
    diverged = ~(jnp.isfinite(train_loss) & jnp.isfinite(loss) & _all_finite(params))
    better = ~diverged & ((loss < state.best_loss) | (task.validate is None))
    best_epoch = jnp.where(better, epoch, state.best_epoch)
    status = jnp.where(
        epoch - best_epoch >= hyperparams["patience"], Status.STOPPED_EARLY, state.status
    )
    status = jnp.where(epoch >= hyperparams["epochs"], Status.FINISHED, status)
    status = jnp.where(diverged, Status.DIVERGED, status).astype(jnp.int32)
    trained = State(
        key=state.key,
        params=params,
        opt_state=opt_state,
        epoch=epoch,
        status=status,
        best_params=_where(better, params, state.best_params),
        best_loss=jnp.where(better, loss, state.best_loss).astype(state.best_loss.dtype),
        best_epoch=best_epoch,
    )
    return trained, Losses(train_loss, loss)


def train_step(
    task: Task, state: State, batch: Any, hyperparams: Hyperparams
) -> tuple[State, jax.Array]:
    """One step of one member on a batch of the caller's; it counts as an epoch.

    There is no validation: the weights after the step are the best. A loss or a weight that is not
    finite changes nothing but the status.
    """
    epoch = state.epoch + 1
    key = jax.random.fold_in(jax.random.wrap_key_data(state.key), epoch)
    loss, grads = jax.value_and_grad(task.loss)(state.params, batch, key, hyperparams)
    optimizer, params, opt_state = task.optimizer(hyperparams), state.params, state.opt_state
    updates, opt_state = update(
        task, optimizer, grads, opt_state, params, loss, batch, key, hyperparams
    )
    params = optax.apply_updates(state.params, updates)
    sound = jnp.isfinite(loss) & _all_finite(params)
    after = state._replace(
        params=params,
        opt_state=opt_state,
        epoch=epoch,
        best_params=params,
        best_loss=loss.astype(state.best_loss.dtype),
        best_epoch=epoch,
    )
    failed = state._replace(epoch=epoch, status=jnp.int32(Status.DIVERGED))
    training = state.status != Status.DIVERGED
    return _where(training, _where(sound, after, failed), state), loss


def update(task: Task, optimizer: Any, grads, opt_state, params, loss, batch, key, hyperparams):
    """An optimiser's update; those that search along a line get what they ask for too."""
    extra = {}
    if isinstance(optimizer, optax.GradientTransformationExtraArgs):
        extra = {"value": loss, "grad": grads}
        extra["value_fn"] = lambda params: task.loss(params, batch, key, hyperparams)
    return optimizer.update(grads, opt_state, params, **extra)


def train_block(
    task: Task, state: State, data: Data, hyperparams: Hyperparams, epochs: Any, most: int
) -> tuple[State, Losses]:
    """Up to ``epochs`` epochs of one member; once it has stopped, nothing of it changes.

    ``epochs``, at most ``most``, is data: blocks of other lengths compile nothing new. Returns the
    state and the losses of each epoch, shape (most,), NaN where there was none.
    """

    def one(i, carry):
        state, seen = carry
        training = state.status == Status.TRAINING
        after, losses = train_epoch(task, state, data, hyperparams)
        seen = Losses(
            *(
                row.at[i].set(jnp.where(training, loss, jnp.nan))
                for row, loss in zip(seen, losses, strict=True)
            )
        )
        return _where(training, after, state), seen

    shapes = jax.eval_shape(lambda: train_epoch(task, state, data, hyperparams)[1])
    blank = Losses(*(jnp.full((most,), jnp.nan, shape.dtype) for shape in shapes))
    return jax.lax.fori_loop(0, epochs, one, (state, blank))


def train_one(task: Task, key_data: jax.Array, data: Data, hyperparams: Hyperparams) -> State:
    """Train one member by itself until it stops: what a swarm does for each, without the swarm."""
    epoch = jax.jit(lambda state, data, hyperparams: train_epoch(task, state, data, hyperparams)[0])
    state = jax.jit(lambda *args: start(task, *args))(key_data, data, hyperparams)
    while state.status == Status.TRAINING:
        state = epoch(state, data, hyperparams)
    return state


def _all_finite(tree: Any) -> jax.Array:
    return jnp.all(jnp.array([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(tree)]))


def _where(condition: jax.Array, yes: Any, no: Any) -> Any:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), yes, no)
