"""Fit a swarm: many members at once, each by itself, each until it has stopped."""

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from forecaster.swarm import lanes as _lanes
from forecaster.swarm.checkpoint import Checkpoint, fingerprint
from forecaster.swarm.keys import member_keys
from forecaster.swarm.schedule import Schedule, run_to_the_end
from forecaster.swarm.task import Data, Hyper, Params, Task
from forecaster.swarm.training import Losses, Status


@dataclasses.dataclass(frozen=True)
class Progress:
    """How far a fit is. Losses are those of the members' latest epochs."""

    members: int
    stopped: int
    epochs_done: int  # over all members
    epochs_at_most: int
    validation_loss: np.ndarray  # (member,), NaN before a member's first epoch
    seconds: float


@dataclasses.dataclass(frozen=True)
class Fitted:
    """What training left, a row per member in the order of ``ids``; all arrays are numpy."""

    ids: tuple[str, ...]
    params: Params  # the best weights; leaves (member, ...)
    status: np.ndarray  # (member,) of Status
    epochs: np.ndarray  # (member,) epochs trained; for a diverged member, the one it happened in
    best_epoch: np.ndarray  # (member,)
    best_loss: np.ndarray  # (member,) validation loss of the best weights
    losses: Losses  # each (member, epoch), NaN after a member stopped
    seconds: float


def fit(
    task: Task,
    data: Data,
    ids: Sequence[str],
    *,
    seed: int,
    hyper: Mapping[str, Any],
    chunk: int = 4,
    block: int = 5,
    lanes: int | None = None,
    memory: int = 512 * 2**20,
    checkpoint: Checkpoint | None = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> Fitted:
    """Train one member per id, all at the same time and each on its own.

    ``data``: a pytree of arrays with a leading member axis. ``hyper``: by name, a scalar for all
    or an array (member,); ``epochs`` and ``patience`` are read here, the rest by the optimiser.
    ``chunk``: members that one lane trains at once; ``block``: epochs between two looks from the
    host; ``memory``: bytes of data on the devices at once (a swarm that is larger goes through in
    turns). A member's result depends on its name, data, hyperparameters and the seed alone.

    With a ``checkpoint`` the fit can be interrupted at any moment, also by ``kill -9``, and
    resumed: it ends with the same bits, on the same machine, as if it had never been interrupted.

    Raises ValueError when ids repeat, when data and ids differ in number, or when the checkpoint
    to resume is of another fit; FileNotFoundError when there is none.
    """
    began = time.perf_counter()
    ids = tuple(ids)
    _check_ids(ids)
    members = _lanes.members_of(data, ids)
    hyper = _per_member(hyper, members)
    mesh = _lanes.lane_mesh(lanes)
    room = max(1, memory // max(1, _lanes.total_bytes(data) // members))
    layout = _lanes.Layout.of(members, mesh.size, chunk, max(room, mesh.size * chunk))
    schedule = Schedule(task, data, hyper, member_keys(seed, ids), mesh, layout, block)
    fit = fingerprint(ids, seed, hyper, data) if checkpoint else ""
    if checkpoint and checkpoint.resume:
        schedule.restore(checkpoint.path, fit)

    def report():
        if on_progress:
            on_progress(_progress(schedule, time.perf_counter() - began))

    run_to_the_end(schedule, checkpoint, fit, report)
    state = schedule.state
    return Fitted(
        ids=ids,
        params=state.best_params,
        status=state.status,
        epochs=state.epoch,
        best_epoch=state.best_epoch,
        best_loss=state.best_loss,
        losses=schedule.history.losses(),
        seconds=time.perf_counter() - began,
    )


def _progress(schedule: Schedule, seconds: float) -> Progress:
    state = schedule.state
    ended = state.status != Status.TRAINING
    return Progress(
        members=len(state.status),
        stopped=schedule.stopped,
        epochs_done=int(state.epoch.sum()),
        epochs_at_most=int(np.where(ended, state.epoch, schedule.hyper["epochs"]).sum()),
        validation_loss=schedule.history.latest,
        seconds=seconds,
    )


def _check_ids(ids: Sequence[str]) -> None:
    if not ids:
        raise ValueError("no members: ids is empty")
    if len(set(ids)) < len(ids):
        twice = sorted({name for name in ids if ids.count(name) > 1})
        raise ValueError(f"ids must be unique; more than once: {', '.join(twice[:5])}")


def _per_member(hyper: Mapping[str, Any], members: int) -> Hyper:
    def spread(name, value):
        value = np.asarray(value)
        value = value.astype(np.float32 if value.dtype.kind == "f" else np.int32)
        if value.shape not in ((), (members,)):
            raise ValueError(
                f"hyper[{name!r}]: expected a scalar or shape ({members},); got {value.shape}"
            )
        return np.broadcast_to(value, (members,))

    return {name: spread(name, value) for name, value in hyper.items()}
