"""Fit a swarm: many members at once, each by itself, each until it has stopped."""

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from forecaster.swarm.checkpoint import Checkpoint, fingerprint
from forecaster.swarm.checks import SwarmError, broadcast_hyperparams, check_counts, check_ids
from forecaster.swarm.data import Held, Streamed, check_data
from forecaster.swarm.keys import member_keys
from forecaster.swarm.lanes import Layout, lane_mesh
from forecaster.swarm.memory import chunk_size, members_at_once
from forecaster.swarm.schedule import Schedule, run_to_the_end
from forecaster.swarm.task import Data, Params, Task
from forecaster.swarm.training import Losses, State, Status


@dataclasses.dataclass(frozen=True)
class Progress:
    """How far a fit is. Losses are those of the members' latest epochs."""

    members: int
    stopped: int
    epochs_done: int  # over all members
    epochs_at_most: int
    validation_loss: np.ndarray  # (member,), NaN before a member's first epoch
    seconds: float
    stage: str = ""  # of a search: which of its rungs


@dataclasses.dataclass(frozen=True)
class FitResult:
    """What training left, a row per member in the order of ``ids``; all arrays are numpy."""

    ids: tuple[str, ...]
    params: Params  # the best weights; leaves (member, ...)
    status: np.ndarray  # (member,) of Status
    epochs: np.ndarray  # (member,) epochs trained; for a diverged member, the one it happened in
    best_epoch: np.ndarray  # (member,)
    best_loss: np.ndarray  # (member,) validation loss of the best weights
    losses: Losses  # each (member, epoch), NaN after a member stopped
    state: State  # all that is needed to train on; leaves (member, ...)
    seconds: float


def fit(
    task: Task,
    data: Data | Streamed,
    ids: Sequence[str],
    *,
    seed: int,
    hyperparams: Mapping[str, Any],
    keys: np.ndarray | None = None,
    chunk: int | None = None,
    block: int = 5,
    lanes: int | None = None,
    memory: int | None = None,
    room_for: int | None = None,
    previous: FitResult | None = None,
    checkpoint: Checkpoint | None = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> FitResult:
    """Train one member per id, all at the same time and each on its own.

    ``data``: a pytree of arrays with a leading member axis, or :class:`Shared` ones, or
    :class:`Streamed`. ``hyperparams``: by name, a scalar for all or an array (member,); ``epochs`` and
    ``patience`` are read here, the rest by the optimiser and the loss. ``chunk``: members that one
    lane trains at once; by default what keeps a chunk in the cache. ``block``: epochs between two
    looks from the host, more where they are over in less than a tenth of a second. ``memory``:
    bytes that the process may take (on a CPU), or all devices (on GPUs); a swarm that needs more
    goes through in turns. ``room_for``: make room for so many members, so that fits of several
    sizes share their compiled programs. ``previous``: train on from there, up to
    ``hyperparams["epochs"]`` in all. A member's result depends on its name, data, hyperparameters and
    the seed alone.

    With a ``checkpoint`` the fit can be interrupted at any moment, also by ``kill -9``, and
    resumed: it ends with the same bits, on the same machine, as if it had never been interrupted.

    Raises SwarmError when ids repeat, when data and ids differ in number, or when the checkpoint
    to resume is of another fit; FileNotFoundError when there is none.
    """
    began = time.perf_counter()
    ids = tuple(ids)
    check_ids(ids)
    hyperparams = broadcast_hyperparams(hyperparams, len(ids))
    check_counts(hyperparams, chunk=chunk, block=block, memory=memory)
    if not isinstance(data, Streamed):
        check_data(data, len(ids))
    if previous is not None and previous.ids != ids:
        raise SwarmError("previous: of other members; expected the same ids in the same order")
    held = Held(data, len(ids))
    mesh = lane_mesh(lanes)
    most = max(len(ids), room_for or 0)
    chunk = chunk or chunk_size(task, held, hyperparams)
    room = members_at_once(memory, task, held, hyperparams, mesh.size)
    layout = Layout.of(most, mesh.size, chunk, max(room, mesh.size * chunk))
    keys = member_keys(seed, ids) if keys is None else keys
    origin = keys if previous is None else previous.state
    schedule = Schedule(task, held, hyperparams, origin, mesh, layout, block)
    if previous is not None:
        schedule.remember(previous.losses)
    fit = fingerprint(ids, seed, hyperparams, origin, data) if checkpoint else ""
    if checkpoint and checkpoint.resume:
        schedule.restore(checkpoint.path, fit)

    def report():
        if on_progress:
            on_progress(_progress(schedule, time.perf_counter() - began))

    run_to_the_end(schedule, checkpoint, fit, report)
    seconds = time.perf_counter() - began
    return fitted_of(ids, schedule.state, schedule.history.losses(), seconds)


def fitted_of(ids: tuple[str, ...], state: State, losses: Losses, seconds: float) -> FitResult:
    """What training left, from the members' states."""
    return FitResult(
        ids=ids,
        params=state.best_params,
        status=state.status,
        epochs=state.epoch,
        best_epoch=state.best_epoch,
        best_loss=state.best_loss,
        losses=losses,
        state=state,
        seconds=seconds,
    )


def take_members(tree: Any, rows: Any) -> Any:
    """Some members of a tree of arrays, numpy leaves (member, ...), in the order of ``rows``."""
    return jax.tree.map(lambda leaf: np.asarray(leaf)[rows], tree)


def take_rows(fitted: FitResult, rows: Any, ids: Sequence[str] | None = None) -> FitResult:
    """Some members of what training left, in this order; with other ids if given."""
    state, losses = take_members((fitted.state, fitted.losses), rows)
    ids = [fitted.ids[row] for row in rows] if ids is None else ids
    return fitted_of(tuple(ids), State(*state), Losses(*losses), fitted.seconds)


def from_the_best(state: State) -> State:
    """States that train on from the best weights, all but the diverged."""
    diverged = state.status == Status.DIVERGED
    status = np.where(diverged, Status.DIVERGED, Status.TRAINING).astype(np.int32)
    return state._replace(params=state.best_params, status=status, best_epoch=state.epoch)


def _progress(schedule: Schedule, seconds: float) -> Progress:
    state = schedule.state
    ended = state.status != Status.TRAINING
    return Progress(
        members=len(state.status),
        stopped=schedule.stopped,
        epochs_done=int(state.epoch.sum()),
        epochs_at_most=int(np.where(ended, state.epoch, schedule.hyperparams["epochs"]).sum()),
        validation_loss=schedule.history.latest,
        seconds=seconds,
    )
