"""Members' states that stay on the devices between calls and are copied to the host on demand."""

import functools
import math
from collections.abc import Callable, Mapping
from typing import NamedTuple, Optional, TypeAlias

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import Float

from forecaster.swarm.arrays.data import is_shared, padded, rounded, total_bytes
from forecaster.swarm.arrays.members import consecutive, take_members, write_members
from forecaster.swarm.checkpoints.history import widened_losses
from forecaster.swarm.devices.inline import inline_mesh
from forecaster.swarm.devices.lanes import (
    CHUNK,
    Layout,
    as_jax,
    at_once,
    check_not_forked,
    lane_mesh,
    over_lanes,
    packed_members,
    split_trees,
    unpack_chunks,
)
from forecaster.swarm.devices.programs import Program
from forecaster.swarm.execution.result import FitResult
from forecaster.swarm.task import AnyArray, Tree
from forecaster.swarm.training.loop import State

_Hyperparams: TypeAlias = Mapping[str, np.ndarray]

MOST_BYTES = 2**30  # larger states and data are not kept on the devices
# A call with at most this much work, for one member the count of weights times that of data values,
# is done at once on one device: a second one would not help.
_SMALL_WORK = 2**19


class Spread(NamedTuple):
    """How a call is spread over the devices: a small one is all members at once, on one.

    ``lanes``: the number of lanes of a call that is not small; None for all
    """

    lanes: int | None
    small: bool

    @staticmethod
    def of(lanes: int | None, weights: int, data: Tree) -> "Spread":
        """Return how to spread a call; ``weights``: the number of weights of one member."""
        work = weights * _values_per_member(data)
        return Spread(lanes, work <= _SMALL_WORK and jax.default_backend() == "cpu")

    @property
    def mesh(self) -> Mesh:
        """The mesh of the lanes; that of a small call runs in the thread that calls."""
        check_not_forked()
        inline = inline_mesh() if self.small else None
        return inline or lane_mesh(1 if self.small else self.lanes)

    def program(self, function: Callable[..., Tree]) -> Program:
        """Return the program of a function of one member."""
        return (at_once if self.small else over_lanes)(function, self.mesh)

    def packed(self, tree: Tree, members: int) -> Tree:
        """Return arrays (member, ...) as the program takes them."""
        if self.small:
            return jax.tree.map(_padded, tree)
        layout = Layout.of(members, self.mesh.size, CHUNK)
        return packed_members(tree, np.arange(members), layout.with_chunks(rounded(layout.calls)))

    def unpacked(self, tree: Tree, members: int) -> Tree:
        """Return what the program returned as numpy arrays (member, ...)."""
        if self.small:
            return jax.tree.map(np.copy, take_members(tree, slice(members)))
        return unpack_chunks([tree], [members])


def _values_per_member(tree: Tree) -> int:
    """Return the number of array elements that one member has in a tree."""
    count = 0
    for leaf in jax.tree.leaves(tree, is_leaf=is_shared):
        if is_shared(leaf):
            first = 0 if leaf.rows is None else 1
            count += sum(math.prod(np.shape(each)[first:]) for each in jax.tree.leaves(leaf.values))
        else:
            count += math.prod(np.shape(leaf)[1:])
    return count


def _padded(leaf: AnyArray) -> np.ndarray:
    return as_jax(padded(leaf))


class Step(NamedTuple):
    """The losses of one step of all members, linked to the step before it."""

    loss: Float[np.ndarray, " member"]
    before: Optional["Step"]


class OnDevices:
    """Members' states on the devices, with the losses of the steps since ``start``.

    - ``start``: the members before these steps, on the host
    - ``lanes``: how many lanes to use; None for all
    - ``spread``, ``state``: the current states, without the latest weights, and how they are
      spread; None before the first step
    - ``last``: the latest step; None before the first
    """

    def __init__(
        self,
        start: FitResult,
        lanes: int | None,
        spread: Spread | None = None,
        state: State | None = None,
        last: Step | None = None,
    ):
        self.start, self.last = start, last
        self._lanes, self._spread, self._state = lanes, spread, state
        self._placed: dict[tuple[str, Spread], Tree] = {}

    @staticmethod
    def of(result: FitResult, lanes: int | None) -> Optional["OnDevices"]:
        """Return members to keep on the devices; None if their states are too large to stay."""
        return None if total_bytes(result.state) > MOST_BYTES else OnDevices(result, lanes)

    def step(
        self, function: Callable[..., Tree], hyperparams: _Hyperparams, batch: Tree
    ) -> tuple["OnDevices", Float[np.ndarray, " member"]]:
        """Take one step of every member; return the members after it and the losses."""
        spread = Spread.of(self._lanes, self._weights, batch)
        state, loss = self._call(function, spread, "state", hyperparams, batch)
        loss = spread.unpacked(loss, self._members)
        # Losses that are on the host already need not be collected from each step again.
        collected = "result" in self.__dict__
        start, steps = (self.result, None) if collected else (self.start, self.last)
        return OnDevices(start, self._lanes, spread, state, Step(loss, steps)), loss

    def apply(self, function: Callable[..., Tree], hyperparams: _Hyperparams, data: Tree) -> Tree:
        """Apply a function to every member's best weights, hyperparameters and data."""
        spread = Spread.of(self._lanes, self._weights, data)
        found = self._call(function, spread, "params", hyperparams, data)
        return spread.unpacked(found, self._members)

    def _call(
        self, function: Callable[..., Tree], spread: Spread, which: str, *trees: Tree
    ) -> Tree:
        """Call a program on states, or on best ``params``, and on trees from the host."""
        by_member, shared = split_trees(trees)
        args = spread.packed(by_member, self._members)
        return spread.program(function)(shared, None, self._on(spread, which), *args)

    def _on(self, spread: Spread, which: str) -> Tree:
        """Return the ``state`` or the best ``params``, spread like this."""
        if self._state is not None and spread == self._spread:
            return self._state if which == "state" else self._state.best_params
        if (which, spread) not in self._placed:
            tree = self.result.params
            if which == "state":
                tree = self.result.state._replace(params=None)
            packed = spread.packed(tree, self._members)
            lanes = NamedSharding(spread.mesh, P("lane"))
            self._placed[which, spread] = jax.device_put(packed, lanes)
        return self._placed[which, spread]

    @functools.cached_property
    def _weights(self) -> int:
        return _values_per_member(self.start.params)

    @property
    def _members(self) -> int:
        return len(self.start.ids)

    @functools.cached_property
    def result(self) -> FitResult:
        """The members on the host."""
        if self.last is None or self._spread is None:
            return self.start
        steps, step = list[Step](), self.last
        while step is not None:
            steps.append(step)
            step = step.before
        state: State = self._spread.unpacked(self._state, self._members)
        # The latest weights are the best ones, but for members of which no step counted.
        stepped = np.flatnonzero(state.best_epoch != self.start.state.best_epoch)
        best = take_members(state.best_params, consecutive(stepped))
        state = state._replace(params=write_members(self.start.state.params, stepped, best))
        losses = widened_losses(self.start.losses, int(state.epoch.max()))
        epochs = np.array(self.start.state.epoch)
        for step in reversed(steps):
            known = np.flatnonzero(~np.isnan(step.loss))  # the members that trained
            epochs[known] += 1
            np.asarray(losses.train)[known, epochs[known] - 1] = step.loss[known]
        return FitResult(self.start.ids, state, losses, self.start.seconds)
