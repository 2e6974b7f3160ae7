"""States that stay on the devices between single calls, and come to the host when looked at."""

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
from forecaster.swarm.training.training import State

_Hyperparams: TypeAlias = Mapping[str, np.ndarray]

MOST = 2**30  # bytes of states that stay; larger ones come and go with each call

# A call is small whose weights times numbers of data are no more for a member; members go by in
# chunks that have so many together, of these sizes.
_SMALL, _TOGETHER, _FEWEST, _MOST = 2**19, 2**23, 16, 64


class Spread(NamedTuple):
    """How a call goes over the devices: on so many lanes, None for all, in chunks of a size."""

    lanes: int | None
    chunk: int


def spread_of(lanes: int | None, weights: int, data: Tree) -> Spread:
    """How to spread a call over the devices.

    One that is over before a second lane has begun stays on one, with more members in a chunk. It
    must depend on what one member has, not on how many members there are: programs of different
    shapes may round differently, and a member's bits would change with its company.

    - ``lanes``: those that a call may use
    - ``weights``: how many numbers a member's weights are
    - ``data``: a tree of arrays (member, ...), or Shared ones
    """
    work = weights * _numbers(data)
    if work > _SMALL or jax.default_backend() != "cpu":
        return Spread(lanes, CHUNK)
    chunk = 2 ** int(math.log2(_TOGETHER / max(1, work)))
    return Spread(1, min(max(chunk, _FEWEST), _MOST))


def _numbers(tree: Tree) -> int:
    """How many numbers one member has of a tree."""
    count = 0
    for leaf in jax.tree.leaves(tree, is_leaf=is_shared):
        if is_shared(leaf):
            first = 0 if leaf.rows is None else 1
            count += sum(math.prod(np.shape(each)[first:]) for each in jax.tree.leaves(leaf.values))
        else:
            count += math.prod(np.shape(leaf)[1:])
    return count


class Step(NamedTuple):
    """One step of all members, and those before it."""

    epochs: Placed
    loss: Float[np.ndarray, " member"]
    before: Optional["Step"]


class OnDevices:
    """The states of members on the devices, with the losses of the steps that led to them.

    - ``start``: the members before these steps
    - ``lanes``: how many devices to use
    - ``state``: their states now, None where they are as at the start
    - ``last``: the latest step, None where there was none
    - ``placed``: hyperparameters that are on the devices already
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
        """Members whose states stay on the devices; None where they are too large for it."""
        return None if total_bytes(result.state) > MOST else OnDevices(result, lanes)

    def step(
        self, function: Callable[..., Tree], hyperparams: _Hyperparams, batch: Tree
    ) -> tuple["OnDevices", Float[np.ndarray, " member"]]:
        """The members after a step of each on its batch, and the losses."""
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

    def use(self, function: Callable[..., Tree], hyperparams: _Hyperparams, data: Tree) -> Tree:
        """What a function makes of every member's best weights and data."""
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
        return _numbers(self.start.params)

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
            known = ~np.isnan(step.loss)  # of those that trained
            np.asarray(losses.train)[rows[known], step.epochs.host[known] - 1] = step.loss[known]
        return FitResult(self.start.ids, self._state[1].host, losses, self.start.seconds)


def _on_devices(tree: Tree, members: int, spread: Spread) -> Placed:
    """Numpy arrays (member, ...), brought to the devices."""
    mesh = lane_mesh(spread.lanes)
    layout = Layout.of(members, mesh.size, spread.chunk)

    def put(rows: np.ndarray) -> Tree:
        return place(lambda rows: take_members(tree, rows), rows, layout, mesh)

    return Placed([put(rows) for rows in layout.by_call(np.arange(members))], layout, members)


def _equal(first: _Hyperparams, second: _Hyperparams) -> bool:
    return first.keys() == second.keys() and all(
        np.array_equal(values, second[name]) for name, values in first.items()
    )
