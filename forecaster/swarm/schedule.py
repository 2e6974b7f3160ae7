"""The schedule of a fit: blocks of epochs over all lanes until every member has stopped.

After each block the members that have stopped leave, waiting ones take their place, and the rest
are packed densely again. So the slow members never hold up the fast ones, and the wall time
follows the work that is really done. Members differ in their epoch, never in the program. Only two
programs are compiled, whatever happens: one that starts members and one that trains them.
"""

import functools
import logging
import time
from typing import Any, NamedTuple

import jax
import numpy as np

from forecaster.swarm import checkpoint as _checkpoint
from forecaster.swarm import lanes as _lanes
from forecaster.swarm.checkpoint import Checkpoint, Saved
from forecaster.swarm.history import History
from forecaster.swarm.task import Task
from forecaster.swarm.training import State, Status, start, train_block

log = logging.getLogger(__name__)


class Now(NamedTuple):
    """All that a fit has come to."""

    begun: np.ndarray
    state: State
    history: History


class Schedule:
    """One fit under way: what is on the devices, and the host's copy of every member's state."""

    def __init__(self, task: Task, data: Any, hyper: Any, keys: np.ndarray, mesh, layout, block):
        self.data, self.hyper, self.keys = data, hyper, keys
        self.mesh, self.layout, self.block = mesh, layout, block
        self._task = task
        self._start, self._train = compiled(task, mesh, block)
        self._placed_rows = np.arange(0)
        self._placed: tuple[Any, Any] = (None, None)
        # One value, replaced whole: an interruption finds the old one or the new one.
        self._now = Now(np.zeros(len(keys), bool), self._blank(), History(len(keys)))

    @property
    def state(self) -> State:
        """The states of all members; zero for those that have not begun."""
        return self._now.state

    @property
    def begun(self) -> np.ndarray:
        """Which members have begun, (member,) bool."""
        return self._now.begun

    @property
    def history(self) -> History:
        """The losses so far."""
        return self._now.history

    @property
    def running(self) -> np.ndarray:
        """Members that train now."""
        return np.flatnonzero(self.begun & (self.state.status == Status.TRAINING))

    @property
    def stopped(self) -> int:
        """How many members have ended."""
        return int((self.begun & (self.state.status != Status.TRAINING)).sum())

    def done(self) -> bool:
        """Whether all members have ended."""
        return self.stopped == len(self.keys)

    def advance(self) -> None:
        """Admit waiting members where there is room, and train all that run for one block."""
        room = self.layout.capacity - len(self.running)
        admitted = np.flatnonzero(~self.begun)[:room]
        if len(admitted):
            fresh = self._call(self._start, admitted, self.keys)
            begun = self.begun.copy()
            begun[admitted] = True
            self._now = Now(begun, _written(self.state, admitted, fresh), self.history)
        rows = self.running
        if len(rows):
            after, losses = self._call(self._train, rows, self.state)
            history = self.history.with_block(rows, losses, self.state.epoch[rows], after.epoch)
            self._now = Now(self.begun, _written(self.state, rows, after), history)

    def save(self, path, fit: str) -> None:
        """Write a checkpoint."""
        _checkpoint.write(path, fit, Saved(self.begun, self.state, self.history.losses()))

    def restore(self, path, fit: str) -> None:
        """Go on from a checkpoint."""
        saved = _checkpoint.read(path, fit, self.state)
        history = History.of(saved.losses, saved.state.epoch)
        self._now = Now(saved.begun.astype(bool), saved.state, history)

    def _call(self, function, rows, tree):
        """Run a compiled function on these members and bring the result back.

        When a device has too little memory, fewer members are tried at once.
        """
        while True:
            try:
                return self._call_once(function, rows, tree)
            except jax.errors.JaxRuntimeError as error:
                if "RESOURCE_EXHAUSTED" not in str(error) or self.layout.chunk == 1:
                    raise
                smaller = self.layout.chunk // 2
                log.warning("out of memory with chunks of %d; trying %d", 2 * smaller, smaller)
                self.layout = _lanes.Layout(self.layout.lanes, 2 * self.layout.groups, smaller)
                self._placed_rows = np.arange(0)

    def _call_once(self, function, rows, tree):
        if not np.array_equal(rows, self._placed_rows):
            self._placed = (None, None)  # let go of the old data before the new come
            packed = self.layout.pack((self.data, self.hyper), rows)
            self._placed, self._placed_rows = _lanes.place(packed, self.mesh), rows
        mine = _lanes.place(self.layout.pack(tree, rows), self.mesh)
        groups = self.layout.groups_for(len(rows))
        return self.layout.unpack(function(groups, mine, *self._placed), len(rows))

    def _blank(self) -> State:
        """Room for the states of all members, zero."""
        members = len(self.keys)
        one = jax.tree.map(lambda leaf: leaf[0], (self.keys, self.data, self.hyper))
        shapes = jax.eval_shape(lambda args: start(self._task, *args), one)
        return jax.tree.map(lambda s: np.zeros((members, *s.shape), s.dtype), shapes)


@functools.lru_cache(maxsize=8)
def compiled(task: Task, mesh, block: int):
    """The two compiled programs of a fit: start members, and train them for a block of epochs."""

    def begin(key, data, hyper):
        return start(task, key, data, hyper)

    def train(state, data, hyper):
        return train_block(task, state, data, hyper, block)

    return _lanes.spread(begin, mesh), _lanes.spread(train, mesh)


def run_to_the_end(
    schedule: Schedule, checkpoint: Checkpoint | None, fit: str, after_block
) -> None:
    """Advance until all members have ended, with checkpoints every so often and on Ctrl-C."""
    saved = time.monotonic()
    try:
        while not schedule.done():
            schedule.advance()
            after_block()
            if checkpoint and time.monotonic() - saved >= checkpoint.every:
                schedule.save(checkpoint.path, fit)
                saved = time.monotonic()
    except KeyboardInterrupt:
        if checkpoint:
            schedule.save(checkpoint.path, fit)
        raise


def _written(state: State, rows: np.ndarray, new: State) -> State:
    """A copy of the state with new values in some rows."""

    def write(leaf, value):
        leaf = leaf.copy()
        leaf[rows] = value
        return leaf

    return jax.tree.map(write, state, new)
