"""The schedule of a fit: blocks of epochs over all lanes until every member has stopped.

Members that train are resident on the devices, where their states stay from block to block. When
enough members have stopped to save a chunk, or others wait for their places, states come to the
host and the rest are packed densely again. So the slow members never hold up the fast ones, and the
wall time follows the work that is really done. Members differ in their epoch, never in the program.
At most two programs are compiled, whatever happens and however many members there are: one that
starts members and one that trains them.
"""

import dataclasses
import logging
import time
import weakref
from collections.abc import Hashable, Sequence
from typing import NamedTuple, TypeAlias, cast

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import Bool, Int, UInt32

from forecaster.swarm.arrays.data import Held, with_shared
from forecaster.swarm.arrays.members import consecutive, take_members, write_members, written
from forecaster.swarm.checkpoints import checkpoint as _checkpoint
from forecaster.swarm.checkpoints.checkpoint import Checkpoint, Saved
from forecaster.swarm.checkpoints.history import History
from forecaster.swarm.devices import lanes as _lanes
from forecaster.swarm.devices.lanes import Layout
from forecaster.swarm.execution.blocks import Trained, compiled, first_bad, is_plain, put_right
from forecaster.swarm.execution.flat import Flat, Form
from forecaster.swarm.task import Data, Hyperparams, Limits, Task, Tree
from forecaster.swarm.training.training import (
    Losses,
    State,
    Status,
    resume,
    resume_unvalidated,
    start,
)

Origin: TypeAlias = State | UInt32[np.ndarray, "member 2"]
"""States (member, ...) that members continue from, or raw keys of members that start anew."""


def member_state(
    task: Task, held: Held, origin: Origin, hyperparams: Hyperparams, limits: Limits
) -> State:
    """The shapes of one member's state; arguments as of a fit, arrays (member,)."""

    def first_state(
        key: jax.Array, hyperparams: Hyperparams, limits: Limits, unshared: Data, shared: Data
    ) -> State:
        return start(task, key, with_shared(unshared, shared), hyperparams, limits)

    if isinstance(origin, State):
        return take_members(origin, 0)
    one = take_members((origin, hyperparams, limits), 0)
    return jax.eval_shape(first_state, *one, held.example, held.shared)


def blank_state(member: State, members: int) -> State:
    """Room for the states of so many members like this one, zero."""

    def room(leaf: jax.ShapeDtypeStruct) -> np.ndarray:
        return np.zeros((members, *leaf.shape), leaf.dtype)

    return jax.tree.map(room, member)


# Epochs of a block, unless more are asked for: with validation, and without.
_MOST_VALIDATED, _MOST = 128, 1024
# Seconds of a block that is over at once, and of the longest that blocks are lengthened to; and the
# share of a block that may go into moving states.
_SHORT, _LONG, _LONG_VALIDATED, _IDLE = 0.1, 4.0, 0.5, 0.05
_TIMES = 8  # a block has at most so many times as many epochs as the one before
# Seconds of a block of which nobody sees anything meanwhile; an interruption waits for its end.
_UNSEEN = 0.5

# Seconds of an epoch of a chunk, by the program that trains and by what it was called with.
_taken: weakref.WeakKeyDictionary[object, dict[Hashable, float]] = weakref.WeakKeyDictionary()
_KEPT = 64  # kinds of calls of a program


