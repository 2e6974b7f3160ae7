"""A fit cut into shards: what they have in common, what each is sent, how each is trained."""

import dataclasses
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import jax
import numpy as np

from forecaster.swarm.arrays.data import (
    Held,
    Reference,
    Rows,
    Shared,
    Streamed,
    is_reference,
    split_shared,
    total_bytes,
)
from forecaster.swarm.arrays.members import fill_members, take_members
from forecaster.swarm.checkpoints import checkpoint as _checkpoint
from forecaster.swarm.checkpoints.checkpoint import arithmetic
from forecaster.swarm.checkpoints.history import History, put_together
from forecaster.swarm.devices.lanes import Layout, lane_mesh
from forecaster.swarm.execution.executors import Executor
from forecaster.swarm.execution.memory import chunk_size, members_at_once
from forecaster.swarm.execution.schedule import Origin, Schedule, blank_state, member_state
from forecaster.swarm.task import Data, Limits, Task, Tree
from forecaster.swarm.training.training import Losses, State, Status

_CHUNKS = 32  # of a lane in a shard, until it is known how long they take
_SHORTEST, _USUAL, _LONGEST = 3.0, 10.0, 60.0  # seconds of a shard
_ROUNDS = 3  # shards that a worker does at the least
_SMALL = 2**20  # bytes of shared arrays that go out whole rather than by row


@dataclasses.dataclass(frozen=True)
class Work:
    """A fit: its task, its members and what they learn from, and on which part of a machine.

    ``hyperparams``, ``limits``, ``origin`` and ``losses`` (of the training that is continued, if
    any) are arrays (member, ...); the rest is as of :func:`forecaster.swarm.fit`.
    """

    task: Task
    data: Data | Streamed
    ids: tuple[str, ...]
    hyperparams: dict[str, np.ndarray]
    limits: Limits
    origin: Origin
    losses: Losses | None
    machine: "Worker"


class Worker(NamedTuple):
    """How a worker trains; see :func:`forecaster.swarm.fit`."""

    chunk: int | None
    block: int
    lanes: int | None
    memory: int | None
    data_parallel: int = 1


class Job(NamedTuple):
    """What all shards of a fit have in common; ``shared``: arrays, by the number of a reference."""

    task: Task
    machine: Worker
    shared: dict[int, Tree]


class Shard(NamedTuple):
    """Some members of a fit; ``shared``: what of the shared arrays only they look at."""

    rows: Rows
    data: Data | Streamed
    shared: dict[int, Tree]
    hyperparams: dict[str, np.ndarray]
    limits: Limits
    origin: Origin
    losses: Losses | None


class ShardResult(NamedTuple):
    """What became of a shard's members, and which code computed it, after so many seconds.

    ``compiled``: whether programs had to be compiled on the way.
    """

    state: State
    losses: Losses
    seconds: float
    compiled: bool
    arithmetic: dict[str, str]


class Watch(Protocol):
    """Follows the training of a shard, in the process that trains it."""

    @property
    def looks(self) -> bool:
        """Whether what it does between two blocks is to be seen or kept."""
        ...

    def begin(self, schedule: Schedule) -> None:
        """Before the first block."""
        ...

    def after_block(self, schedule: Schedule) -> None:
        """After every block."""
        ...

    def leave(self, schedule: Schedule) -> None:
        """At the end, and when it is interrupted."""
        ...


def train_shard(job: Job, shard: Shard, watch: Watch | None = None) -> ShardResult:
    """Train the members of a shard on the devices of this process."""
    began = time.perf_counter()
    machine, members = job.machine, len(shard.rows)
    held = Held(_whole_again(shard.data, job.shared | shard.shared), members)
    mesh = lane_mesh(machine.lanes, machine.data_parallel)
    lanes = mesh.shape["lane"]
    chunk = machine.chunk or chunk_size(job.task, held, shard.hyperparams)
    limit = members_at_once(machine.memory, job.task, held, shard.hyperparams, mesh.size)
    limit //= machine.data_parallel  # whose devices have the same members
    layout = Layout.of(members, lanes, chunk, max(limit, lanes * chunk))
    schedule = Schedule(
        job.task, held, shard.hyperparams, shard.limits, shard.origin, mesh, layout, machine.block,
        watched=watch is not None and watch.looks,
    )  # fmt: skip
    if shard.losses is not None:
        schedule.continue_losses(shard.losses)
    compiled = schedule.compiling
    run_to_the_end(schedule, watch)
    seconds = time.perf_counter() - began
    return ShardResult(schedule.state, schedule.history.losses, seconds, compiled, arithmetic())


