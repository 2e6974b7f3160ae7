"""Fit a swarm: many members at once, each by itself, each until it has stopped."""

import contextlib
import dataclasses
import functools
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import jax
import numpy as np
from jaxtyping import Float, UInt32

from forecaster.swarm.arrays import Rows, Streamed, check_data
from forecaster.swarm.checkpoints import (
    Checkpoint,
    Fingerprint,
    Trained,
    arithmetic,
    checkpoint_of,
    fingerprint,
    forget,
    read,
    write,
)
from forecaster.swarm.checks import (
    SwarmError,
    broadcast_hyperparams,
    broadcast_limits,
    check_callable,
    check_counts,
    check_ids,
)
from forecaster.swarm.devices.lanes import map_members, use_all_cores
from forecaster.swarm.execution.result import FitResult
from forecaster.swarm.execution.schedule import Schedule, train_shard
from forecaster.swarm.execution.shards import (
    Executor,
    Failed,
    Gathered,
    Job,
    Local,
    Settings,
    Shard,
    cut,
)
from forecaster.swarm.task import ArrayLike, Data, Hyperparams, Task
from forecaster.swarm.training.examples import validated_data
from forecaster.swarm.training.keys import checked_seed, member_keys
from forecaster.swarm.training.loop import Losses, State, Status, init_state


