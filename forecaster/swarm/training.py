"""Training of ONE member: state, an epoch, a block of epochs. The engine maps it over members."""

import enum
import operator
from typing import Any, NamedTuple, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Bool, Float, Int32, Key, UInt32

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

_T = TypeVar("_T")


class Status(enum.IntEnum):
    """Why a member trains or does not."""

    TRAINING = 0
    STOPPED_EARLY = 1
    FINISHED = 2
    DIVERGED = 3


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
    """Losses of one epoch or of several; NaN where the member did not train."""

    train: Float[AnyArray, "..."]
    validation: Float[AnyArray, "..."]


def init_state(task: Task, key_data: UInt32[AnyArray, "2"], hyperparams: Hyperparams) -> State:
    """State of one member before it has seen any data."""
    params = task.init(jax.random.fold_in(_typed_key(key_data), 0))
    opt_state = task.optimizer(hyperparams).init(params)
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
    again if it has more of them now. Takes the hyperparameters as :func:`start` does, unused.
    """
    del hyperparams
    usable = _all_finite(state.best_params)
    loss = jnp.float32(jnp.inf)
    if task.validate is not None:
        loss = task.validate(state.best_params, data)
        usable &= jnp.isfinite(loss)
        loss = jnp.where(usable, loss, jnp.inf).astype(loss.dtype)
    finished = jnp.where(state.epoch < limits.epochs, Status.TRAINING, Status.FINISHED)
    ended = (state.status == Status.STOPPED_EARLY) | (state.status == Status.DIVERGED)
    status = jnp.where(ended, state.status, finished)
    status = jnp.where(usable, status, Status.DIVERGED).astype(jnp.int32)
    return state._replace(status=status, best_loss=loss)


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
    first, second = jax.random.split(jax.random.fold_in(_typed_key(key_data), epoch))
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
    params, opt_state, train_loss = _train_on_batches(
        task, state, data, hyperparams, batch_key, loss_key
    )
    loss = train_loss if task.validate is None else task.validate(params, data)
    diverged = ~(jnp.isfinite(train_loss) & jnp.isfinite(loss) & _all_finite(params))
    better = ~diverged & ((loss < state.best_loss) | (task.validate is None))
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
        best_params=_where(better, params, state.best_params),
        best_loss=jnp.where(better, loss, state.best_loss).astype(state.best_loss.dtype),
        best_epoch=best_epoch,
    )
    return trained, Losses(train_loss, loss)


def _train_on_batches(
    task: Task,
    state: State,
    data: Data,
    hyperparams: Hyperparams,
    batch_key: Key[jax.Array, ""],
    loss_key: Key[jax.Array, ""],
) -> tuple[Params, OptState, Float[jax.Array, ""]]:
    """Weights and optimiser state after an epoch's batches, and their mean loss."""
    index, active = task.batches(data, batch_key)
    steps = active.shape[0]

    def step(
        carry: tuple[Params, OptState], batch_of_step: tuple[Tree, jax.Array, jax.Array]
    ) -> tuple[tuple[Params, OptState], jax.Array]:
        index, is_active, key = batch_of_step
        after, loss = _train_on_batch(task, *carry, task.take(data, index), key, hyperparams)
        return _where(is_active, after, carry), jnp.where(is_active, loss, 0)

    keys = jax.random.split(loss_key, steps)
    xs, begin = (index, active, keys), (state.params, state.opt_state)
    if steps == 1 and task.validate is None:  # without a loop there is less to compile
        after, losses = step(begin, jax.tree.map(operator.itemgetter(0), xs))
    else:
        after, losses = jax.lax.scan(step, begin, xs)
    return *after, losses.sum() / jnp.maximum(active.sum(), 1)


def _train_on_batch(
    task: Task,
    params: Params,
    opt_state: OptState,
    batch: Tree,
    key: jax.Array,
    hyperparams: Hyperparams,
) -> tuple[tuple[Params, OptState], Float[jax.Array, ""]]:
    """Weights and optimiser state after a batch, and its loss."""
    optimizer = task.optimizer(hyperparams)
    loss, grads = jax.value_and_grad(task.loss)(params, batch, key, hyperparams)
    updates, opt_state = update(
        task, optimizer, grads, opt_state, params, loss, batch, key, hyperparams
    )
    return (optax.apply_updates(params, updates), opt_state), loss


def train_step(
    task: Task, state: State, batch: Tree, hyperparams: Hyperparams
) -> tuple[State, Float[jax.Array, ""]]:
    """One step of one member on a batch of the caller's; it counts as an epoch.

    There is no validation: the weights after the step are the best. A loss or a weight that is not
    finite changes nothing but the status.
    """
    epoch = state.epoch + 1
    key = jax.random.fold_in(_typed_key(state.key), epoch)
    (params, opt_state), loss = _train_on_batch(
        task, state.params, state.opt_state, batch, key, hyperparams
    )
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


