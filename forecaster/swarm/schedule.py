"""The schedule of a fit: blocks of epochs over all lanes until every member has stopped.

After each block the members that have stopped leave, waiting ones take their place, and the rest
are packed densely again. So the slow members never hold up the fast ones, and the wall time
follows the work that is really done. Members differ in their epoch, never in the program. Only two
programs are compiled, whatever happens: one that starts members and one that trains them.
"""

import functools
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias, cast, runtime_checkable

import jax
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Bool, Int, UInt32

from forecaster.swarm import checkpoint as _checkpoint
from forecaster.swarm import lanes as _lanes
from forecaster.swarm.checkpoint import Checkpoint, Saved
from forecaster.swarm.data import Held, with_shared
from forecaster.swarm.history import History
from forecaster.swarm.lanes import Layout
from forecaster.swarm.members import append_members, take_members, write_members
from forecaster.swarm.task import Data, Hyperparams, Limits, Task, Tree
from forecaster.swarm.training import Losses, State, Status, resume, start, train_block

log = logging.getLogger(__name__)

Rows: TypeAlias = Int[np.ndarray, " row"]
"""Positions of members."""

Origin: TypeAlias = State | UInt32[np.ndarray, "member 2"]
"""States (member, ...) that members continue from, or raw keys of members that start anew."""


_DeviceError = cast(type[Exception], jax.errors.JaxRuntimeError)

_MAX_EPOCHS = 128  # of a block, unless more are asked for
# Seconds of a block that is over at once, and of the longest that blocks are lengthened to; and the
# share of a block that may go into moving states.
_SHORT, _LONG, _LONG_VALIDATED, _IDLE = 0.1, 4.0, 0.5, 0.05


@runtime_checkable
class Program(Protocol):
    """A compiled function, over all lanes; see :func:`forecaster.swarm.lanes.spread`."""

    def __call__(self, groups: int, shared: Tree, /, *packed: Tree) -> Tree:
        """The results of so many groups."""
        ...

    def lower(self, groups: int, shared: Tree, /, *packed: Tree) -> Any:
        """The program for arguments of these shapes, as JAX lowers it."""
        ...


class Snapshot(NamedTuple):
    """All that a fit has come to."""

    started: Bool[np.ndarray, " member"]
    state: State
    history: History


