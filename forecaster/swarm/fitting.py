"""Fit a swarm: many members at once, each by itself, each until it has stopped."""

import dataclasses
import functools
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from jaxtyping import Float, UInt32

from forecaster.swarm.checkpoint import Checkpoint, fingerprint
from forecaster.swarm.checks import (
    SwarmError,
    broadcast_hyperparams,
    broadcast_limits,
    check_counts,
    check_ids,
)
from forecaster.swarm.data import Held, Streamed, check_data
from forecaster.swarm.history import History
from forecaster.swarm.keys import member_keys
from forecaster.swarm.lanes import Layout, lane_mesh
from forecaster.swarm.memory import chunk_size, members_at_once
from forecaster.swarm.result import FitResult
from forecaster.swarm.schedule import Schedule
from forecaster.swarm.task import ArrayLike, Data, Task
from forecaster.swarm.training import Losses, State, Status


@dataclasses.dataclass(frozen=True)
class Progress:
    """How far a fit is. Losses are those of the members' latest epochs."""

    members: int
    stopped: int
    epochs_done: int  # over all members
    epochs_at_most: int
    validation_loss: Float[np.ndarray, " member"]  # NaN before a member's first epoch
    seconds: float
    stage: str = ""  # of a search: which of its rungs
    compiling: bool = False  # before the first block of programs that are new to this process
    history: History | None = dataclasses.field(default=None, repr=False, compare=False)

    @property
    def losses(self) -> Losses:
        """Losses and metrics so far, each (member, epoch)."""
        none = np.zeros((self.members, 0), np.float32)
        return Losses(none, none) if self.history is None else self.history.losses


def fit(
    task: Task,
    data: Data | Streamed,
    ids: Sequence[str],
    *,
    seed: int,
    epochs: ArrayLike,
    patience: ArrayLike | None = None,
    hyperparams: Mapping[str, ArrayLike],
    keys: UInt32[np.ndarray, "member 2"] | None = None,
    chunk: int | None = None,
    block: int = 5,
    lanes: int | None = None,
    memory: int | None = None,
    previous: FitResult | None = None,
    checkpoint: Checkpoint | None = None,
    on_progress: Callable[[Progress], object] | None = None,
) -> FitResult:
    """Train one member per id, all at the same time and each on its own.

    A member's result depends on its name, data, hyperparameters and limits and on the seed alone.

    - ``task``: what a member is and how it learns
    - ``data``: a pytree of arrays with a leading member axis, or :class:`Shared` ones, or
      :class:`Streamed`
    - ``ids``: the members' names, each once
    - ``seed``: with a member's name it decides its random key
    - ``epochs``: how long a member trains at the most, those of ``previous`` included; a number, or
      an array (member,)
    - ``patience``: epochs without a better validation loss after which a member stops; a number, an
      array (member,), or None for as many as ``epochs``
    - ``hyperparams``: for the optimiser and the loss; by name, a scalar or an array (member,)
    - ``keys``: raw random keys, in place of those that follow from seed and names
    - ``chunk``: members that one lane trains at once; by default what keeps a chunk in the cache
    - ``block``: epochs between two looks from the host; more where they are over in less than a
      tenth of a second
    - ``lanes``: devices to train on; all by default
    - ``memory``: bytes that the process may take (on a CPU), or all devices (on GPUs); a swarm that
      needs more goes through in turns
    - ``previous``: continue this training
    - ``checkpoint``: makes the fit resumable after an interruption at any moment, also by
      ``kill -9``: it ends with the same bits, on the same machine, as if it had never happened
    - ``on_progress``: called after every block, and before the first where it is compiled; where it
      returns True, all members end where they are

    Raises SwarmError when ids repeat, when data and ids differ in number, or when the checkpoint
    to resume is of another fit or computed by another kernel; FileNotFoundError when there is none;
    SwarmWriteError when a checkpoint cannot be written.
    """
    began = time.perf_counter()
    ids = tuple(ids)
    check_ids(ids)
    settings = broadcast_hyperparams(hyperparams, len(ids))
    limits = broadcast_limits(epochs, patience, len(ids))
    check_counts(chunk=chunk, block=block, memory=memory)
    if not isinstance(data, Streamed):
        check_data(data, len(ids))
    if previous is not None and previous.ids != ids:
        raise SwarmError("previous: of other members; expected the same ids in the same order")
    keys = member_keys(seed, ids) if keys is None else keys
    origin = keys if previous is None else previous.state

    held = Held(data, len(ids))
    mesh = lane_mesh(lanes)
    chunk = chunk or chunk_size(task, held, settings)
    limit = max(members_at_once(memory, task, held, settings, mesh.size), mesh.size * chunk)
    layout = Layout.of(len(ids), mesh.size, chunk, limit)
    schedule = Schedule(task, held, settings, limits, origin, mesh, layout, block)
    if previous is not None:
        schedule.continue_losses(previous.losses)
    digest = ""
    if checkpoint:
        computed = checkpoint.precision
        digest = fingerprint(ids, seed, settings, limits, origin, data, computed)
    if checkpoint and checkpoint.resume:
        schedule.restore(checkpoint.path, digest)

    def report(*, compiling: bool = False) -> bool:
        if not on_progress:
            return False
        progress = _progress(schedule, time.perf_counter() - began)
        return on_progress(dataclasses.replace(progress, compiling=compiling)) is True

    at_first = functools.partial(report, compiling=True) if schedule.compiling else None
    run_to_the_end(schedule, checkpoint, digest, report, at_first)
    seconds = time.perf_counter() - began
    return FitResult(ids, schedule.state, schedule.history.losses, seconds)


def run_to_the_end(
    schedule: Schedule,
    checkpoint: Checkpoint | None,
    digest: str,
    after_block: Callable[[], object],
    at_first: Callable[[], object] | None = None,
) -> None:
    """Advance until all members have ended, with checkpoints every so often and on Ctrl-C.

    Where ``after_block`` or ``at_first`` returns True, the members end where they are.
    """
    saved = time.monotonic()
    try:
        if at_first and at_first() is True:
            schedule.stop()
        while not schedule.done():
            schedule.advance()
            if after_block() is True:
                schedule.stop()
            if checkpoint and time.monotonic() - saved >= checkpoint.every:
                schedule.save(checkpoint, digest)
                saved = time.monotonic()
        if checkpoint:  # so that what follows training can fail without losing it
            schedule.save(checkpoint, digest)
    except KeyboardInterrupt:
        if checkpoint:
            schedule.save(checkpoint, digest)
        raise


def restart_from_best(state: State) -> State:
    """States that train on from the best weights, all but the diverged."""
    diverged = state.status == Status.DIVERGED
    status = np.where(diverged, Status.DIVERGED, Status.TRAINING).astype(np.int32)
    return state._replace(params=state.best_params, status=status, best_epoch=state.epoch)


def _progress(schedule: Schedule, seconds: float) -> Progress:
    ended = schedule.status != Status.TRAINING
    at_most = np.where(ended & schedule.started, schedule.epoch, schedule.limits.epochs)
    return Progress(
        members=len(ended),
        stopped=schedule.stopped,
        epochs_done=int(schedule.epoch.sum()),
        epochs_at_most=int(at_most.sum()),
        validation_loss=schedule.history.latest,
        seconds=seconds,
        history=schedule.history,
    )
