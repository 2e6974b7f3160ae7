"""The schedule of a fit: blocks of epochs over all lanes until every member has stopped.

Members that train are resident on the devices, where their states stay from block to block. When
enough members have stopped to save a chunk, or others wait for room, the states come to the host
and the rest are packed densely again. So slow members never hold up fast ones, and the time that a
fit takes follows the work that is really done. Members differ in their epoch, never in the program.
However many members there are, one program is compiled here, which trains them. The states of new
members come from another one.
"""

import dataclasses
import functools
import math
import operator
import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import Bool, Int

from forecaster.swarm.arrays import Rows, take_members, total_bytes, with_shared, write_members
from forecaster.swarm.checkpoints import Checkpoint, Fingerprint, History, Trained, write
from forecaster.swarm.devices.lanes import (
    Layout,
    lane_mesh,
    packed_chunks,
    packed_members,
    unpack_chunks,
)
from forecaster.swarm.devices.programs import Program, spread
from forecaster.swarm.execution.memory import chunk_size, members_at_once, shapes_of
from forecaster.swarm.execution.shards import Job, Shard
from forecaster.swarm.task import Data, Member, Task
from forecaster.swarm.training.loop import Losses, State, Status, resumed, train_block
from forecaster.swarm.training.optimizers import Vector

# The chunks that a lane goes through in one call, where their members together have no more bytes
# than _SMALL. Each call costs the host half a millisecond.
_CHUNKS, _SMALL = 16, 2**23


def train_shard(job: Job, shard: Shard) -> Trained:
    """Train the members of a shard on the devices of this process, without a report."""
    schedule = Schedule(job, shard, watched=False)
    while not schedule.done():
        schedule.advance()
    return schedule.trained


class Packed(NamedTuple):
    """Members in the arrays (lane, chunk, member, ...) that one call of a program takes."""

    rows: Rows
    state: State
    member: Member
    begins: Bool[np.ndarray, "lane chunk"]  # where a member's best loss is still to be measured


class Snapshot(NamedTuple):
    """All that is known between two blocks.

    - ``started``: whether each member has started
    - ``state``: on the host; of members that wait, what they begin with; of resident ones only
      epoch, status and best loss are up to date
    """

    started: Bool[np.ndarray, " member"]
    state: State
    resident: tuple[Packed, ...]


