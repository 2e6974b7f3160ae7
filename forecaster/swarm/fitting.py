"""Fit a swarm: blocks of epochs over all lanes until every member has stopped by itself.

After each block the members that have stopped leave, waiting ones take their place, and the rest
are packed densely again. So the slow members never hold up the fast ones, and the wall time
follows the work that is really done. Members differ in their epoch, never in the program.
"""

import dataclasses
import functools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from forecaster.swarm import lanes as _lanes
from forecaster.swarm.keys import member_keys
from forecaster.swarm.task import Data, Hyper, Params, Task
from forecaster.swarm.training import Losses, State, Status, start, train_block


@dataclasses.dataclass(frozen=True)
class Progress:
    """How far a fit is. Losses are those of the members' latest epochs."""

    members: int
    stopped: int
    epochs_done: int  # over all members
    epochs_at_most: int
    validation_loss: np.ndarray  # (member,), NaN before a member's first epoch
    seconds: float


@dataclasses.dataclass(frozen=True)
class Fitted:
    """What training left, a row per member in the order of ``ids``; all arrays are numpy."""

    ids: tuple[str, ...]
    params: Params  # the best weights; leaves (member, ...)
    status: np.ndarray  # (member,) of Status
    epochs: np.ndarray  # (member,) epochs trained; for a diverged member, the one it happened in
    best_epoch: np.ndarray  # (member,)
    best_loss: np.ndarray  # (member,) validation loss of the best weights
    losses: Losses  # each (member, epoch), NaN after a member stopped
    seconds: float