@dataclasses.dataclass(frozen=True)
class Progress:
    """How far a fit is. Losses are those of the members' latest epochs."""

    members: int
    stopped: int
    epochs_done: int  # of all members together
    epochs_at_most: int
    validation_loss: Float[np.ndarray, " member"]  # NaN before a member's first epoch
    seconds: float
    stage: str = ""  # of a search: its rung
    compiling: bool = False  # before the first block of programs that are new to this process
    history: Callable[[], Losses] | None = dataclasses.field(
        default=None, repr=False, compare=False
    )

    @property
    def losses(self) -> Losses:
        """Losses and metrics so far, each (member, epoch)."""
        none = np.zeros((self.members, 0), np.float32)
        return Losses(none, none) if self.history is None else self.history()


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
    data_parallel: int = 1,
    memory: int | None = None,
    previous: FitResult | None = None,
    checkpoint: Checkpoint | str | Path | None = None,
    executor: Executor | None = None,
    on_progress: Callable[[Progress], object] | None = None,
) -> FitResult:
    """Train one member per id, all at the same time and each on its own.

    A member's result depends only on the seed and on its own name, data, hyperparameters and
    limits. If all members have equally many examples, a member has the same bits whether it trains
    alone or beside others. If some are padded, sums are rounded over the padded length, which makes
    differences of about 1e-7 in a step.

    - ``task``: what a member is and how it learns
    - ``data``: a pytree of arrays with a leading member axis, or :class:`Shared` ones, or
      :class:`Streamed`
    - ``ids``: the members' names, all different
    - ``seed``: determines each member's random key, together with its name
    - ``epochs``: the maximum number of epochs of a member, including those of ``previous``; a
      number, or an array (member,)
    - ``patience``: epochs without a better validation loss after which a member stops; a number, an
      array (member,), or None for the same as ``epochs``
    - ``hyperparams``: hyperparameters of optimiser and loss; by name, a scalar or an array
      (member,)
    - ``keys``: raw random keys, in place of those from seed and names
    - ``chunk``: members that one lane trains at once; by default as many as stay in the cache, 8 at
      most on CPUs. Larger ones pay where a member's step is many small operations, such as the
      solution of an ODE. Try 16 and 64, for a few epochs; results differ by rounding
    - ``block``: epochs between two returns to the host. Blocks become longer where they take less
      than a tenth of a second, or less than half a second with neither validation, ``on_progress``
      nor ``checkpoint``
    - ``lanes``: devices to train on; all by default
    - ``data_parallel``: devices that share each batch of a member, with its weights on each; a lane
      is then this many devices. The result is that of one device up to rounding. It pays for a few
      large networks with large batches; see the guide of the engine
    - ``memory``: bytes that the process may take (on a CPU), or all devices (on GPUs). A swarm that
      needs more has only some of its members on the devices at once
    - ``previous``: the training to continue
    - ``checkpoint``: a :class:`Checkpoint`, or its path; makes the fit resumable after an
      interruption at any moment, also by ``kill -9``. On the same machine the resumed fit ends with
      the same bits as one without the interruption
    - ``executor``: where members train; by default on the lanes of this process. Another one takes
      them in shards, and the checkpoint keeps each shard when it is done
    - ``on_progress``: called after every block, or after every shard if an executor trains
      elsewhere; also before the first block if that has to be compiled. If it returns True, all
      members stop where they are, and a checkpoint can be resumed from there

    Members whose workers were lost at every attempt are in the result's ``failed``.

    Raises SwarmError when ids repeat, when data and ids differ in number, when a member of
    :class:`Supervised` data has no validation example with a weight (of streamed data: when they
    are loaded), or when the checkpoint to resume is of another fit;
    SwarmFileNotFoundError when there is none; SwarmWriteError when a checkpoint cannot be written.
    """
    began = time.perf_counter()
    ids = tuple(ids)
    check_ids(ids)
    hyperparams, seed = broadcast_hyperparams(hyperparams, len(ids)), checked_seed(seed)
    limits = broadcast_limits(epochs, patience, len(ids))
    checkpoint = checkpoint_of(checkpoint)
    check_callable(on_progress, "on_progress(progress)")
    check_counts(chunk=chunk, block=block, memory=memory, data_parallel=data_parallel)
    if not isinstance(data, Streamed):
        check_data(data, len(ids))
    if task.validate is not None:
        data = validated_data(ids, data)
    if previous is not None and previous.ids != ids:
        raise SwarmError("previous: of other members; expected the same ids in the same order")
    use_all_cores()  # before anything starts JAX
    if previous is None:
        origin = member_keys(seed, ids) if keys is None else keys
        begun = untrained_members(_init_of(task), ids, origin, hyperparams, lanes)
    else:
        origin, begun = previous.state, previous
    job = Job(task, chunk, block, lanes, memory, data_parallel)
    settings = Settings(hyperparams, limits, begun.state, begun.losses)
    whole = Shard(np.arange(len(ids)), data, settings)
    digest: Fingerprint = {}
    if checkpoint:
        start, kind = (hyperparams, limits, origin), checkpoint.precision
        names = {"loss": task.loss, "optimizer": task.optimizer}
        said = [f"{name}={getattr(of, '__qualname__', 'another')}" for name, of in names.items()]
        digest = fingerprint(ids, seed, *start, data, kind, task.said or "; ".join(said))
    going = _Fit(ids, job, whole, begun.failed, checkpoint, digest, on_progress, began)
    trained, failed = going.train(executor or Local())
    return FitResult(ids, *trained, time.perf_counter() - began, failed, arithmetic())


def untrained_members(
    init: Callable[..., State],
    ids: Sequence[str],
    keys: UInt32[np.ndarray, "member 2"],
    hyperparams: Mapping[str, np.ndarray],
    lanes: int | None,
) -> FitResult:
    """Return new members, which have not trained.

    ``init``: returns one member's initial state from its raw key and hyperparameters
    """
    members = len(ids)
    state = map_members(init, keys, hyperparams, members=members, lanes=lanes, once=True)
    none = np.zeros((members, 0), np.float32)
    return FitResult(tuple(ids), state, Losses(none, none), 0.0)


@functools.lru_cache(maxsize=32)
def _init_of(task: Task) -> Callable[..., State]:
    """Return the initial state of a task's members as a function that is compiled once."""

    def initialise(key: UInt32[jax.Array, "2"], hyperparams: Hyperparams) -> State:
        return init_state(task, key, hyperparams)

    return initialise