def run_to_the_end(schedule: Schedule, watch: Watch | None = None) -> None:
    """Advance until all members have ended."""
    try:
        if watch:
            watch.begin(schedule)
        while not schedule.done():
            schedule.advance()
            if watch:
                watch.after_block(schedule)
        if watch:
            watch.leave(schedule)
    except KeyboardInterrupt:
        if watch:
            watch.leave(schedule)
        raise


class Cutter:
    """Cuts a fit into shards, the next when it is asked for.

    - ``work``, ``left``: the fit, and its members that are still to train
    - ``executor``: whose workers ask
    """

    def __init__(self, work: Work, left: Rows, executor: Executor):
        self._work, self._left = work, left
        in_one = executor.is_local and executor.members_per_shard is None
        self.whole = in_one and len(left) == len(work.ids)
        self._fixed = executor.members_per_shard or (len(left) if executor.is_local else None)
        lanes = [1] if self._fixed else executor.lanes()
        self._at_once, self._workers = max(lanes, default=1), max(1, len(lanes))
        if not self._fixed:
            held = Held(work.data, len(work.ids))
            chunk = work.machine.chunk or chunk_size(work.task, held, work.hyperparams)
            self._at_once *= chunk
        self._members = self._fixed or _CHUNKS * self._at_once
        self._by_member: Data = None
        shared: Sequence[Tree] = ()
        if not self.whole and not isinstance(work.data, Streamed):
            self._by_member, shared = split_shared(work.data)
        self._cut = self._of_one_shard(dict(enumerate(shared)))
        self._widths = dict.fromkeys(self._cut, 0)
        common = {n: values for n, values in enumerate(shared) if n not in self._cut}
        self.job = Job(work.task, work.machine, common)

    def shards(self) -> Iterator[Shard]:
        """All members that are left, in order."""
        while len(self._left):
            members = self._fixed or self._size()
            rows, self._left = self._left[:members], self._left[members:]
            yield self._shard(rows)

    def measured(self, members: int, seconds: float) -> None:
        """Have shards take neither a moment nor very long, knowing that one took so many seconds.

        Sizes change by powers of two, and seldom: with a new one workers may have to compile.
        """
        usual = seconds * self._members / max(1, members)
        if not _SHORTEST <= usual <= _LONGEST:
            factor = 2.0 ** round(math.log2(_USUAL / max(usual, 1e-3)))
            self._members = max(self._at_once, int(self._members * min(factor, 16.0)))

    def _size(self) -> int:
        return next_size(len(self._left), self._members, self._workers, self._at_once)

    def _shard(self, rows: Rows) -> Shard:
        work = self._work
        if self.whole:
            settings = work.hyperparams, work.limits, work.origin, work.losses
            return Shard(rows, work.data, {}, *settings)
        settings = take_members((work.hyperparams, work.limits, work.origin, work.losses), rows)
        if isinstance(work.data, Streamed):
            return Shard(rows, work.data.load(rows), {}, *settings)
        data, shared = take_members(self._by_member, rows), dict[int, Tree]()

        def cut(leaf: Tree) -> Tree:
            if not (is_reference(leaf) and leaf.number in self._cut):
                return leaf
            used, back = np.unique(leaf.rows, return_inverse=True)
            # Shards of one size have as many rows of it, so that they are one program.
            width = self._widths[leaf.number] = max(self._widths[leaf.number], _rounded(len(used)))
            padded = np.concatenate([used, np.full(width - len(used), used[0])])
            shared[leaf.number] = take_members(self._cut[leaf.number], padded)
            return Reference(leaf.number, back.astype(leaf.rows.dtype))

        return Shard(rows, jax.tree.map(cut, data, is_leaf=is_reference), shared, *settings)

    def _of_one_shard(self, shared: Mapping[int, Tree]) -> dict[int, Tree]:
        """Shared arrays that a shard looks at few rows of, so that it is sent only these."""
        few: dict[int, Tree] = {}
        for leaf in jax.tree.leaves(self._by_member, is_leaf=is_reference):
            if is_reference(leaf) and leaf.rows is not None:
                values, rows = shared[leaf.number], np.asarray(leaf.rows)[self._left]
                here, of_all = (
                    len(np.unique(rows[: self._fixed or self._size()])),
                    len(np.unique(rows)),
                )
                if total_bytes(values) > _SMALL and 2 * here <= of_all:
                    few[leaf.number] = values
        return few