class Schedule:
    """One fit under way: what is on the devices, and the host's copy of every member's state.

    - ``task``, ``held``: what members do, and their data
    - ``hyperparams``, ``limits``: arrays (member,)
    - ``origin``: raw keys (member, 2) of members that start anew, or the states (member, ...) that
      they continue from
    - ``mesh``, ``layout``: the lanes, and how members lie on them
    - ``block``: epochs of a block at first
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
    ):
        self.held, self.hyperparams, self.limits, self.origin = held, hyperparams, limits, origin
        self.mesh, self.layout, self.block = mesh, layout, block
        self._task = task
        self._shortest, self._longest = block, max(block, _MAX_EPOCHS)
        begin = resume if isinstance(origin, State) else start
        self._begin, self._train = compiled(task, mesh, self._longest, begin)
        self._seconds = self._moving = 0.0  # of the latest block: in all, and moving states
        self._epochs = block  # of the latest block: no more than are left
        self._shared = _lanes.replicate(held.shared, mesh)
        self._forget_placed()
        # One value, replaced whole: an interruption meets the old one or the new one.
        self._snapshot = Snapshot(
            np.zeros(held.members, bool), self._blank_state(), History.empty(held.members)
        )

    @property
    def state(self) -> State:
        """The states of all members; zero for those that have not started."""
        return self._snapshot.state

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
        return np.flatnonzero(self.started & (self.state.status == Status.TRAINING))

    @property
    def stopped(self) -> int:
        """How many members have ended."""
        return int((self.started & (self.state.status != Status.TRAINING)).sum())

    def done(self) -> bool:
        """Whether all members have ended."""
        return self.stopped == self.held.members

    def advance(self) -> None:
        """Admit waiting members where there is room, and train all that run for one block."""
        rows = self._rows_that_stay()
        if rows is None:
            self._admit()
            rows = self.running[: self.layout.capacity]
        if len(rows):
            self._train_block(rows)

    def _admit(self) -> None:
        """Start waiting members, as many as there is room for."""
        room = max(0, self.layout.capacity - len(self.running))
        admitted = np.flatnonzero(~self.started)[:room]
        if len(admitted):
            new = self._call(self._begin, admitted, self.origin)
            started = self.started.copy()
            started[admitted] = True
            state = write_members(self.state, admitted, new)
            self._snapshot = Snapshot(started, state, self.history)

    def _train_block(self, rows: Rows) -> None:
        """Train these members for a block, and choose the length of the next one."""
        self._seconds = self._moving = 0.0
        left = (self.limits.epochs[rows] - self.state.epoch[rows]).max()
        self._epochs = int(min(self.block, max(1, left)))
        after, losses = self._call(self._train, rows, self.state)
        self._adapt_block()
        before = np.asarray(self.state.epoch[rows])
        history = self.history.with_block(rows, losses, before, after.epoch)
        state = write_members(self.state, rows, after)
        self._snapshot = Snapshot(self.started, state, history)

    def _adapt_block(self) -> None:
        """Lengthen blocks that are over at once, and those whose states take long to move.

        Blocks stay shorter where members may stop early.
        """
        longest = _LONG if self._task.validate is None else _LONG_VALIDATED
        idle = self._seconds < _SHORT or self._moving > _IDLE * self._seconds
        if idle and 2 * self._seconds < longest:
            self.block = min(2 * self.block, self._longest)
        elif self._seconds > 2 * longest:
            self.block = max(self.block // 2, self._shortest)

    def _rows_that_stay(self) -> Rows | None:
        """The members on the devices, when moving any is not worth it.

        Streamed data are loaded again for every move, so members move only once a quarter of them
        have stopped.
        """
        rows = self._placed_rows
        if not self.held.streamed or not len(rows) or len(rows) > self.layout.capacity:
            return None
        running = self.started[rows] & (self.state.status[rows] == Status.TRAINING)
        return rows if running.sum() > 0.75 * len(rows) else None

    def continue_losses(self, losses: Losses) -> None:
        """Keep the losses (member, epoch) of the training that this fit continues."""
        assert isinstance(self.origin, State)
        history = History.of(losses, np.asarray(self.origin.epoch))
        self._snapshot = self._snapshot._replace(history=history)

    def save(self, path: Path, digest: str) -> None:
        """Write a checkpoint. ``digest``: the fit's fingerprint."""
        _checkpoint.write(path, digest, Saved(self.started, self.state, self.history.losses))

    def restore(self, path: Path, digest: str) -> None:
        """Continue from a checkpoint."""
        saved = _checkpoint.read(path, digest, self.state)
        history = History.of(saved.losses, np.asarray(saved.state.epoch))
        self._snapshot = Snapshot(saved.started.astype(bool), saved.state, history)

    def _call(self, program: Program, rows: Rows, tree: Tree) -> Tree:
        """Run a compiled program on these members and bring the result back.

        When a device has too little memory, fewer members are tried at once.
        """
        while True:
            try:
                turns = np.split(rows, range(0, len(rows), self.layout.capacity)[1:])
                parts = [self._call_once(program, turn, tree) for turn in turns]
                return append_members(*parts)
            except _DeviceError as error:
                if "RESOURCE_EXHAUSTED" not in str(error) or self.layout.chunk == 1:
                    raise
                # Half the members at once: half the activations, and half the data.
                smaller = self.layout.chunk // 2
                log.warning("out of memory with chunks of %d; trying %d", 2 * smaller, smaller)
                self.layout = Layout(self.layout.lanes, self.layout.groups, smaller)
                self._forget_placed()

    def _call_once(self, program: Program, rows: Rows, tree: Tree) -> Tree:
        self._place_members(rows)
        began = time.perf_counter()  # placing data is not what longer blocks make rarer
        packed = self._place_tree(tree, rows)
        groups = self.layout.groups_for(len(rows))
        common = (self._shared, np.int32(self._epochs))
        placed = time.perf_counter()
        out = program(groups, common, packed, *self._placed)
        jax.block_until_ready(out)
        done = time.perf_counter()
        out = self.layout.unpack(out, len(rows))
        self._seconds += time.perf_counter() - began
        self._moving += time.perf_counter() - done + placed - began
        return out

    def _place_members(self, rows: Rows) -> None:
        """Have these members' data, hyperparameters and limits on the devices."""
        if np.array_equal(rows, self._placed_rows):
            return
        self._placed = ()  # let go of the old data before the new come
        self._placed = (
            _lanes.place(self.held.rows, rows, self.layout, self.mesh),
            self._place_tree(self.hyperparams, rows),
            self._place_tree(self.limits, rows),
        )
        self._placed_rows = rows

    def _forget_placed(self) -> None:
        self._placed_rows: Rows = np.arange(0)
        self._placed: tuple[Tree, ...] = ()

    def _place_tree(self, tree: Tree, rows: Rows) -> Tree:
        return _lanes.place(lambda rows: take_members(tree, rows), rows, self.layout, self.mesh)

    def _blank_state(self) -> State:
        """Room for the states of all members, zero."""
        if isinstance(self.origin, State):
            return jax.tree.map(np.zeros_like, self.origin)

        def first_state(
            key: jax.Array, hyperparams: Hyperparams, limits: Limits, unshared: Data, shared: Data
        ) -> State:
            return start(self._task, key, with_shared(unshared, shared), hyperparams, limits)

        def room(shape: jax.ShapeDtypeStruct) -> np.ndarray:
            return np.zeros((self.held.members, *shape.shape), shape.dtype)

        one = take_members((self.origin, self.hyperparams, self.limits), 0)
        shapes = jax.eval_shape(first_state, *one, self.held.example, self.held.shared)
        return jax.tree.map(room, shapes)


