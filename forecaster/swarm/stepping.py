"""States that stay on the devices between single steps, and come to the host when looked at."""

import functools
import operator
from collections.abc import Callable, Mapping
from typing import NamedTuple, Optional, TypeAlias

import jax
import numpy as np
from jaxtyping import Float, Int

from forecaster.swarm.data import total_bytes
from forecaster.swarm.history import widened_losses
from forecaster.swarm.lanes import CHUNK, Layout, Placed, lane_mesh, map_placed, place
from forecaster.swarm.members import take_members
from forecaster.swarm.result import FitResult
from forecaster.swarm.task import Tree
from forecaster.swarm.training import State

_Hyperparams: TypeAlias = Mapping[str, np.ndarray]

MOST = 2**30  # bytes of states that stay; larger ones come and go in turns


class Step(NamedTuple):
    """One step of all members, and those before it."""

    epochs: Int[np.ndarray, " member"]
    loss: Float[np.ndarray, " member"]
    before: Optional["Step"]


class OnDevices:
    """The states of members on the devices, with the losses of the steps that led to them.

    - ``start``: the members before these steps
    - ``state``: their states now
    - ``lanes``: how many devices to use
    - ``last``: the latest step, None where there was none
    - ``placed``: hyperparameters that are on the devices already
    """

    def __init__(
        self,
        start: FitResult,
        state: Placed,
        lanes: int | None,
        last: Step | None = None,
        placed: tuple[_Hyperparams, Placed] | None = None,
    ):
        self.start, self.state, self.last = start, state, last
        self._lanes, self._placed = lanes, placed

    @staticmethod
    def of(result: FitResult, lanes: int | None) -> Optional["OnDevices"]:
        """Bring states to the devices; None where they are too large to stay there."""
        if total_bytes(result.state) > MOST:
            return None
        return OnDevices(result, _on_devices(result.state, len(result.ids), lanes), lanes)

    def step(
        self, function: Callable[..., Tree], hyperparams: _Hyperparams, batch: Tree
    ) -> tuple["OnDevices", Float[np.ndarray, " member"]]:
        """The members after a step of each on its batch, and the losses."""
        out = self._map(function, self.state, hyperparams, batch, stay=True)

        def part(tree: Callable[[tuple[State, jax.Array]], Tree]) -> Placed:
            return Placed([tree(group) for group in out.groups], out.layout, out.members)

        seen = part(lambda group: (group[0].epoch, group[1]))
        epochs, loss = seen.host
        state = part(operator.itemgetter(0))
        last = Step(epochs, loss, self.last)
        return OnDevices(self.start, state, self._lanes, last, self._placed), loss

    def predict(
        self, function: Callable[..., Tree], hyperparams: _Hyperparams, inputs: Tree
    ) -> Tree:
        """Every member's predictions by its best weights."""
        best = [state.best_params for state in self.state.groups]
        params = Placed(best, self.state.layout, self.state.members)
        return self._map(function, params, hyperparams, inputs).host

    def _map(
        self,
        function: Callable[..., Tree],
        state: Placed,
        hyperparams: _Hyperparams,
        data: Tree,
        *,
        stay: bool = False,
    ) -> Placed:
        members = self.state.members
        if self._placed is None or not _equal(self._placed[0], hyperparams):
            kept = {name: values.copy() for name, values in hyperparams.items()}
            self._placed = kept, _on_devices(kept, members, self._lanes)
        return map_placed(
            function, state, self._placed[1], data, members=members, lanes=self._lanes, stay=stay
        )

    @functools.cached_property
    def result(self) -> FitResult:
        """The members on the host."""
        if self.last is None:
            return self.start
        epochs = int(self.last.epochs.max())
        losses = widened_losses(self.start.losses, epochs)
        rows, steps, step = np.arange(len(self.start.ids)), list[Step](), self.last
        while step is not None:
            steps.append(step)
            step = step.before
        for step in reversed(steps):
            np.asarray(losses.train)[rows, step.epochs - 1] = step.loss
        return FitResult(self.start.ids, self.state.host, losses, self.start.seconds)


def _on_devices(tree: Tree, members: int, lanes: int | None) -> Placed:
    """Numpy arrays (member, ...), brought to the devices."""
    mesh = lane_mesh(lanes)
    layout = Layout.of(members, mesh.size, CHUNK)

    def group(rows: np.ndarray) -> Tree:
        return place(lambda rows: take_members(tree, rows), rows, layout, mesh)

    return Placed([group(rows) for rows in layout.turns(np.arange(members))], layout, members)


def _equal(first: _Hyperparams, second: _Hyperparams) -> bool:
    return first.keys() == second.keys() and all(
        np.array_equal(values, second[name]) for name, values in first.items()
    )