class Pace:
    """Lengthens blocks that are over at once, and those whose states take long to move.

    - ``epochs``: of the next block
    - ``longest``: the most epochs that a block ever has

    Blocks stay shorter where members may stop early, and grow more slowly. Where they may not, and
    it is not ``watched``, nothing is to be seen between two blocks: they are longer, and the first
    is as long as it may be by what one like it took before.
    """

    def __init__(self, epochs: int, *, validated: bool, watched: bool = True):
        self.epochs = self._shortest = epochs
        self.longest = max(epochs, _MOST_VALIDATED if validated else _MOST)
        self._validated, self._unseen = validated, not (validated or watched)
        self._short = _UNSEEN if self._unseen else _SHORT
        self._before, self._kind, self._known, self._most = dict[Hashable, float](), None, False, 0

    def begin(self, program: object, kind: Hashable, chunks: int) -> None:
        """Choose the first block's length by what this program took for the like, if it did.

        - ``kind``: what decides, beside the program, how long a chunk takes
        - ``chunks``: that each lane is about to go through
        """
        self._before, self._kind = _taken.setdefault(program, {}), kind
        self._known = kind in self._before
        if self._unseen and self._known:
            epochs = int(self._short / max(chunks * self._before[kind], 1e-9))
            self.epochs = min(max(epochs, self._shortest), self.longest)

    def keep(self, chunks: int, epochs: int, seconds: float) -> None:
        """Keep how long a block of so many chunks and epochs took, if no longer one has told more.

        The first of its kind may have been compiled meanwhile, and tells nothing.
        """
        if self._known and epochs >= self._most:
            while len(self._before) >= _KEPT:
                del self._before[next(iter(self._before))]
            self._most, self._before[self._kind] = epochs, seconds / (chunks * epochs)
        self._known = True

    def adapt(self, seconds: float, moving: float) -> None:
        """After a block that took so long in all, and so long to move states."""
        longest = _LONG_VALIDATED if self._validated else _LONG
        idle = seconds < self._short or moving > _IDLE * seconds
        if idle and 2 * seconds < longest:
            room = 2 if self._validated else int(min(_TIMES, self._short / max(seconds, 1e-9)))
            self.epochs = min(max(2, room) * self.epochs, self.longest)
        elif seconds > 2 * longest:
            self.epochs = max(self.epochs // 2, self._shortest)


log = logging.getLogger(__name__)

Rows: TypeAlias = Int[np.ndarray, " row"]
"""Positions of members."""

_DeviceError = cast(type[Exception], jax.errors.JaxRuntimeError)

# A lane goes through so many chunks in one call if their members together have no more than so
# many bytes: each call of a program costs the host half a millisecond.
_CHUNKS, _SMALL = 16, 2**23


class Resident(NamedTuple):
    """Members that train at once, on the devices; states may come there with their first block."""

    rows: Rows
    state: Flat  # arrays (lane, chunk, member, number)
    fixed: tuple[Tree, ...]  # data, hyperparameters and limits, alike


class Snapshot(NamedTuple):
    """All that a fit has come to."""

    started: Bool[np.ndarray, " member"]
    state: State  # on the host; of resident members, only epoch and status are as they are now
    history: History
    resident: tuple[Resident, ...]


class Schedule:
    """One fit under way: what is on the devices, and what the host knows of every member.

    - ``task``, ``held``: what members do, and their data
    - ``hyperparams``, ``limits``: arrays (member,)
    - ``origin``: raw keys (member, 2) of members that start anew, or the states (member, ...) that
      they continue from
    - ``mesh``, ``layout``: the lanes, and how members lie on them
    - ``block``: epochs of a block at first
    - ``watched``: whether anybody looks at it between two blocks
    """

    def __init__(
        self,
        task: Task,
        held: Held,
        hyperparams: dict[str, np.ndarray],
        limits: Limits,
        origin: Origin,
        mesh: Mesh,
        layout: Layout,
        block: int,
        *,
        watched: bool = True,
    ):
        self.held, self.hyperparams, self.limits, self.origin = held, hyperparams, limits, origin
        self.mesh, self._task = mesh, task
        self.pace = Pace(block, validated=task.validate is not None, watched=watched)
        begin = resume if isinstance(origin, State) else start
        member = member_state(task, held, origin, hyperparams, limits)
        self._form = Form.of(member)
        self._begin, self._train = compiled(task, mesh, self.pace.longest, self._form, begin)
        # Whatever the number of members and lanes, so that nothing is compiled for another one.
        in_lane = _CHUNKS * layout.chunk * (held.bytes_each + 2 * self._form.bytes)
        self.layout = layout.with_chunks(_CHUNKS) if in_lane <= _SMALL else layout
        chunks = self.layout.chunks_of(min(held.members, self.layout.capacity))
        self.pace.begin(self._train, (self.layout, held.shapes), chunks)
        self._moving = 0.0  # seconds that the latest block took to move states
        self._once = held.is_small and held.members <= self.layout.at_once
        self._once &= bool(self.pace.epochs >= np.max(limits.epochs))
        self._shared = held.shared if self._once else _lanes.replicate(held.shared, mesh)
        # One value, replaced whole: an interruption meets the old one or the new one.
        nobody = np.zeros(held.members, bool)
        blank = blank_state(member, held.members)
        history = History.empty(held.members, task.metrics)
        self._snapshot = Snapshot(nobody, blank, history, ())

    @property
    def compiling(self) -> bool:
        """Whether the first block has to be compiled."""
        return not self._train.ready

    @property
    def state(self) -> State:
        """The states of all members; zero for those that have not started."""
        self._bring_back()
        return self._snapshot.state

    @property
    def epoch(self) -> Int[np.ndarray, " member"]:
        """How many epochs each member has trained."""
        return np.asarray(self._snapshot.state.epoch)

    @property
    def status(self) -> Int[np.ndarray, " member"]:
        """Of :class:`Status`."""
        return np.asarray(self._snapshot.state.status)

    @property
    def started(self) -> Bool[np.ndarray, " member"]:
        """Which members have started."""
        return self._snapshot.started

    @property
    def history(self) -> History:
        """The losses so far."""
        return self._snapshot.history

    @property
    def running(self) -> Rows:
        """Members that train now."""
        return np.flatnonzero(self.started & (self.status == Status.TRAINING))

    @property
    def stopped(self) -> int:
        """How many members have ended."""
        return int((self.started & (self.status != Status.TRAINING)).sum())

    def done(self) -> bool:
        """Whether all members have ended."""
        return self.stopped == self.held.members

    def advance(self) -> None:
        """Admit waiting members where there is room, and train all that run for one block."""
        while True:
            try:
                self._moving = 0.0
                self._repack()
                if len(self.running):
                    self._train_block()
                return
            except _DeviceError as error:
                if "RESOURCE_EXHAUSTED" not in str(error) or self.layout.chunk == 1:
                    raise
                # Half the members at once: half the activations.
                smaller = self.layout.chunk // 2
                log.warning("out of memory with chunks of %d; trying %d", 2 * smaller, smaller)
                self._bring_back()
                self.layout = dataclasses.replace(self.layout, chunk=smaller)

    def stop(self) -> None:
        """End all members where they are; those that wait for a place end where they begin."""
        self._bring_back()
        while len(waiting := np.flatnonzero(~self.started)):
            self._admit(waiting[: self.layout.capacity])
            self._bring_back()
        training = self.status == Status.TRAINING
        status = np.where(training, Status.FINISHED, self.status).astype(np.int32)
        state = self._snapshot.state._replace(status=status)
        self._snapshot = self._snapshot._replace(state=state)

    def _repack(self) -> None:
        """Pack the members that run, and those that wait for a place, where that saves work."""
        calls, running = self._snapshot.resident, self.running
        waiting = np.flatnonzero(~self.started)
        room = max(0, self.layout.capacity - len(running))
        if calls:
            placed = np.concatenate([call.rows for call in calls])
            inside = np.intersect1d(placed, running)
            outside = len(running) - len(inside) + len(waiting)
            if self.held.streamed:  # its data are loaded again for every move
                moves = len(inside) <= 0.75 * len(placed)
            else:
                chunks = map(self.layout.chunks_of, (len(inside), *_lengths(calls)))
                fewer = next(chunks) < sum(chunks)
                moves = fewer or (outside and len(inside) < self.layout.capacity)
            if not moves:
                return
        began = time.perf_counter()
        self._bring_back()
        if room:
            self._admit(waiting[:room])
        packed = self.running[: self.layout.capacity]
        begun = [call.rows for call in self._snapshot.resident]
        if not begun or not np.array_equal(np.concatenate(begun), packed):
            self._bring_back()
            made = (
                [self._place(rows) for rows in self.layout.by_call(packed)] if len(packed) else []
            )
            self._snapshot = self._snapshot._replace(resident=tuple(made))
        self._moving = time.perf_counter() - began

    def _admit(self, admitted: Rows) -> None:
        """Start waiting members: those that a program starts are on the devices then."""
        if not len(admitted):
            return
        state, calls = self._snapshot.state, list[Resident]()
        if self._task.validate is None and isinstance(self.origin, State):
            new = resume_unvalidated(
                take_members(self.origin, admitted), take_members(self.limits, admitted)
            )
            state = write_members(state, admitted, new)
        else:
            calls = [self._begun(rows) for rows in self.layout.by_call(admitted)]
            state = self._told(state, calls)
        started = self.started.copy()
        started[admitted] = True
        self._snapshot = self._snapshot._replace(
            started=started, state=state, resident=tuple(calls)
        )

    def _begun(self, rows: Rows) -> Resident:
        """These members as they start."""
        origin, fixed = self._packed(self.origin, rows), self._on_devices(rows)
        somebody = self.layout.by_chunk(np.ones(len(rows), bool))
        return Resident(rows, self._begin((self._shared,), somebody, origin, *fixed), fixed)

    def _place(self, rows: Rows) -> Resident:
        """These members as they are; their states go to the devices with their first block."""
        return Resident(rows, self._packed(self._snapshot.state, rows), self._on_devices(rows))

    def _packed(self, tree: Tree, rows: Rows) -> Tree:
        """Arrays (member, ...) as a call of these members has them; states are flat."""

        def load(rows: Rows) -> Tree:
            if isinstance(tree, State):  # whose numbers are copied when they are put together
                return self._form.flat_rows(take_members(tree, consecutive(rows)))
            return take_members(tree, rows)

        return _lanes.packed_chunks(load, rows, self.layout)

    def _on_devices(self, rows: Rows) -> tuple[Tree, ...]:
        """Data, hyperparameters and limits; small ones used once go with the call: it is faster."""
        fixed = (
            _lanes.packed_chunks(self.held.rows, rows, self.layout),
            self._packed(self.hyperparams, rows),
            self._packed(self.limits, rows),
        )
        return fixed if self._once else jax.device_put(fixed, NamedSharding(self.mesh, P("lane")))

    def _told(self, state: State, calls: Sequence[Resident]) -> State:
        """States on the host, epoch and status of resident members as on the devices."""
        counts = [self._counts(call.state) for call in calls]
        epoch, status = self._epoch_and_status(_lanes.unpack_chunks(counts, _lengths(calls)))
        rows = np.concatenate([call.rows for call in calls])
        return state._replace(
            epoch=written(state.epoch, rows, epoch), status=written(state.status, rows, status)
        )

    def _counts(self, flat: Flat) -> jax.Array:
        """What epoch and status are among, so that no more comes to the host."""
        return flat[self._form.places.epoch.dtype]

    def _epoch_and_status(self, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        places = self._form.places
        return counts[:, places.epoch.begin], counts[:, places.status.begin]

    def _train_block(self) -> None:
        """Train the resident members for a block, and choose the length of the next one."""
        calls, began = self._snapshot.resident, time.perf_counter()
        rows = np.concatenate([call.rows for call in calls])
        before = self.epoch[rows]
        left = np.where(self.status[rows] == Status.TRAINING, self.limits.epochs[rows] - before, 0)
        epochs = self._epochs_of_block(left[left > 0])
        blocks = [self._trained(call, epochs) for call in calls]
        plain = is_plain(self._task)  # whose two losses are one
        seen = [
            (self._counts(block.state), block.losses.train if plain else block.losses, block.sound)
            for block in blocks
        ]
        counts, losses, sound = _lanes.unpack_chunks(_first(seen, epochs), _lengths(calls))
        chunks = sum(map(self.layout.chunks_of, _lengths(calls)))
        self.pace.keep(chunks, epochs, time.perf_counter() - began)
        losses = Losses(losses, losses) if plain else cast(Losses, losses)
        epoch = self._epoch_and_status(counts)[0]
        after = [
            call._replace(state=block.state) for call, block in zip(calls, blocks, strict=True)
        ]
        if self._task.validate is None:
            bad = first_bad(np.asarray(losses.train), sound, epoch - before)
            if (bad >= 0).any():
                after = [
                    self._sound(*each)
                    for each in zip(calls, after, _split(bad, calls), strict=True)
                ]
        state = self._told(self._snapshot.state, after)
        history = self.history.with_block(rows, losses, before, np.asarray(state.epoch)[rows])
        self._snapshot = Snapshot(self.started, state, history, tuple(after))
        self.pace.adapt(time.perf_counter() - began + self._moving, self._moving)

    def _epochs_of_block(self, left: Int[np.ndarray, " row"]) -> int:
        """Epochs of the next block, where members that train have so many left."""
        if not len(left):
            return 1
        most = left.min() if is_plain(self._task) else left.max()
        return int(min(self.pace.epochs, most))

    def _trained(self, call: Resident, epochs: int, only: int | None = None) -> Trained:
        """A call after so many epochs: chunks with a member that trains, or with row ``only``."""
        trains = self.status[call.rows] == Status.TRAINING
        if only is not None:
            trains &= np.arange(len(trains)) == only
        by_chunk = self.layout.by_chunk(trains) * np.int32(epochs)
        return self._train((self._shared,), by_chunk, call.state, *call.fixed)

    def _sound(self, before: Resident, after: Resident, bad: Int[np.ndarray, " row"]) -> Resident:
        """Resident members: those that diverged are as they were before it happened.

        ``bad``: the epoch of the block that went wrong, see :func:`first_bad`.
        """
        if not (bad >= 0).any():
            return after

        def train(row: int, epochs: int) -> tuple[State, np.ndarray]:
            block = self._trained(before, epochs, row)
            sound = _lanes.unpack_chunks([block.sound], [len(before.rows)])
            return self._unpacked([before._replace(state=block.state)]), sound

        state = put_right(self._unpacked([after]), bad, train)
        return after._replace(state=self._packed(state, np.arange(len(before.rows))))

    def _unpacked(self, calls: Sequence[Resident]) -> State:
        """States of resident members, on the host."""
        flat = jax.device_get([call.state for call in calls])
        return _lanes.unpack_chunks([self._form.tree(each, 3) for each in flat], _lengths(calls))

    def _bring_back(self) -> None:
        """Have the states of all members on the host, and none on the devices."""
        calls = self._snapshot.resident
        if not calls:
            return
        new = self._unpacked(calls)
        rows = np.concatenate([call.rows for call in calls])
        state = write_members(self._snapshot.state, rows, new)
        self._snapshot = self._snapshot._replace(state=state, resident=())

    def continue_losses(self, losses: Losses) -> None:
        """Keep the losses (member, epoch) of the training that this fit continues."""
        assert isinstance(self.origin, State)
        history = History.of(losses, np.asarray(self.origin.epoch), self._task.metrics)
        self._snapshot = self._snapshot._replace(history=history)

    def save(self, checkpoint: Checkpoint, digest: str) -> None:
        """Write a checkpoint. ``digest``: the fit's fingerprint."""
        _checkpoint.write(checkpoint, digest, Saved(self.started, self.state, self.history.losses))

    def restore(self, saved: Saved) -> None:
        """Continue from a checkpoint."""
        history = History.of(saved.losses, np.asarray(saved.state.epoch))
        self._snapshot = Snapshot(saved.started.astype(bool), saved.state, history, ())


def _first(seen: Sequence[Tree], epochs: int) -> list[Tree]:
    """What blocks came to, on the host; of the losses those of so many epochs, not all places."""

    def used(leaf: np.ndarray) -> np.ndarray:
        return leaf[..., :epochs]

    return [
        (counts, jax.tree.map(used, losses), sound)
        for counts, losses, sound in cast(list[tuple[Tree, ...]], jax.device_get(seen))
    ]


def _lengths(calls: Sequence[Resident]) -> list[int]:
    return [len(call.rows) for call in calls]


def _split(values: np.ndarray, calls: Sequence[Resident]) -> list[np.ndarray]:
    """Values of the members of several calls, by call."""
    return np.split(values, np.cumsum([len(call.rows) for call in calls])[:-1])
