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
from forecaster.swarm.data import Held, with_shared
from forecaster.swarm.history import History
from forecaster.swarm.task import Task
from forecaster.swarm.training import Losses, State, Status, go_on, start, train_block

log = logging.getLogger(__name__)

_MOST_EPOCHS = 128  # of a block, unless more are asked for
# Seconds of a block that is over at once, and of the longest that blocks are lengthened to; and the
# share of a block that may go into moving states.
_SHORT, _LONG, _LONG_VALIDATED, _IDLE = 0.1, 4.0, 0.5, 0.05


class Now(NamedTuple):
    """All that a fit has come to."""

    begun: np.ndarray
    state: State
    history: History


class Schedule:
    """One fit under way: what is on the devices, and the host's copy of every member's state.

    ``origin``: raw keys (member, 2) of members that start anew, or the state (member, ...) that
    they go on from.
    """

    def __init__(self, task: Task, held: Held, hyperparams: Any, origin: Any, mesh, layout, block):
        self.held, self.hyperparams, self.origin = held, hyperparams, origin
        self.mesh, self.layout, self.block = mesh, layout, block
        most = max(block, _MOST_EPOCHS)
        self._task = task
        begin = go_on if isinstance(origin, State) else start
        self._begin, self._train = compiled(task, mesh, most, begin)
        self._shortest, self._most = block, most
        self._seconds = self._moving = 0.0  # of the latest block: in all, and moving states
        self._epochs = block  # of the latest block: no more than are left
        self._shared = _lanes.replicate(held.shared, mesh)
        self._placed_rows = np.arange(0)
        self._placed: Any = None
        # One value, replaced whole: an interruption finds the old one or the new one.
        history = History(held.members)
        self._now = Now(np.zeros(held.members, bool), self._blank(), history)

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
        return self.stopped == self.held.members

    def advance(self) -> None:
        """Admit waiting members where there is room, and train all that run for one block."""
        rows = self._stay()
        if rows is None:
            room = max(0, self.layout.capacity - len(self.running))
            admitted = np.flatnonzero(~self.begun)[:room]
            if len(admitted):
                fresh = self._call(self._begin, admitted, self.origin)
                begun = self.begun.copy()
                begun[admitted] = True
                self._now = Now(begun, _written(self.state, admitted, fresh), self.history)
            rows = self.running[: self.layout.capacity]
        if len(rows):
            self._seconds = self._moving = 0.0
            left = (self.hyperparams["epochs"][rows] - self.state.epoch[rows]).max()
            self._epochs = int(min(self.block, max(1, left)))
            after, losses = self._call(self._train, rows, self.state)
            self._adapt()
            history = self.history.with_block(rows, losses, self.state.epoch[rows], after.epoch)
            self._now = Now(self.begun, _written(self.state, rows, after), history)

    def _adapt(self) -> None:
        """Lengthen blocks that are over at once, or that take long to get to the devices and back
        for what is done there; but where members may stop early, not for long."""
        longest = _LONG if self._task.validate is None else _LONG_VALIDATED
        idle = self._seconds < _SHORT or self._moving > _IDLE * self._seconds
        if idle and 2 * self._seconds < longest:
            self.block = min(2 * self.block, self._most)
        elif self._seconds > 2 * longest:
            self.block = max(self.block // 2, self._shortest)

    def _stay(self) -> np.ndarray | None:
        """The members in their places, when moving any is not worth it: streamed data are loaded
        again for every move, so they move once a quarter of them have stopped."""
        rows = self._placed_rows
        if not self.held.streamed or not len(rows) or len(rows) > self.layout.capacity:
            return None
        running = self.begun[rows] & (self.state.status[rows] == Status.TRAINING)
        return rows if running.sum() > 0.75 * len(rows) else None

    def remember(self, losses: Losses) -> None:
        """Keep the losses (member, epoch) of the training that is gone on with."""
        self._now = self._now._replace(history=History.of(losses, self.origin.epoch))

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
                turns = np.split(rows, range(0, len(rows), self.layout.capacity)[1:])
                parts = [self._call_once(function, some, tree) for some in turns]
                if len(parts) == 1:
                    return parts[0]
                return jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)
            except jax.errors.JaxRuntimeError as error:
                if "RESOURCE_EXHAUSTED" not in str(error) or self.layout.chunk == 1:
                    raise
                # Half the members at once: half the activations, and half the data.
                smaller = self.layout.chunk // 2
                log.warning("out of memory with chunks of %d; trying %d", 2 * smaller, smaller)
                self.layout = _lanes.Layout(self.layout.lanes, self.layout.groups, smaller)
                self._placed_rows, self._placed = np.arange(0), None

    def _call_once(self, function, rows, tree):
        if not np.array_equal(rows, self._placed_rows):
            self._placed = None  # let go of the old data before the new come
            self._placed = (
                self._place(self.held.rows, rows),
                self._place_tree(self.hyperparams, rows),
            )
            self._placed_rows = rows
        began = time.perf_counter()  # placing data is not what longer blocks make rarer
        mine = self._place_tree(tree, rows)
        groups = self.layout.groups_for(len(rows))
        common = (self._shared, np.int32(self._epochs))
        placed = time.perf_counter()
        out = jax.block_until_ready(function(groups, common, mine, *self._placed))
        done = time.perf_counter()
        out = self.layout.unpack(out, len(rows))
        self._seconds += time.perf_counter() - began
        self._moving += time.perf_counter() - done + placed - began
        return out

    def _place(self, load, rows):
        return _lanes.place(load, rows, self.layout, self.mesh)

    def _place_tree(self, tree, rows):
        return self._place(lambda rows: jax.tree.map(lambda leaf: leaf[rows], tree), rows)

    def _blank(self) -> State:
        """Room for the states of all members, zero."""
        if isinstance(self.origin, State):
            return jax.tree.map(np.zeros_like, self.origin)
        one = jax.tree.map(lambda leaf: leaf[0], (self.origin, self.hyperparams))

        def shapes(key, hyperparams, own, shared):
            return start(self._task, key, with_shared(own, shared), hyperparams)

        shapes = jax.eval_shape(shapes, *one, self.held.example, self.held.shared)
        return jax.tree.map(lambda s: np.zeros((self.held.members, *s.shape), s.dtype), shapes)


@functools.lru_cache(maxsize=8)
def compiled(task: Task, mesh, most: int, begin=start) -> tuple[Any, Any]:
    """The two compiled programs of a fit: begin with members, and train them for up to ``most``
    epochs. What is common to all is what they share, and the number of epochs."""

    def first(common, origin, own, hyperparams):
        return begin(task, origin, with_shared(own, common[0]), hyperparams)

    def train(common, state, own, hyperparams):
        shared, epochs = common
        return train_block(task, state, with_shared(own, shared), hyperparams, epochs, most)

    return _lanes.spread(first, mesh), _lanes.spread(train, mesh, donate=True)


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
        if checkpoint:  # so that what follows training can fail without losing it
            schedule.save(checkpoint.path, fit)
    except KeyboardInterrupt:
        if checkpoint:
            schedule.save(checkpoint.path, fit)
        raise


def _written(state: State, rows: np.ndarray, new: State) -> State:
    """A copy of the state with new values in some rows."""
    if np.array_equal(rows, np.arange(len(state.epoch))):
        return new

    def write(leaf, value):
        leaf = leaf.copy()
        leaf[rows] = value
        return leaf

    return jax.tree.map(write, state, new)