def next_size(left: int, usual: int, workers: int, at_once: int) -> int:
    """Members of the next shard: fewer towards the end, so that all end at about the same time.

    - ``left``: members that are still to train
    - ``usual``: of a shard in the midst of the work
    - ``workers``: that share it, and ``at_once`` members that one trains at the same time
    """
    fair = math.ceil(left / (_ROUNDS * workers))
    return min(usual, math.ceil(fair / at_once) * at_once)


def _rounded(count: int) -> int:
    """Up to a multiple of an eighth."""
    step = max(1, 2 ** (count.bit_length() - 4))
    return math.ceil(count / step) * step


def _whole_again(data: Data | Streamed, shared: Mapping[int, Tree]) -> Data | Streamed:
    """Data of members with the shared arrays that they refer to."""
    if not shared:
        return data

    def put(leaf: Tree) -> Tree:
        return Shared(shared[leaf.number], leaf.rows) if is_reference(leaf) else leaf

    return jax.tree.map(put, data, is_leaf=is_reference)


class Gathered:
    """Members that have ended, and those to come, which have the state of their origin or none.

    ``ended`` is (member,): which have ended; ``failed``: the reasons of those that no worker could
    train, by name; ``computed``: which code computed.
    """

    def __init__(self, work: Work, failed: Mapping[str, str]):
        self._work = work
        self.failed = {name: why for name, why in failed.items() if name in set(work.ids)}
        self.ended = np.isin(work.ids, list(self.failed)) if failed else self._nobody()
        self._state: State | None = None
        none = np.full((len(work.ids), 0), np.nan, np.float32)
        metrics = dict.fromkeys(work.task.metrics, none)
        self._first = work.losses or Losses(none, none, metrics)
        self._parts: list[tuple[Rows, Losses]] = []
        # (member,); the validation loss, NaN before there is any.
        self.latest = np.full(len(work.ids), np.nan)
        self.computed: dict[str, str] = {}

    def _nobody(self) -> np.ndarray:
        return np.zeros(len(self._work.ids), bool)

    @property
    def left(self) -> Rows:
        """Positions of the members that are still to train."""
        return np.flatnonzero(~self.ended)

    @property
    def state(self) -> State:
        """Of all members; numpy arrays that can be written to."""
        if self._state is None:
            work, origin = self._work, self._work.origin
            if isinstance(origin, State):
                self._state = jax.tree.map(np.array, origin)
            else:
                held = Held(work.data, len(work.ids))
                member = member_state(work.task, held, origin, work.hyperparams, work.limits)
                self._state = blank_state(member, held.members)
            assert self._state is not None
        return self._state

    @property
    def losses(self) -> Losses:
        """Of all members, each (member, epoch)."""
        return put_together(self._first, self._parts) if self._parts else self._first

    def restore(self, path: Path, digest: str) -> None:
        """Take over the members that had ended before an interruption."""
        metrics = sorted({*self._work.task.metrics, *self._first.metrics})
        saved, self.computed = _checkpoint.read(path, digest, self.state, metrics=metrics)
        ended = np.asarray(saved.state.status) != Status.TRAINING
        rows = np.flatnonzero(saved.started & ended & ~self.ended)
        self._take(rows, *take_members((saved.state, saved.losses), rows))

    def _take(self, rows: Rows, state: State, losses: Losses) -> None:
        if len(rows) == len(self.ended):
            self._state, self._first, self._parts = state, losses, []
        elif len(rows):
            fill_members(self.state, rows, state)
            # Copies: an executor's arrays may lie in memory that it shares, states and all.
            self._parts.append((rows, jax.tree.map(np.array, losses)))
        self.latest[rows] = History.of(losses, np.asarray(state.epoch)).latest
        self.ended[rows] = True

    def add(self, shard: Shard, trained: ShardResult) -> None:
        """Take over a shard that has ended."""
        _checkpoint.check_arithmetic("shards before", self.computed, trained.arithmetic)
        self.computed = trained.arithmetic
        self._take(shard.rows, trained.state, trained.losses)

    def fail(self, shard: Shard, reason: str) -> None:
        """Set aside the members of a shard that no worker could train."""
        status, loss = (np.array(leaf) for leaf in (self.state.status, self.state.best_loss))
        status[shard.rows], loss[shard.rows] = Status.FAILED, np.inf
        self._state = self.state._replace(status=status, best_loss=loss)
        self.failed |= {self._work.ids[row]: reason for row in shard.rows.tolist()}
        self.ended[shard.rows] = True

    @property
    def epoch(self) -> np.ndarray:
        """How many epochs each member has trained, (member,)."""
        return np.asarray(self.state.epoch)