def update(
    task: Task,
    optimizer: optax.GradientTransformation,
    grads: Params,
    opt_state: OptState,
    params: Params,
    loss: Float[jax.Array, ""],
    batch: Tree,
    key: jax.Array,
    hyperparams: Hyperparams,
) -> tuple[Params, OptState]:
    """An optimiser's update of one member, and its next state.

    - ``task``, ``optimizer``: the member's
    - ``grads``, ``params``: the gradient and the weights, trees of the same structure
    - ``opt_state``: what the optimiser remembers
    - ``loss``, ``batch``, ``key``, ``hyperparams``: the batch's loss and all that it was made from,
      for optimisers that search along a line
    """
    if not isinstance(optimizer, optax.GradientTransformationExtraArgs):
        return optimizer.update(grads, opt_state, params)

    def batch_loss(params: Params) -> jax.Array:
        return task.loss(params, batch, key, hyperparams)

    return optimizer.update(grads, opt_state, params, value=loss, grad=grads, value_fn=batch_loss)


class Block(NamedTuple):
    """What a block of epochs came to."""

    state: State
    losses: Losses  # each (epoch of the block,), NaN where there was none
    sound: Bool[AnyArray, "*member"]  # whether all weights are finite


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
    if task.validate is None:
        return _block_without_validation(task, state, data, hyperparams, limits, epochs, max_epochs)

    def one_epoch(i: Int32[jax.Array, ""], carry: tuple[State, Losses]) -> tuple[State, Losses]:
        state, history = carry
        training = state.status == Status.TRAINING
        after, losses = train_epoch(task, state, data, hyperparams, limits)

        def write(row: AnyArray, loss: AnyArray) -> jax.Array:
            return jnp.asarray(row).at[i].set(jnp.where(training, loss, jnp.nan))

        return _where(training, after, state), jax.tree.map(write, history, losses)

    shapes = jax.eval_shape(lambda: train_epoch(task, state, data, hyperparams, limits)[1])
    blank = Losses(*(jnp.full((max_epochs,), jnp.nan, shape.dtype) for shape in shapes))
    after, losses = cast(Any, jax.lax.fori_loop(0, epochs, one_epoch, (state, blank)))
    return Block(after, losses, jnp.bool_(True))


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

    Members that do not train are taken along and put back at the end, which costs less than to
    hold them still at every step.
    """
    training = (state.status == Status.TRAINING) & (state.epoch < limits.epochs)
    index, active = task.batches(data, epoch_keys(state.key, state.epoch)[0])
    always = index is None  # one batch of all that there is, in every epoch

    def one_epoch(
        i: Int32[jax.Array, ""], carry: tuple[Params, OptState, jax.Array]
    ) -> tuple[Params, OptState, jax.Array]:
        params, opt_state, losses = carry
        batch_key, loss_key = epoch_keys(state.key, state.epoch + 1 + i)
        if always:
            key = jax.random.split(loss_key, 1)[0]
            batch = task.take(data, None)
            (params, opt_state), loss = _train_on_batch(
                task, params, opt_state, batch, key, hyperparams
            )
        else:
            now = state._replace(params=params, opt_state=opt_state)
            params, opt_state, loss = _train_on_batches(
                task, now, data, hyperparams, batch_key, loss_key
            )
        return params, opt_state, losses.at[i].set(loss)

    shape = jax.eval_shape(lambda: train_epoch(task, state, data, hyperparams, limits)[1].train)
    blank = jnp.full((max_epochs,), jnp.nan, shape.dtype)
    carry = state.params, state.opt_state, blank
    params, opt_state, losses = cast(Any, jax.lax.fori_loop(0, epochs, one_epoch, carry))
    trained = jnp.where(training, epochs, 0)
    if always:
        losses = jnp.where(active[0], losses, 0)
    losses = jnp.where(jnp.arange(max_epochs) < trained, losses, jnp.nan)
    before = state.params, state.opt_state
    changed = (trained > 0) & (active[0] | (not always))
    params, opt_state = _where(changed, (params, opt_state), before)
    epoch = (state.epoch + trained).astype(jnp.int32)
    finished = (trained > 0) & (epoch >= limits.epochs)
    latest = losses[jnp.maximum(trained - 1, 0)].astype(state.best_loss.dtype)
    after = State(
        key=state.key,
        params=params,
        opt_state=opt_state,
        epoch=epoch,
        status=jnp.where(finished, Status.FINISHED, state.status).astype(jnp.int32),
        best_params=_where(trained > 0, params, state.best_params),
        best_loss=jnp.where(trained > 0, latest, state.best_loss),
        best_epoch=jnp.where(trained > 0, epoch, state.best_epoch),
    )
    return Block(after, Losses(losses, losses), _all_finite(params))


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


def _typed_key(key_data: UInt32[AnyArray, "2"]) -> Key[jax.Array, ""]:
    return cast(jax.Array, jax.random.wrap_key_data(cast(jax.Array, key_data)))


def _all_finite(tree: Tree) -> Bool[jax.Array, ""]:
    return jnp.all(jnp.array([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(tree)]))


def _where(condition: Bool[AnyArray, ""], yes: _T, no: _T) -> _T:
    def choose(a: AnyArray, b: AnyArray) -> jax.Array:
        return jnp.where(condition, a, b)

    return jax.tree.map(choose, yes, no)