@dataclasses.dataclass(frozen=True)
class _Fit:
    """A fit under way: who trains, and where that is reported and saved.

    ``failed``: members that no worker could train in earlier fits, with the reasons
    """

    ids: tuple[str, ...]
    job: Job
    whole: Shard
    failed: Mapping[str, str]
    checkpoint: Checkpoint | None
    digest: Fingerprint
    on_progress: Callable[[Progress], object] | None
    began: float

    def train(self, executor: Executor) -> tuple[Trained, Mapping[str, str]]:
        """Train all members; return them, and the reasons of those that no worker could train."""
        checkpoint = self.checkpoint
        if checkpoint and not checkpoint.resume:
            forget(checkpoint)
        if executor.is_local and executor.members_per_shard is None:
            return self.at_once(), self.failed
        everybody = Gathered(self.job.task, self.whole.settings, self.failed)
        everybody.restore(self.found(everybody.state))
        left = np.flatnonzero(~everybody.ended)
        job, shards = cut(self.job, self.whole, left, executor)
        stopped = self.report(everybody, compiling=True)
        with contextlib.closing(executor.run(train_shard, job, shards)) as ended:
            while not stopped and (part := next(ended, None)):
                shard, trained = part
                if isinstance(trained, Failed):
                    names = [self.ids[int(row)] for row in shard.rows]
                    everybody.fail(shard.rows, names, trained.reason)
                else:
                    everybody.add(shard.rows, trained)
                    if checkpoint:
                        write(checkpoint, self.digest, shard.rows, trained, as_shard=True)
                stopped = self.report(everybody)
        if stopped:
            everybody.stop()
        if missing := int((~everybody.ended).sum()):
            raise SwarmError(f"the executor has left out {missing} members; expected none")
        return Trained(everybody.state, everybody.history.losses), everybody.failed

    def at_once(self) -> Trained:
        """Train block by block until all members have stopped, from the checkpoint if it resumes.

        The state is saved at the end, too, so that what follows can fail without losing it.
        """
        checkpoint, saved = self.checkpoint, time.monotonic()
        watched = self.on_progress is not None or checkpoint is not None
        schedule = Schedule(self.job, self.whole, watched=watched)
        schedule.restore(self.found(schedule.state))
        stopped = schedule.compiling and self.report(schedule, compiling=True)
        try:
            while not stopped and not schedule.done():
                schedule.advance()
                stopped = self.report(schedule)
                if checkpoint and time.monotonic() - saved >= checkpoint.every:
                    schedule.save(checkpoint, self.digest)
                    saved = time.monotonic()
        except KeyboardInterrupt:
            if checkpoint:
                schedule.save(checkpoint, self.digest)
            raise
        if checkpoint and (schedule.started.any() or not stopped):
            schedule.save(checkpoint, self.digest)
        if stopped:
            schedule.stop()
        return schedule.trained

    def found(self, like: State) -> list[tuple[Rows, Trained]]:
        """Return the members of an interrupted fit; ``like``: states of the same model."""
        if self.checkpoint is None or not self.checkpoint.resume:
            return []
        return read(self.checkpoint.path, self.digest, like)

    def report(self, fit: Schedule | Gathered, *, compiling: bool = False) -> bool:
        """Call ``on_progress``; return whether it asks to stop."""
        if not self.on_progress:
            return False
        ended, epoch, history = fit.ended, fit.epoch, fit.history
        most = np.where(ended, epoch, self.whole.settings.limits.epochs)
        progress = Progress(
            members=len(ended),
            stopped=int(ended.sum()),
            epochs_done=int(epoch.sum()),
            epochs_at_most=int(most.sum()),
            validation_loss=history.latest(epoch),
            seconds=time.perf_counter() - self.began,
            compiling=compiling,
            history=lambda: history.losses,
        )
        answer = self.on_progress(progress)
        return type(answer) in (bool, np.bool_) and bool(answer)


def restart_from_best(result: FitResult) -> FitResult:
    """Return members that train on from their best weights, all but the diverged and lost ones."""
    state, out = result.state, (Status.DIVERGED, Status.FAILED)
    status = np.where(np.isin(state.status, out), state.status, Status.TRAINING).astype(np.int32)
    start = state._replace(params=state.best_params, status=status, best_epoch=state.epoch)
    return dataclasses.replace(result, state=start)