@functools.lru_cache(maxsize=8)
def compiled(
    task: Task, mesh: Mesh, max_epochs: int, begin: Callable[..., State] = start
) -> tuple[Program, Program]:
    """The two compiled programs of a fit: one starts members, the other trains them.

    ``begin``: :func:`start` or :func:`resume`. A block has at most ``max_epochs`` epochs. Common to
    all members are the data that they share and the number of epochs.
    """

    def first(
        common: tuple[Data, jax.Array],
        origin: State | jax.Array,
        unshared: Data,
        hyperparams: Hyperparams,
        limits: Limits,
    ) -> State:
        return begin(task, origin, with_shared(unshared, common[0]), hyperparams, limits)

    def train(
        common: tuple[Data, jax.Array],
        state: State,
        unshared: Data,
        hyperparams: Hyperparams,
        limits: Limits,
    ) -> tuple[State, Losses]:
        shared, epochs = common
        data = with_shared(unshared, shared)
        return train_block(task, state, data, hyperparams, limits, epochs, max_epochs)

    programs = _lanes.spread(first, mesh), _lanes.spread(train, mesh, donate=True)
    return cast(tuple[Program, Program], programs)


def run_to_the_end(
    schedule: Schedule,
    checkpoint: Checkpoint | None,
    digest: str,
    after_block: Callable[[], None],
    at_first: Callable[[], None] | None = None,
) -> None:
    """Advance until all members have ended, with checkpoints every so often and on Ctrl-C."""
    saved = time.monotonic()
    try:
        if at_first:
            at_first()
        while not schedule.done():
            schedule.advance()
            after_block()
            if checkpoint and time.monotonic() - saved >= checkpoint.every:
                schedule.save(checkpoint.path, digest)
                saved = time.monotonic()
        if checkpoint:  # so that what follows training can fail without losing it
            schedule.save(checkpoint.path, digest)
    except KeyboardInterrupt:
        if checkpoint:
            schedule.save(checkpoint.path, digest)
        raise
