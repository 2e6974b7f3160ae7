"""A fit in shards, and who does the work: this process, or the workers of an executor."""

import dataclasses
import math
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeVar

import jax
import numpy as np

from forecaster.swarm.arrays import (
    Held,
    Rows,
    Shared,
    Streamed,
    fill_members,
    is_reference,
    split_shared,
    take_members,
)
from forecaster.swarm.checkpoints import History, Trained
from forecaster.swarm.devices.lanes import lane_mesh
from forecaster.swarm.execution.memory import chunk_size
from forecaster.swarm.task import Data, Limits, Task, Tree
from forecaster.swarm.training.loop import Losses, State, Status

_Common = TypeVar("_Common")
_Part = TypeVar("_Part")
_Result = TypeVar("_Result")


class Failed(NamedTuple):
    """Stands for the result of a part that no worker could do; ``reason``: of the last failure."""

    reason: str


class Executor(Protocol):
    """Does the parts of some work, each on a worker that is free.

    - ``is_local``: whether parts are done in this process, one after another
    - ``members_per_shard``: the size of a fit's shards; None: all members where ``is_local``,
      elsewhere at most 32 chunks for each device of a worker
    """

    @property
    def is_local(self) -> bool: ...  # noqa: D102

    @property
    def members_per_shard(self) -> int | None: ...  # noqa: D102

    def lanes(self) -> Sequence[int]:
        """Return the number of devices of each worker that is there now."""
        ...

    def run(
        self,
        function: Callable[[_Common, _Part], _Result],
        common: _Common,
        parts: Iterable[_Part],
        *,
        per_core: bool = False,
    ) -> Generator[tuple[_Part, _Result | Failed], None, None]:
        """Yield each part with ``function(common, part)``, in the order in which they are done.

        - ``function``, ``common``, ``parts``: can be pickled
        - ``common``: is sent once, however many parts there are
        - ``parts``: the next is taken when a worker is free, so that fast workers do more
        - ``per_core``: each part is work of one thread, so that a machine does one on each core

        A part whose worker is lost goes to another worker. After some attempts it is
        :class:`Failed`, and the rest goes on. Exceptions of ``function`` are raised here.
        """
        ...


@dataclasses.dataclass(frozen=True)
class Local:
    """Does all work in this process; fits train on its lanes.

    ``members_per_shard``: the size of a fit's shards; None: all members in one, which is fastest.
    """

    members_per_shard: int | None = None

    @property
    def is_local(self) -> bool:
        """True: parts are done in this process."""
        return True

    def lanes(self) -> Sequence[int]:
        """Return the number of devices of this process."""
        return [lane_mesh().size]

    def run(
        self,
        function: Callable[[_Common, _Part], _Result],
        common: _Common,
        parts: Iterable[_Part],
        *,
        per_core: bool = False,
    ) -> Generator[tuple[_Part, _Result | Failed], None, None]:
        """Do the parts one after another; see :class:`Executor`."""
        del per_core
        for part in parts:
            yield part, function(common, part)


_CHUNKS = 32  # the most chunks of each lane in a shard
_LEAST = 3  # shards that each worker gets


class Settings(NamedTuple):
    """How members train, and from where; all are arrays (member, ...)."""

    hyperparams: dict[str, np.ndarray]
    limits: Limits
    origin: State
    losses: Losses  # of the training so far


class Job(NamedTuple):
    """What all shards of a fit share.

    - ``chunk`` ... ``data_parallel``: what a worker uses of its machine, see
      :func:`forecaster.swarm.fit`
    - ``shared``: arrays, at the number of their reference
    """

    task: Task
    chunk: int | None
    block: int
    lanes: int | None
    memory: int | None
    data_parallel: int
    shared: tuple[Tree, ...] = ()


class Shard(NamedTuple):
    """Some members of a fit, or all."""

    rows: Rows
    data: Data | Streamed
    settings: Settings

    def held(self, job: Job) -> Held:
        """Return the members' data, with the shared arrays in place of the references to them."""

        def put(leaf: Tree) -> Tree:
            return Shared(job.shared[leaf.number], leaf.rows) if is_reference(leaf) else leaf

        whole = jax.tree.map(put, self.data, is_leaf=is_reference) if job.shared else self.data
        return Held(whole, len(self.rows))


def cut(job: Job, whole: Shard, left: Rows, executor: Executor) -> tuple[Job, Iterator[Shard]]:
    """Cut a fit into shards, each when a worker of the executor asks for it, in order.

    ``left``: the members of ``whole``, which is all of them, that are still to train
    """
    fixed = executor.members_per_shard or (len(left) if executor.is_local else None)
    lanes = [1] if fixed else executor.lanes()
    at_once, workers = max(lanes, default=1), max(1, len(lanes))
    if not fixed:
        hyperparams = whole.settings.hyperparams
        at_once *= job.chunk or chunk_size(job.task, whole.held(job), hyperparams)
    streamed = isinstance(whole.data, Streamed)
    by_member, shared = (whole.data, ()) if streamed else split_shared(whole.data)

    def shards(left: Rows) -> Iterator[Shard]:
        while len(left):
            size = fixed or next_size(len(left), _CHUNKS * at_once, workers, at_once)
            rows, left = left[:size], left[size:]
            data = by_member.load(rows) if streamed else take_members(by_member, rows)
            yield Shard(rows, data, take_members(whole.settings, rows))

    return job._replace(shared=shared), shards(left)


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

    - ``ended``: whether each member is done, (member,)
    - ``failed``: members that no worker could train, with the reasons; from earlier fits at first
    """

    def __init__(self, task: Task, settings: Settings, failed: Mapping[str, str]):
        self.failed, self.state = dict(failed), jax.tree.map(np.array, settings.origin)
        self.ended = self.state.status == Status.FAILED
        self.history = History(settings.losses, task.metrics)

    @property
    def epoch(self) -> np.ndarray:
        """The epochs that each member has trained, (member,)."""
        return np.asarray(self.state.epoch)

    def restore(self, found: Iterable[tuple[Rows, Trained]]) -> None:
        """Take over the members that had ended before an interruption."""
        for rows, trained in found:
            new = (trained.state.status != Status.TRAINING) & ~self.ended[rows]
            self.add(rows[new], take_members(trained, new))

    def add(self, rows: Rows, trained: Trained) -> None:
        """Take over members that have ended."""
        fill_members(self.state, rows, trained.state)
        self.history.add(rows, trained.losses, np.zeros(len(rows), int), self.epoch[rows])
        self.ended[rows] = True

    def fail(self, rows: Rows, names: Sequence[str], reason: str) -> None:
        """Set aside members that no worker could train; ``names``: theirs."""
        failed = self.state.status, self.state.best_loss
        fill_members(failed, rows, (np.int32(Status.FAILED), np.float32(np.inf)))
        self.failed |= dict.fromkeys(names, reason)
        self.ended[rows] = True

    def stop(self) -> None:
        """End the members that are left as they begin."""
        status = np.asarray(self.state.status)
        status[~self.ended & (status == Status.TRAINING)] = Status.FINISHED
        self.ended[:] = True