class Schedule:
    """A fit under way: the members on the devices, and what the host knows of all.

    - ``job``, ``shard``: the members, and how they train
    - ``watched``: whether anything is reported or saved between two blocks
    """

    def __init__(self, job: Job, shard: Shard, *, watched: bool = True):
        self._task = job.task
        self.hyperparams, self.limits, origin, losses = shard.settings
        self.held, members = shard.held(job), len(shard.rows)
        self.mesh = lane_mesh(job.lanes, job.data_parallel)
        numbers = (self.held.bytes_each + total_bytes(self.held.shared)) // 4
        weights = shapes_of(self._task, self.held, self.hyperparams).weights
        work = weights * numbers * math.ceil(members / self.mesh.shape["lane"])
        validated = self._task.validate is not None
        self.pace = Pace(job.block, work, validated=validated, watched=watched)
        self._train = compiled(self._task, self.mesh, self.pace.longest)
        self.layout = self._layout_for(job, total_bytes(origin) // members)
        self._moving = 0.0  # seconds in which the latest block moved states
        self._shared = jax.device_put(self.held.shared, NamedSharding(self.mesh, P()))
        self.history = History(losses, self._task.metrics)
        # A value that is replaced as a whole, so that an interruption finds the old or the new one.
        self._snapshot = Snapshot(np.zeros(members, bool), origin, ())

    def _layout_for(self, job: Job, state_bytes: int) -> Layout:
        task, held, lanes = self._task, self.held, self.mesh.shape["lane"]
        chunk = job.chunk or chunk_size(task, held, self.hyperparams)
        most = members_at_once(job.memory, task, held, self.hyperparams, self.mesh.size)
        most //= job.data_parallel  # the devices of a lane hold the same members
        layout = Layout.for_members(held.members, lanes, chunk, max(most, lanes * chunk))
        # This does not depend on the numbers of members and lanes: others compile nothing new.
        in_one_call = _CHUNKS * chunk * (held.bytes_each + 2 * state_bytes)
        return dataclasses.replace(layout, chunks=_CHUNKS) if in_one_call <= _SMALL else layout

    @property
    def compiling(self) -> bool:
        """Whether the first block has to be compiled."""
        return not self._train.ready

    @property
    def trained(self) -> Trained:
        """The states and losses of all members."""
        return Trained(self.state, self.history.losses)

    @property
    def state(self) -> State:
        """The states of all members; of those that wait, what they begin with."""
        self._bring_back()
        return self._snapshot.state

    @property
    def epoch(self) -> Int[np.ndarray, " member"]:
        """The epochs that each member has trained."""
        return np.asarray(self._snapshot.state.epoch)

    @property
    def started(self) -> Bool[np.ndarray, " member"]:
        """Whether each member has started."""
        return self._snapshot.started

    @property
    def ended(self) -> Bool[np.ndarray, " member"]:
        """Whether each member has stopped."""
        return self.started & ~self._goes_on

    @property
    def running(self) -> Rows:
        """The members that train now, or whose best loss is still to be measured."""
        return np.flatnonzero(self.started & self._goes_on)

    @property
    def _goes_on(self) -> Bool[np.ndarray, " member"]:
        return self._training | np.isnan(self._snapshot.state.best_loss)

    @property
    def _training(self) -> Bool[np.ndarray, " member"]:
        return np.asarray(self._snapshot.state.status) == Status.TRAINING

    def done(self) -> bool:
        """Return whether all members have stopped."""
        return bool(self.ended.all())

    def advance(self) -> None:
        """Start waiting members where there is room, and train all that run for one block."""
        self._moving = 0.0
        self._repack()
        if len(self.running):
            self._train_block()

    def stop(self) -> None:
        """Stop all members where they are; those that wait end as they begin."""
        state = self.state
        status = np.where(self._training, Status.FINISHED, state.status).astype(np.int32)
        started = np.ones(self.held.members, bool)
        self._snapshot = Snapshot(started, state._replace(status=status), ())

    def save(self, checkpoint: Checkpoint, digest: Fingerprint) -> None:
        """Write a checkpoint. ``digest``: the fit's fingerprint."""
        rows = np.flatnonzero(self.started)
        saved = take_members(self.trained, rows)
        write(checkpoint, digest, rows, saved)

    def restore(self, found: Iterable[tuple[Rows, Trained]]) -> None:
        """Continue from a checkpoint."""
        for rows, (state, losses) in found:
            self.history.add(rows, losses, np.zeros(len(rows), int), np.asarray(state.epoch))
            self.started[rows] = True
            state = write_members(self._snapshot.state, rows, state)
            self._snapshot = self._snapshot._replace(state=state)

    def _repack(self) -> None:
        """Pack the members that run, and start waiting ones, if that saves work."""
        resident, waiting = self._snapshot.resident, np.flatnonzero(~self.started)
        if resident and not self._saves_work(resident, len(waiting)):
            return
        began = time.perf_counter()
        room = max(0, self.layout.capacity - len(self.running))
        self._bring_back()
        self._admit(waiting[:room])
        rows = self.running[: self.layout.capacity]
        packed = map(self._pack, self.layout.by_call(rows)) if len(rows) else ()
        self._snapshot = self._snapshot._replace(resident=tuple(packed))
        self._moving = time.perf_counter() - began

    def _saves_work(self, resident: Sequence[Packed], waiting: int) -> bool:
        """Return whether to pack anew: fewer chunks would do, or others could come in."""
        running, placed = self.running, _rows(resident)
        inside = len(np.intersect1d(placed, running))
        if self.held.streamed:  # packing loads the data again
            return inside <= 0.75 * len(placed)
        chunks_of = self.layout.chunks_of
        if chunks_of(inside) < sum(map(chunks_of, _lengths(resident))):
            return True
        outside = len(running) - inside + waiting
        return outside > 0 and inside < self.layout.capacity

    def _admit(self, rows: Rows) -> None:
        """Let waiting members start."""
        if not len(rows):
            return
        snapshot, validated = self._snapshot, self._task.validate is not None
        new = resumed(*take_members((snapshot.state, self.limits), rows), validated=validated)
        started = self.started.copy()
        started[rows] = True
        self._snapshot = Snapshot(started, write_members(snapshot.state, rows, new), ())

    def _pack(self, rows: Rows) -> Packed:
        """Pack these members as they are; their states go to the devices with the next call."""
        own = self._snapshot.state, self.hyperparams, self.limits
        state, hyperparams, limits = packed_members(own, rows, self.layout)
        member = Member(packed_chunks(self.held.rows, rows, self.layout), hyperparams, limits)
        member = jax.device_put(member, NamedSharding(self.mesh, P("lane")))
        begins = self.layout.by_chunk(np.isnan(self._snapshot.state.best_loss[rows])) > 0
        return Packed(rows, state, member, begins)

    def _with_progress(self, state: State, resident: Sequence[Packed]) -> State:
        """Return states on the host with the progress that is known on the devices."""
        names, rows = ("epoch", "status", "best_loss"), _rows(resident)
        progress = [tuple(getattr(each.state, name) for name in names) for each in resident]
        found = zip(names, unpack_chunks(progress, _lengths(resident)), strict=True)
        return state._replace(
            **{name: write_members(getattr(state, name), rows, new) for name, new in found}
        )

    def _train_block(self) -> None:
        """Train the resident members for a block, and choose the length of the next one."""
        began, resident = time.perf_counter(), self._snapshot.resident
        rows, lengths = _rows(resident), _lengths(resident)
        before = self.epoch[rows]
        epochs = self._next_epochs(rows)
        states, losses = zip(*(self._trained(each, epochs) for each in resident), strict=True)
        after = [
            each._replace(state=state, begins=np.zeros_like(each.begins))
            for each, state in zip(resident, states, strict=True)
        ]
        state = self._with_progress(self._snapshot.state, after)
        used = jax.tree.map(operator.itemgetter((..., slice(epochs))), jax.device_get(losses))
        losses = unpack_chunks(used, lengths)
        self.history.add(rows, losses, before, np.asarray(state.epoch)[rows])
        self._snapshot = Snapshot(self.started, state, tuple(after))
        self.pace.adapt(time.perf_counter() - began + self._moving, self._moving)

    def _next_epochs(self, rows: Rows) -> int:
        """Return the number of epochs of the next block of these members."""
        left = (self.limits.epochs[rows] - self.epoch[rows])[self._training[rows]]
        return int(min(self.pace.epochs, left.max(initial=1)))

    def _trained(self, packed: Packed, epochs: int) -> tuple[State, Losses]:
        """Train chunks that have a member in training; return their states and losses."""
        each = self.layout.by_chunk(self._training[packed.rows]) * np.int32(epochs)
        return self._train((self._shared,), (each, packed.begins), packed.state, packed.member)

    def _bring_back(self) -> None:
        """Bring the states of all members to the host; none is resident from then on."""
        resident = self._snapshot.resident
        if resident:
            new: State = unpack_chunks([each.state for each in resident], _lengths(resident))
            state = write_members(self._snapshot.state, _rows(resident), new)
            self._snapshot = self._snapshot._replace(state=state, resident=())


def _rows(resident: Sequence[Packed]) -> Rows:
    return np.concatenate([np.zeros(0, int), *(each.rows for each in resident)])


def _lengths(resident: Sequence[Packed]) -> list[int]:
    return [len(each.rows) for each in resident]


@functools.lru_cache(maxsize=32)
def compiled(task: Task, mesh: Mesh, max_epochs: int) -> Program:
    """Return the program of a fit, which trains members for a block of at most ``max_epochs``.

    It takes four arguments: the shared data; for each chunk of each lane the number of epochs, 0
    where no member trains, and whether members begin; states; and :class:`Member`. The weights are
    in one vector where that is faster.
    """

    def train(
        common: tuple[Data], by_chunk: tuple[jax.Array, jax.Array], state: State, member: Member
    ) -> tuple[State, Losses]:
        member = member._replace(data=with_shared(member.data, common[0]))
        epochs, begins = by_chunk
        vector = Vector.from_state(task, state, member.hyperparams)
        if vector is None:
            return train_block(task, state, member, epochs, max_epochs, begins=begins)
        learned, joined = vector.task(task), vector.joined_state(state)
        after, losses = train_block(learned, joined, member, epochs, max_epochs, begins=begins)
        return vector.state(after), losses

    return spread(train, mesh, name="train")


# The maximum number of epochs in a block, unless the first has more: with validation, and without.
_MOST_VALIDATED, _MOST = 128, 1024
# Seconds: a shorter block counts as short; blocks are lengthened up to the next two, without and
# with validation. Then the share of a block's time that moving states may take.
_SHORT, _LONG, _LONG_VALIDATED, _IDLE = 0.1, 4.0, 0.5, 0.05
_GROWTH = 8  # maximum ratio of a block's length to the length of the one before
# Where nobody watches: seconds of a block, since an interruption waits for its end; and the work of
# the first block, whose seconds are not known yet.
_UNWATCHED, _WORK = 0.5, 2**31


class Pace:
    """Choose the length of blocks: longer if a block took little time, or moving states took long.

    - ``epochs``: the number of epochs in the next block
    - ``longest``: the maximum number of epochs in a block

    Blocks stay shorter, and grow more slowly, where members are validated and may stop early. If
    they are neither validated nor ``watched``, nothing happens between two blocks, and blocks are
    longer. The first one then depends on the ``work`` of an epoch of a lane, which is the number of
    its members' weights times that of a member's data values.
    """

    def __init__(self, epochs: int, work: int, *, validated: bool, watched: bool = True):
        self.epochs = self._shortest = epochs
        self.longest = max(epochs, _MOST_VALIDATED if validated else _MOST)
        self._validated, self._short = validated, _SHORT
        if not (validated or watched):
            self._short = _UNWATCHED
            self.epochs = min(max(_WORK // max(work, 1), epochs), self.longest)

    def adapt(self, seconds: float, moving: float) -> None:
        """Choose the next length after a block of ``seconds``, of which ``moving`` moved states."""
        longest = _LONG_VALIDATED if self._validated else _LONG
        idle = seconds < self._short or moving > _IDLE * seconds
        if idle and 2 * seconds < longest:
            growth = 2 if self._validated else int(min(_GROWTH, self._short / max(seconds, 1e-9)))
            self.epochs = min(max(2, growth) * self.epochs, self.longest)
        elif seconds > 2 * longest:
            self.epochs = max(self.epochs // 2, self._shortest)