def fit(
    task: Task,
    data: Data,
    ids: Sequence[str],
    *,
    seed: int,
    hyper: Mapping[str, Any],
    chunk: int = 4,
    block: int = 5,
    lanes: int | None = None,
    memory: int = 512 * 2**20,
    on_progress: Callable[[Progress], None] | None = None,
) -> Fitted:
    """Train one member per id, all at the same time and each on its own.

    ``data``: a pytree of arrays with a leading member axis. ``hyper``: by name, a scalar for all
    or an array (member,); ``epochs`` and ``patience`` are read here, the rest by the optimiser.
    ``chunk``: members that one lane trains at once; ``block``: epochs between two looks from the
    host; ``memory``: bytes of data on the devices at once (a swarm that is larger goes through in
    turns). A member's result depends on its name, data, hyperparameters and the seed alone.

    Raises ValueError when ids repeat, or when data and ids differ in number.
    """
    ids = tuple(ids)
    _check_ids(ids)
    members = _lanes.members_of(data, ids)
    hyper = _per_member(hyper, members)
    mesh = _lanes.lane_mesh(lanes)
    room = max(1, memory // max(1, _lanes.total_bytes(data) // members))
    limit = max(room, mesh.size * chunk)
    layout = _lanes.Layout.of(members, mesh.size, chunk, limit)
    run = _Run(task, data, hyper, mesh, layout, block)
    return run.to_the_end(ids, member_keys(seed, ids), on_progress)


def _check_ids(ids: Sequence[str]) -> None:
    if not ids:
        raise ValueError("no members: ids is empty")
    if len(set(ids)) < len(ids):
        twice = sorted({name for name in ids if ids.count(name) > 1})
        raise ValueError(f"ids must be unique; more than once: {', '.join(twice[:5])}")


def _per_member(hyper: Mapping[str, Any], members: int) -> Hyper:
    def spread(name, value):
        value = np.asarray(value)
        value = value.astype(np.float32 if value.dtype.kind == "f" else np.int32)
        if value.shape not in ((), (members,)):
            raise ValueError(
                f"hyper[{name!r}]: expected a scalar or shape ({members},); got {value.shape}"
            )
        return np.broadcast_to(value, (members,))

    return {name: spread(name, value) for name, value in hyper.items()}


class _Run:
    """One fit under way: what is on the devices, and the host's copy of every member's state."""

    def __init__(self, task, data, hyper, mesh, layout, block):
        self.data, self.hyper, self.mesh, self.layout = data, hyper, mesh, layout
        self.block = block
        self._start, self._train = compiled(task, mesh, block)
        self._placed_rows = np.arange(0)
        self._placed: tuple[Any, Any] = (None, None)

    def to_the_end(self, ids, keys, on_progress) -> Fitted:
        began = time.perf_counter()
        members = len(ids)
        history = _History(members)
        waiting, running = np.arange(members), np.arange(0)
        state: State | None = None
        while len(waiting) or len(running):
            admitted, waiting = np.split(waiting, [self.layout.capacity - len(running)])
            if len(admitted):
                fresh = self._call(self._start, admitted, keys)
                state = _allocate(fresh, members) if state is None else state
                _write(state, admitted, fresh)
                running = np.sort(np.concatenate([running, admitted]))
            assert state is not None
            running = running[state.status[running] == Status.TRAINING]
            if len(running):
                after, losses = self._call(self._train, running, state)
                history.add(running, losses, state.epoch[running], after.epoch)
                _write(state, running, after)
                running = running[state.status[running] == Status.TRAINING]
            if on_progress:
                stopped = members - len(waiting) - len(running)
                on_progress(self._progress(state, history, stopped, time.perf_counter() - began))
        assert state is not None
        return Fitted(
            ids=ids,
            params=state.best_params,
            status=state.status,
            epochs=state.epoch,
            best_epoch=state.best_epoch,
            best_loss=state.best_loss,
            losses=history.losses(),
            seconds=time.perf_counter() - began,
        )

    def _call(self, function, rows, tree):
        """Run a compiled function on these members and bring the result back."""
        if not np.array_equal(rows, self._placed_rows):
            packed = self.layout.pack((self.data, self.hyper), rows)
            self._placed, self._placed_rows = _lanes.place(packed, self.mesh), rows
        mine = _lanes.place(self.layout.pack(tree, rows), self.mesh)
        groups = self.layout.groups_for(len(rows))
        return self.layout.unpack(function(groups, mine, *self._placed), len(rows))

    def _progress(self, state, history, stopped, seconds) -> Progress:
        ended = state.status != Status.TRAINING
        limit = np.where(ended, state.epoch, self.hyper["epochs"])
        return Progress(
            members=len(state.status),
            stopped=stopped,
            epochs_done=int(state.epoch.sum()),
            epochs_at_most=int(limit.sum()),
            validation_loss=history.latest,
            seconds=seconds,
        )


@functools.lru_cache(maxsize=8)
def compiled(task: Task, mesh, block: int):
    """The two compiled programs of a fit: start members, and train them for a block of epochs."""

    def begin(key, data, hyper):
        return start(task, key, data, hyper)

    def train(state, data, hyper):
        return train_block(task, state, data, hyper, block)

    return _lanes.spread(begin, mesh), _lanes.spread(train, mesh)


def _allocate(like: State, members: int) -> State:
    return jax.tree.map(lambda leaf: np.zeros((members, *leaf.shape[1:]), leaf.dtype), like)


def _write(state: State, rows: np.ndarray, new: State) -> None:
    def write(leaf, value):
        leaf[rows] = value

    jax.tree.map(write, state, new)


class _History:
    """Losses by member and epoch, collected block by block."""

    def __init__(self, members: int):
        self.latest = np.full(members, np.nan)
        self._train = np.full((members, 0), np.nan, np.float32)
        self._validation = np.full((members, 0), np.nan, np.float32)

    def add(self, rows: np.ndarray, losses: Losses, before: np.ndarray, after: np.ndarray) -> None:
        """Put a block's losses, (row, block epoch), in their place; members differ in epoch."""
        width = int(after.max())
        self._train = _widen(self._train, width)
        self._validation = _widen(self._validation, width)
        for place, (row, first, last) in enumerate(zip(rows, before, after, strict=True)):
            self._train[row, first:last] = losses.train[place, : last - first]
            self._validation[row, first:last] = losses.validation[place, : last - first]
            self.latest[row] = self._validation[row, last - 1]

    def losses(self) -> Losses:
        return Losses(self._train, self._validation)


def _widen(array: np.ndarray, width: int) -> np.ndarray:
    extra = max(0, width - array.shape[1])
    return np.pad(array, ((0, 0), (0, extra)), constant_values=np.nan)
