"""Members' states that stay on the devices between calls and are copied to the host on demand."""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Optional, TypeAlias

import jax
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Float

from forecaster.swarm.arrays.data import is_shared, total_bytes
from forecaster.swarm.arrays.members import take_members
from forecaster.swarm.arrays.variables import Variables
from forecaster.swarm.checkpoints.history import widened_losses
from forecaster.swarm.devices.inline import inline_mesh
from forecaster.swarm.devices.lanes import (
    CHUNK,
    Layout,
    Placed,
    lane_mesh,
    map_placed,
    place,
    use_all_cores,
)
from forecaster.swarm.estimators.recipe import Recipe, latest_params
from forecaster.swarm.execution.result import FitResult
from forecaster.swarm.task import Tree
from forecaster.swarm.training.loop import State, Status

_Hyperparams: TypeAlias = Mapping[str, np.ndarray]

MOST_BYTES = 2**30  # larger states are not kept on the devices

# The work of a call is, for one member, the count of weights times that of data values.
_SMALL_WORK = 2**19  # a call with at most this much work stays on one lane,
_CHUNK_WORK = 2**23  # in chunks with about this much work,
_SMALLEST_CHUNK, _LARGEST_CHUNK = 16, 64  # and members within these bounds
# One program runs many chunks where a chunk has at most this many weights and data values, which it
# copies: copying more may take longer than another call.
_MOST_COPIED = 2**16
_MOST_CHUNKS = 64


class Spread(NamedTuple):
    """How a call is spread over the devices.

    - ``lanes``: the number of lanes; None for all
    - ``chunk``: members that a lane works on at once
    - ``chunks``: the maximum number of chunks that one program runs, one after another
    """

    lanes: int | None
    chunk: int
    chunks: int = 1

    @property
    def mesh(self) -> Mesh:
        """The mesh of the lanes; that of a small call runs in the thread that calls."""
        use_all_cores()
        inline = inline_mesh() if self.is_small else None
        return lane_mesh(self.lanes) if inline is None else inline

    def layout(self, members: int) -> Layout:
        """Return the arrangement of this many members.

        The number of chunks is a power of two, since programs are compiled for each number.
        """
        layout = Layout.of(members, self.mesh.size, self.chunk)
        if self.chunks == 1:
            return layout
        return layout.with_chunks(min(self.chunks, 1 << (layout.calls - 1).bit_length()))

    @property
    def is_small(self) -> bool:
        """Whether it is the spread of a small call."""
        return self.chunk != CHUNK


def spread_of(lanes: int | None, weights: int, data: Tree) -> Spread:
    """Return how to spread a call over the devices.

    A call so short that a second lane would not help stays on one lane, with larger chunks. The
    choice depends on the size of one member, never on the number of members: programs of different
    shapes may round differently, and a member's bits must not depend on the other members.

    - ``lanes``: the number of lanes that the call may use; None for all
    - ``weights``: the number of weights of one member
    - ``data``: a tree of arrays (member, ...), or Shared ones
    """
    values = _values_per_member(data)
    work = weights * values
    if work > _SMALL_WORK or jax.default_backend() != "cpu":
        return Spread(lanes, CHUNK)
    chunk = 2 ** int(math.log2(_CHUNK_WORK / max(1, work)))
    chunk = min(max(chunk, _SMALLEST_CHUNK), _LARGEST_CHUNK)
    few = chunk * (weights + values) <= _MOST_COPIED
    return Spread(1, chunk, _MOST_CHUNKS if few else 1)


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


class Values(NamedTuple):
    """Hyperparameters on the devices; ``held``: the type and bytes of each on the host."""

    held: dict[str, tuple[np.dtype[Any], bytes]]
    placed: Placed


class States(NamedTuple):
    """States on the devices.

    - ``state``: the states without ``params``. Models with untrained state keep ``params``, because
      the compiler would otherwise round their running statistics
    - ``latest``: the latest ``params``; None where they equal the best ones, the usual case: they
      then need neither memory nor a place among the arrays of a call
    """

    spread: Spread
    state: Placed
    latest: Placed | None

    @property
    def whole(self) -> bool:
        """Whether ``state`` has ``params``."""
        return self.state.by_call[0].params is not None

    @property
    def host(self) -> State:
        """The states on the host."""
        state = self.state.host
        if self.whole:
            return state
        latest = state.best_params if self.latest is None else self.latest.host
        return state._replace(params=latest)


