"""A fit in shards: cut into parts for the workers of an executor, and put together again."""

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import jax
import numpy as np

from forecaster.swarm.arrays.data import (
    Held,
    Rows,
    Shared,
    Streamed,
    is_reference,
    split_shared,
)
from forecaster.swarm.arrays.members import fill_members, take_members
from forecaster.swarm.checkpoints.arrays_file import Trained
from forecaster.swarm.checkpoints.checkpoint import Found
from forecaster.swarm.checkpoints.history import History
from forecaster.swarm.execution.executors import Executor
from forecaster.swarm.execution.memory import chunk_size
from forecaster.swarm.task import Data, Limits, Task, Tree
from forecaster.swarm.training.loop import Losses, State, Status

_CHUNKS = 32  # the most chunks of each lane in a shard
_LEAST = 3  # shards that each worker gets


class Settings(NamedTuple):
    """How members train, and from where; all are arrays (member, ...)."""

    hyperparams: dict[str, np.ndarray]
    limits: Limits
    origin: State
    losses: Losses  # of the training so far


class Resources(NamedTuple):
    """What a worker uses of its machine; see :func:`forecaster.swarm.fit`."""

    chunk: int | None
    block: int
    lanes: int | None
    memory: int | None
    data_parallel: int = 1


@dataclasses.dataclass(frozen=True)
class Work:
    """A whole fit: task, data and settings of all members."""

    task: Task
    data: Data | Streamed
    ids: tuple[str, ...]
    settings: Settings
    resources: Resources


class Job(NamedTuple):
    """What all shards of a fit share; ``shared``: arrays, at the number of their reference."""

    task: Task
    resources: Resources
    shared: tuple[Tree, ...]


class Shard(NamedTuple):
    """Some members of a fit."""

    rows: Rows
    data: Data | Streamed
    settings: Settings

    def held(self, job: Job) -> Held:
        """Return the members' data, with the shared arrays in place of the references to them."""

        def put(leaf: Tree) -> Tree:
            return Shared(job.shared[leaf.number], leaf.rows) if is_reference(leaf) else leaf

        whole = jax.tree.map(put, self.data, is_leaf=is_reference) if job.shared else self.data
        return Held(whole, len(self.rows))


def cut(work: Work, left: Rows, executor: Executor) -> tuple[Job, Iterator[Shard]]:
    """Cut a fit into shards, each when a worker of the executor asks for it, in order.

    ``left``: the members that are still to train
    """
    fixed = executor.members_per_shard or (len(left) if executor.is_local else None)
    lanes = [1] if fixed else executor.lanes()
    at_once, workers = max(lanes, default=1), max(1, len(lanes))
    if not fixed:
        held, hyperparams = Held(work.data, len(work.ids)), work.settings.hyperparams
        at_once *= work.resources.chunk or chunk_size(work.task, held, hyperparams)
    streamed = isinstance(work.data, Streamed)
    by_member, shared = (work.data, ()) if streamed else split_shared(work.data)

    def shards(left: Rows) -> Iterator[Shard]:
        while len(left):
            size = fixed or next_size(len(left), _CHUNKS * at_once, workers, at_once)
            rows, left = left[:size], left[size:]
            data = by_member.load(rows) if streamed else take_members(by_member, rows)
            yield Shard(rows, data, take_members(work.settings, rows))

    return Job(work.task, work.resources, shared), shards(left)


def next_size(left: int, usual: int, workers: int, at_once: int) -> int:
    """Return the size of the next shard: smaller towards the end, so that all workers end together.

    - ``left``: members that are still to train
    - ``usual``: members of a shard before the end comes near
    - ``workers``: the number of workers that share the members
    - ``at_once``: members that a worker trains at once
    """
    fair = math.ceil(left / (_LEAST * workers))
    return min(usual, math.ceil(fair / at_once) * at_once)


class Gathered:
    """All members of a fit, with the results of the shards that are done.

    Members that are still to train have the state that they begin from.

    - ``work``: the fit
    - ``failed``: members that no worker could train in an earlier fit, with the reasons
    """

    def __init__(self, work: Work, failed: Mapping[str, str]):
        self._work = work
        self.failed = {name: why for name, why in failed.items() if name in set(work.ids)}
        self.ended = np.array([name in self.failed for name in work.ids])
        self.state = origin = work.settings.origin
        epochs = np.asarray(origin.epoch)
        self._history = History(work.settings.losses, epochs, work.task.metrics)
        self._ours = False  # whether the arrays of the state may be written to

    @property
    def left(self) -> Rows:
        """The positions of the members that are still to train."""
        return np.flatnonzero(~self.ended)

    @property
    def epoch(self) -> np.ndarray:
        """The epochs that each member has trained, (member,)."""
        return np.asarray(self.state.epoch)

    @property
    def losses(self) -> Losses:
        """The losses of all members, each (member, epoch)."""
        return self._history.losses

    @property
    def latest(self) -> np.ndarray:
        """Each member's latest validation loss, (member,); NaN before the first."""
        return self._history.latest.copy()

    def restore(self, found: Found) -> None:
        """Take over the members that had ended before an interruption."""
        ended = np.asarray(found.state.status) != Status.TRAINING
        rows = np.flatnonzero(found.started & ended & ~self.ended)
        self.add(rows, Trained(*take_members((found.state, found.losses), rows)))

    def add(self, rows: Rows, trained: Trained) -> None:
        """Take over members that have ended."""
        if not self._ours:
            self.state, self._ours = jax.tree.map(np.array, self.state), True
        fill_members(self.state, rows, trained.state)
        epochs = np.asarray(trained.state.epoch)
        self._history.add(rows, trained.losses, np.zeros_like(epochs), epochs)
        self.ended[rows] = True

    def fail(self, rows: Rows, reason: str) -> None:
        """Set aside members that no worker could train."""
        status, loss = (np.array(leaf) for leaf in (self.state.status, self.state.best_loss))
        status[rows], loss[rows] = Status.FAILED, np.inf
        self.state = self.state._replace(status=status, best_loss=loss)
        self.failed |= {self._work.ids[row]: reason for row in rows.tolist()}
        self.ended[rows] = True

    def stop(self) -> None:
        """End the members that are left as they begin."""
        status = np.array(self.state.status)
        status[self.left] = np.where(
            status[self.left] == Status.TRAINING, Status.FINISHED, status[self.left]
        )
        self.state, self.ended = self.state._replace(status=status), np.ones_like(self.ended)
