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

from forecaster.swarm.arrays.data import Streamed, check_data
from forecaster.swarm.checkpoints.arrays_file import Trained
from forecaster.swarm.checkpoints.checkpoint import (
    Checkpoint,
    Fingerprint,
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
from forecaster.swarm.execution.executors import Executor, Failed, Local
from forecaster.swarm.execution.result import FitResult
from forecaster.swarm.execution.schedule import Schedule, train_shard
from forecaster.swarm.execution.shards import (
    Gathered,
    Job,
    Resources,
    Settings,
    Shard,
    Work,
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
    settings = Settings(hyperparams, limits, begun.state, begun.losses)
    work = Work(task, data, ids, settings, Resources(chunk, block, lanes, memory, data_parallel))
    digest: Fingerprint = {}
    if checkpoint:
        start, kind = (hyperparams, limits, origin), checkpoint.precision
        names = {"loss": task.loss, "optimizer": task.optimizer}
        said = [f"{name}={getattr(of, '__qualname__', 'another')}" for name, of in names.items()]
        digest = fingerprint(ids, seed, *start, data, kind, task.said or "; ".join(said))
    watch = _Watch(work, checkpoint, digest, on_progress, began)
    trained, failed = _train(work, begun.failed, executor or Local(), watch)
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


def _train(
    work: Work, failed: Mapping[str, str], executor: Executor, watch: "_Watch"
) -> tuple[Trained, Mapping[str, str]]:
    """Train all members; return them, and the reasons of those that no worker could train.

    ``failed``: those of earlier fits, which do not train
    """
    checkpoint = watch.checkpoint
    if checkpoint and not checkpoint.resume:
        forget(checkpoint)
    if executor.is_local and executor.members_per_shard is None and not failed:
        shard = Shard(np.arange(len(work.ids)), work.data, work.settings)
        job = Job(work.task, work.resources, ())
        return watch.train(Schedule(job, shard, watched=watch.is_needed)), {}
    gathered = Gathered(work, failed)
    if checkpoint and checkpoint.resume:
        gathered.restore(read(checkpoint.path, watch.digest, gathered.state))
    job, shards = cut(work, gathered.left, executor)
    stopped = watch.report(gathered, compiling=True)
    with contextlib.closing(executor.run(train_shard, job, shards)) as ended:
        while not stopped and (part := next(ended, None)):
            shard, trained = part
            if isinstance(trained, Failed):
                gathered.fail(shard.rows, trained.reason)
            else:
                gathered.add(shard.rows, trained)
                if checkpoint:
                    write(checkpoint, watch.digest, shard.rows, trained, as_shard=True)
            stopped = watch.report(gathered)
    if stopped:
        gathered.stop()
    if len(gathered.left):
        raise SwarmError(f"the executor has left out {len(gathered.left)} members; expected none")
    return Trained(gathered.state, gathered.losses), gathered.failed


class _Watch:
    """Reports how far a fit is, and saves the state of one that trains in this process as one."""

    def __init__(
        self,
        work: Work,
        checkpoint: Checkpoint | None,
        digest: Fingerprint,
        on_progress: Callable[[Progress], object] | None,
        began: float,
    ):
        self.checkpoint, self.digest = checkpoint, digest
        self._work, self._on_progress, self._began = work, on_progress, began
        self._before = np.asarray(work.settings.origin.epoch)

    @property
    def is_needed(self) -> bool:
        """Whether anything is reported or saved."""
        return self._on_progress is not None or self.checkpoint is not None

    def train(self, schedule: Schedule) -> Trained:
        """Train block by block until all members have stopped, from the checkpoint if it resumes.

        The state is saved at the end, too, so that what follows can fail without losing it.
        """
        checkpoint, saved = self.checkpoint, time.monotonic()
        if checkpoint and checkpoint.resume:
            schedule.restore(read(checkpoint.path, self.digest, schedule.state))
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

    def report(self, fit: Schedule | Gathered, *, compiling: bool = False) -> bool:
        """Call ``on_progress``; return whether it asks to stop."""
        if not self._on_progress:
            return False
        ended, epoch = fit.ended, fit.epoch
        progress = Progress(
            members=len(ended),
            stopped=int(ended.sum()),
            epochs_done=int(np.maximum(epoch, self._before).sum()),
            epochs_at_most=int(np.where(ended, epoch, self._work.settings.limits.epochs).sum()),
            validation_loss=fit.latest,
            seconds=time.perf_counter() - self._began,
            compiling=compiling,
            history=lambda: fit.losses,
        )
        answer = self._on_progress(progress)
        return type(answer) in (bool, np.bool_) and bool(answer)


def restart_from_best(result: FitResult) -> FitResult:
    """Return members that train on from their best weights, all but the diverged ones."""
    state = result.state
    diverged = state.status == Status.DIVERGED
    status = np.where(diverged, Status.DIVERGED, Status.TRAINING).astype(np.int32)
    start = state._replace(params=state.best_params, status=status, best_epoch=state.epoch)
    return dataclasses.replace(result, state=start)
