"""All members as one function of inputs, for quick calls."""

import functools
from collections.abc import Callable, Set
from typing import Any, cast

import jax
from jax.core import Tracer

from forecaster.swarm.arrays.shapes import expecting
from forecaster.swarm.devices import stored
from forecaster.swarm.devices.programs import args_structure, calls_back, without_collections
from forecaster.swarm.estimators.recipe import Recipe
from forecaster.swarm.task import Hyperparams, Params, Tree

_MOST = 64  # shapes of inputs that are remembered


class Bound:
    """The members of a swarm as a function of inputs (member, example, ...).

    A call with inputs of the same shapes and types as in the call before is a single dispatch.
    Inside ``jit``, ``grad``, ``vmap`` and ``scan`` it is an ordinary function of JAX.
    """

    def __init__(self, recipe: Recipe, params: Params, hyperparams: Hyperparams):
        self._recipe, self._placed = recipe, (params, hyperparams)
        self._latest: Callable[..., Tree] | None = None

    def __call__(self, inputs: Tree) -> Tree:
        """Return predictions (member, example, ...), which stay on the device.

        Raises SwarmError for inputs that the model does not take.
        """
        if self._latest is not None:
            try:
                return self._latest(*self._placed, inputs)
            except (TypeError, ValueError):  # inputs of other shapes, types or devices, or traced
                pass
        with expecting({}, {}, "bind()"):
            return self._function_of(inputs)(*self._placed, inputs)

    def _function_of(self, inputs: Tree) -> Callable[..., Tree]:
        """Return the function for inputs like these; the next call tries it first."""
        leaves = jax.tree.leaves(inputs)
        if any(isinstance(leaf, Tracer) for leaf in leaves):
            return self._recipe.predict_all
        places = [
            (str(getattr(leaf, "sharding", "")), sorted(device.id for device in _devices_of(leaf)))
            for leaf in leaves
        ]
        weak = [bool(getattr(leaf, "weak_type", False)) for leaf in leaves]
        key = repr((stored.shapes_of(inputs), places, weak))
        known, whole = self._recipe.bound, (
            key, args_structure((*self._placed, inputs)), repr(stored.shapes_of(self._placed)),
            self._devices, tuple(stored.settings()),
        )  # fmt: skip
        if (found := known.get(whole)) is None:
            found = self._compiled(inputs, key)
            while len(known) >= _MOST:
                known.pop(next(iter(known)), None)
            known[whole] = found
        self._latest = found
        return found

    @functools.cached_property
    def _devices(self) -> tuple[Any, ...]:
        """The devices of weights and hyperparameters."""
        leaves = jax.tree.leaves(self._placed)
        return tuple(sorted({device for leaf in leaves for device in _devices_of(leaf)}, key=str))

    def _compiled(self, inputs: Tree, key: str) -> Callable[..., Tree]:
        """Return an executable from disk, or compiled for it; JAX's own function if it cannot be.

        ``key``: what is special about the inputs
        """
        every = self._recipe.predict_all
        places = list(self._devices)
        placed = {device for leaf in jax.tree.leaves(inputs) for device in _devices_of(leaf)}
        if len(places) != 1 or places[0].platform != "cpu" or placed - set(places):
            return every
        description = stored.description_of(self._recipe.predict)
        name = stored.name_of(description, "bound", stored.shapes_of(self._placed), key, places)
        if name is None:
            return every
        structure = args_structure((*self._placed, inputs))
        if (executable := stored.load(name, places, structure)) is not None:
            return executable
        with without_collections():
            lowered = every.lower(*self._placed, inputs)
            if calls_back(lowered.as_text()):
                return every
            return stored.compiled_and_kept(name, places, structure, lowered.compile)


def _devices_of(leaf: Any) -> Set[Any]:
    """Return the devices of an array; none if it is on the host."""
    return cast(Set[Any], leaf.devices()) if isinstance(leaf, jax.Array) else set()
