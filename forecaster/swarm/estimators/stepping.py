"""Members' states that stay on the devices between calls and are copied to the host on demand."""

import functools
import math
import operator
from collections.abc import Callable, Mapping
from typing import NamedTuple, Optional, TypeAlias

import jax
import numpy as np
from jaxtyping import Float

from forecaster.swarm.arrays.data import is_shared, total_bytes
from forecaster.swarm.arrays.members import take_members
from forecaster.swarm.checkpoints.history import widened_losses
from forecaster.swarm.devices.lanes import CHUNK, Layout, Placed, lane_mesh, map_placed, place
from forecaster.swarm.execution.result import FitResult
from forecaster.swarm.task import Tree
from forecaster.swarm.training.loop import State

_Hyperparams: TypeAlias = Mapping[str, np.ndarray]

MOST_BYTES = 2**30  # larger states are not kept on the devices

# The work of a call is, for one member, the count of weights times that of data values.
_SMALL_WORK = 2**19  # a call with at most this much work stays on one lane,
_CHUNK_WORK = 2**23  # in chunks with about this much work,
_SMALLEST_CHUNK, _LARGEST_CHUNK = 16, 64  # and members within these bounds


class Spread(NamedTuple):
    """How a call is spread over the devices: the number of lanes (None: all) and the chunk size."""

    lanes: int | None
    chunk: int


def spread_of(lanes: int | None, weights: int, data: Tree) -> Spread:
    """Return how to spread a call over the devices.

    A call so short that a second lane would not help stays on one lane, with larger chunks. The
    choice depends on the size of one member, never on the number of members: programs of different
    shapes may round differently, and a member's bits must not depend on the other members.

    - ``lanes``: the number of lanes that the call may use; None for all
    - ``weights``: the number of weights of one member
    - ``data``: a tree of arrays (member, ...), or Shared ones
    """
    work = weights * _values_per_member(data)
    if work > _SMALL_WORK or jax.default_backend() != "cpu":
        return Spread(lanes, CHUNK)
    chunk = 2 ** int(math.log2(_CHUNK_WORK / max(1, work)))
    return Spread(1, min(max(chunk, _SMALLEST_CHUNK), _LARGEST_CHUNK))


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


class Step(NamedTuple):
    """One step of all members, linked to the step before it."""

    epochs: Placed
    loss: Float[np.ndarray, " member"]
    before: Optional["Step"]


class OnDevices:
    """Members' states on the devices, with the losses of the steps since ``start``.

    - ``start``: the members before these steps, on the host
    - ``lanes``: how many lanes to use; None for all
    - ``state``: the current states; None while no step has been taken
    - ``last``: the latest step; None before the first
    - ``placed``: hyperparameters that are already on the devices
    """

    def __init__(
        self,
        start: FitResult,
        lanes: int | None,
        state: tuple[Spread, Placed] | None = None,
        last: Step | None = None,
        placed: dict[Spread, tuple[_Hyperparams, Placed]] | None = None,
    ):
        self.start, self.last = start, last
        self._lanes, self._state, self._placed = lanes, state, {} if placed is None else placed
        self._best = dict[Spread, Placed]()

    @staticmethod
    def of(result: FitResult, lanes: int | None) -> Optional["OnDevices"]:
        """Return members to keep on the devices; None if their states are too large to stay."""
        return None if total_bytes(result.state) > MOST_BYTES else OnDevices(result, lanes)

    def step(
        self, function: Callable[..., Tree], hyperparams: _Hyperparams, batch: Tree
    ) -> tuple["OnDevices", Float[np.ndarray, " member"]]:
        """Take one step of every member; return the members after it and the losses."""
        spread = self._spread(batch)
        if self._state is None or self._state[0] != spread:
            self._state = spread, _on_devices(self.result.state, len(self.start.ids), spread)
        out = self._map(function, spread, self._state[1], hyperparams, batch, stay=True)

        def part(tree: Callable[[tuple[State, jax.Array]], Tree]) -> Placed:
            return Placed([tree(call) for call in out.by_call], out.layout, out.members)

        loss = part(operator.itemgetter(1)).host
        last = Step(part(lambda call: call[0].epoch), loss, self.last)
        state = spread, part(operator.itemgetter(0))
        return OnDevices(self.start, self._lanes, state, last, self._placed), loss

    def apply(self, function: Callable[..., Tree], hyperparams: _Hyperparams, data: Tree) -> Tree:
        """Apply a function to every member's best weights, hyperparameters and data."""
        spread = self._spread(data)
        if spread not in self._best:
            self._best[spread] = self._best_on(spread)
        return self._map(function, spread, self._best[spread], hyperparams, data).host

    def _best_on(self, spread: Spread) -> Placed:
        if self._state is None or self._state[0] != spread:
            return _on_devices(self.result.params, len(self.start.ids), spread)
        state = self._state[1]
        return Placed([call.best_params for call in state.by_call], state.layout, state.members)

    def _spread(self, data: Tree) -> Spread:
        return spread_of(self._lanes, self._weights, data)

    @functools.cached_property
    def _weights(self) -> int:
        return _values_per_member(self.start.params)

    def _map(
        self,
        function: Callable[..., Tree],
        spread: Spread,
        state: Placed,
        hyperparams: _Hyperparams,
        data: Tree,
        *,
        stay: bool = False,
    ) -> Placed:
        members = state.members
        if spread not in self._placed or not _equal(self._placed[spread][0], hyperparams):
            kept = {name: values.copy() for name, values in hyperparams.items()}
            self._placed[spread] = kept, _on_devices(kept, members, spread)
        placed = self._placed[spread][1]
        return map_placed(
            function, state, placed, data, members=members, stay=stay, **spread._asdict()
        )

    @functools.cached_property
    def result(self) -> FitResult:
        """The members on the host."""
        if self.last is None or self._state is None:
            return self.start
        rows, steps, step = np.arange(len(self.start.ids)), list[Step](), self.last
        while step is not None:
            steps.append(step)
            step = step.before
        losses = widened_losses(self.start.losses, int(self.last.epochs.host.max()))
        for step in reversed(steps):
            known = ~np.isnan(step.loss)  # the members that trained
            np.asarray(losses.train)[rows[known], step.epochs.host[known] - 1] = step.loss[known]
        return FitResult(self.start.ids, self._state[1].host, losses, self.start.seconds)


def _on_devices(tree: Tree, members: int, spread: Spread) -> Placed:
    """Copy numpy arrays (member, ...) to the devices."""
    mesh = lane_mesh(spread.lanes)
    layout = Layout.of(members, mesh.size, spread.chunk)

    def put(rows: np.ndarray) -> Tree:
        return place(lambda rows: take_members(tree, rows), rows, layout, mesh)

    return Placed([put(rows) for rows in layout.by_call(np.arange(members))], layout, members)


def _equal(first: _Hyperparams, second: _Hyperparams) -> bool:
    return first.keys() == second.keys() and all(
        np.array_equal(values, second[name]) for name, values in first.items()
    )