class OnDevices:
    """Members' states on the devices, with the losses of the steps since ``start``.

    - ``start``: the members before these steps, on the host
    - ``lanes``: how many lanes to use; None for all
    - ``states``: the current ones; None while no step has been taken
    - ``last``: the latest step; None before the first
    - ``values``: hyperparameters that are already on the devices
    """

    def __init__(
        self,
        start: FitResult,
        lanes: int | None,
        states: States | None = None,
        last: Step | None = None,
        values: dict[Spread, Values] | None = None,
    ):
        self.start, self.last = start, last
        self._lanes, self._states, self._values = lanes, states, {} if values is None else values
        self._best: dict[Spread, Placed] = {}

    @staticmethod
    def of(result: FitResult, lanes: int | None) -> Optional["OnDevices"]:
        """Return members to keep on the devices; None if their states are too large to stay."""
        return None if total_bytes(result.state) > MOST_BYTES else OnDevices(result, lanes)

    def step(
        self, recipe: Recipe, hyperparams: _Hyperparams, batch: Tree
    ) -> tuple["OnDevices", Float[np.ndarray, " member"]]:
        """Take one step of every member; return the members after it and the losses."""
        spread = self.spread(batch)
        states, values = self.states_on(spread), self.values_on(spread, hyperparams)
        function = self.function(recipe, spread)
        out = self._map(function, spread, states.state, values, batch, stay=True)
        return self.after(spread, out.by_call)

    def function(self, recipe: Recipe, spread: Spread) -> Callable[..., Tree]:
        """Return the function of one member that takes a step from states like these."""
        return recipe.step if self.states_on(spread).whole else recipe.step_best

    def after(
        self, spread: Spread, calls: Sequence[tuple[State, jax.Array]]
    ) -> tuple["OnDevices", Float[np.ndarray, " member"]]:
        """Return the members after a step, and the losses, from what each call returned."""
        before, members = self.states_on(spread), self._members
        layout, states = before.state.layout, [state for state, _ in calls]
        state = Placed(states, layout, members)
        loss = Placed([loss for _, loss in calls], layout, members).host
        latest = None
        if before.latest is not None and not all(map(_all_counted, states)):
            latest = self._map(latest_params, spread, state, before.latest, stay=True)
        # Losses that are on the host already need not be collected from each step again.
        collected = "result" in self.__dict__
        start, steps = (self.result, None) if collected else (self.start, self.last)
        last = Step(Placed([state.epoch for state in states], layout, members), loss, steps)
        now = States(spread, state, latest)
        return OnDevices(start, self._lanes, now, last, self._values), loss

    def apply(self, function: Callable[..., Tree], hyperparams: _Hyperparams, data: Tree) -> Tree:
        """Apply a function to every member's best weights, hyperparameters and data."""
        spread = self.spread(data)
        values = self.values_on(spread, hyperparams)
        return self._map(function, spread, self.best_on(spread), values, data).host

    def states_on(self, spread: Spread) -> States:
        """Return the states, spread like this."""
        states = self._states  # read once: another thread may replace them by others
        if states is None or states.spread != spread:
            state, latest = self.result.state, None
            if not isinstance(state.params, Variables):
                if not _same_bits(state.params, state.best_params):
                    latest = _on_devices(state.params, self._members, spread)
                state = state._replace(params=None)
            states = States(spread, _on_devices(state, self._members, spread), latest)
            self._states = states
        return states

    def best_on(self, spread: Spread) -> Placed:
        """Return the best weights, spread like this."""
        if spread not in self._best:
            self._best[spread] = self._best_of_states(spread)
        return self._best[spread]

    def _best_of_states(self, spread: Spread) -> Placed:
        states = self._states  # read once: another thread may replace them by others
        if states is None or states.spread != spread:
            return _on_devices(self.result.params, self._members, spread)
        state = states.state
        return Placed([call.best_params for call in state.by_call], state.layout, state.members)

    def values_on(self, spread: Spread, hyperparams: _Hyperparams) -> Placed:
        """Return hyperparameters, spread like this; copied anew where they have changed."""
        held = {name: (values.dtype, values.tobytes()) for name, values in hyperparams.items()}
        known = self._values.get(spread)
        if known and known.held == held:
            return known.placed
        kept = {name: values.copy() for name, values in hyperparams.items()}
        placed = _on_devices(kept, self._members, spread)
        self._values[spread] = Values(held, placed)
        return placed

    def spread(self, data: Tree) -> Spread:
        """Return how to spread a call on these data."""
        return spread_of(self._lanes, self._weights, data)

    @functools.cached_property
    def _weights(self) -> int:
        return _values_per_member(self.start.params)

    @property
    def _members(self) -> int:
        return len(self.start.ids)

    def _map(
        self, function: Callable[..., Tree], spread: Spread, *trees: Tree, stay: bool = False
    ) -> Placed:
        members, mesh = self._members, spread.mesh
        layout = spread.layout(members)
        return map_placed(function, *trees, members=members, layout=layout, mesh=mesh, stay=stay)

    @functools.cached_property
    def result(self) -> FitResult:
        """The members on the host."""
        if self.last is None or self._states is None:
            return self.start
        rows, steps, step = np.arange(self._members), list[Step](), self.last
        while step is not None:
            steps.append(step)
            step = step.before
        losses = widened_losses(self.start.losses, int(self.last.epochs.host.max()))
        for step in reversed(steps):
            known = ~np.isnan(step.loss)  # the members that trained
            np.asarray(losses.train)[rows[known], step.epochs.host[known] - 1] = step.loss[known]
        return FitResult(self.start.ids, self._states.host, losses, self.start.seconds)


def _on_devices(tree: Tree, members: int, spread: Spread) -> Placed:
    """Copy numpy arrays (member, ...) to the devices."""
    mesh = spread.mesh
    layout = spread.layout(members)

    def put(rows: np.ndarray) -> Tree:
        return place(lambda rows: take_members(tree, rows), rows, layout, mesh)

    return Placed([put(rows) for rows in layout.by_call(np.arange(members))], layout, members)


def _all_counted(state: State) -> bool:
    """Return whether the step that led to these states counted for all members."""
    counted = np.asarray(state.best_epoch) == np.asarray(state.epoch)
    return bool((counted & (np.asarray(state.status) != Status.DIVERGED)).all())


def _same_bits(first: Tree, second: Tree) -> bool:
    """Return whether two trees of arrays of the same shapes and types have the same bits."""
    pairs = zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True)
    return all(a is b or np.asarray(a).tobytes() == np.asarray(b).tobytes() for a, b in pairs)
