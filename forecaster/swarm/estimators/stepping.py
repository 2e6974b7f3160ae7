"""Small single calls: one program of all members, whose states stay on a device between calls."""

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Optional, TypeAlias, cast

import jax
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Float

from forecaster.swarm.arrays import (
    consecutive,
    is_shared,
    split_shared,
    take_members,
    total_bytes,
    with_shared,
    write_members,
)
from forecaster.swarm.checkpoints import widened_losses
from forecaster.swarm.devices.lanes import inline_mesh, lane_mesh
from forecaster.swarm.devices.programs import first_call, in_place_of_other_mesh
from forecaster.swarm.execution.result import FitResult
from forecaster.swarm.task import Tree
from forecaster.swarm.training.loop import State, chosen_state

_Hyperparams: TypeAlias = Mapping[str, np.ndarray]

MOST_BYTES = 2**30  # larger states are not kept on a device
# A call with at most this much work, for one member the count of weights times that of data values,
# is small: done at once on one device, since a second one would not help.
_SMALL_WORK = 2**19


@functools.lru_cache(maxsize=64)
def all_at_once(function: Callable[..., Tree]) -> Callable[..., Tree]:
    """Return a program that maps a function over all members by ``vmap``, in one dispatch of JAX.

    It takes trees of arrays (member, ...) or :class:`Shared`, returns arrays (member, ...) on the
    device, and may be called inside ``jit``, ``grad``, ``vmap`` and ``scan``.
    """

    def everyone(*trees: Tree) -> Tree:
        by_member, shared = split_shared(trees)

        def one(*each: Tree) -> Tree:
            return function(*with_shared(each, shared))

        return jax.vmap(one)(*by_member)

    everyone.__name__ = f"swarm_{getattr(function, '__name__', 'function')}"
    jitted, called = cast(Any, jax.jit(everyone)), False

    def call(*trees: Tree) -> Tree:
        nonlocal called
        out = jitted(*trees) if called else first_call(jitted, *trees)
        called = True
        return out

    return call


class Step(NamedTuple):
    """The losses of one step of all members, linked to the step before it."""

    loss: Float[np.ndarray, " member"]
    before: Optional["Step"]


class OnDevice:
    """Members' states on a device, with the losses of the steps since ``start``.

    - ``start``: the members before these steps, on the host
    - ``weights``: the number of a member's weights
    - ``state``: the current states, without the latest weights; None before the first step
    - ``last``: the latest step; None before the first
    """

    def __init__(
        self, start: FitResult, weights: int, state: State | None = None, last: Step | None = None
    ):
        self.start, self.weights, self.last = start, weights, last
        if state is not None:
            self.state, self.params = state, state.best_params

    @staticmethod
    def from_result(result: FitResult) -> Optional["OnDevice"]:
        """Return members to keep on a device; None if their states are too large to stay."""
        if total_bytes(result.state) > MOST_BYTES:
            return None
        return OnDevice(result, _values_per_member(result.params))

    def is_small(self, data: Tree) -> bool:
        """Return whether a call on these data has so little work that one device does it."""
        return self.weights * _values_per_member(data) <= _SMALL_WORK

    def step(
        self, function: Callable[..., Tree], batch: Tree, hyperparams: _Hyperparams
    ) -> tuple["OnDevice", Float[np.ndarray, " member"]]:
        """Take one step of every member; return the members after it and the losses."""
        state, loss, counts = self._call(function, self.state, batch, hyperparams)
        loss = np.array(loss)
        if not np.asarray(counts).all():  # rare; a choice for each array would take a third longer
            state = self._call(chosen_state, counts, state, self.state)
        # Losses that are on the host already need not be collected from each step again.
        collected = "result" in self.__dict__
        start, steps = (self.result, None) if collected else (self.start, self.last)
        return OnDevice(start, self.weights, state, Step(loss, steps)), loss

    def apply(self, function: Callable[..., Tree], data: Tree, hyperparams: _Hyperparams) -> Tree:
        """Apply a function to every member's best weights, data and hyperparameters."""
        found = self._call(function, self.params, data, hyperparams)
        return np.array(found) if isinstance(found, jax.Array) else jax.tree.map(np.array, found)

    def _call(self, function: Callable[..., Tree], *trees: Tree) -> Tree:
        if jax.sharding.get_abstract_mesh().empty:
            return all_at_once(function)(*trees)
        with in_place_of_other_mesh(_mesh()):
            return all_at_once(function)(*trees)

    @functools.cached_property
    def state(self) -> State:
        """The states on the device, without the latest weights."""
        return _put(self.start.state._replace(params=None))

    @functools.cached_property
    def params(self) -> Tree:
        """The best weights on the device."""
        return _put(self.start.params)

    @functools.cached_property
    def result(self) -> FitResult:
        """The members on the host."""
        if self.last is None:
            return self.start
        steps, step = list[Step](), self.last
        while step is not None:
            steps.append(step)
            step = step.before
        state: State = jax.tree.map(np.array, self.state)
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


def _mesh() -> Mesh:
    """Return the mesh of one device, on a CPU one that runs in the thread that calls."""
    inline = inline_mesh() if jax.default_backend() == "cpu" else None
    return inline or lane_mesh(1)


def _put(tree: Tree) -> Tree:
    return jax.device_put(tree, next(iter(_mesh().devices.flat)))


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
