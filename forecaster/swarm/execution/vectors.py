"""Weights as one vector while they train.

An optimiser that treats every number alike then has one array to change instead of one for each
layer's weights and biases. The compiler, and small networks, spend most of their time on these
operations, and a vector leaves half of them.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, cast

import jax
from jax.flatten_util import ravel_pytree

from forecaster.swarm.arrays.variables import trained, with_trained
from forecaster.swarm.task import Hyperparams, Params, Task, Tree
from forecaster.swarm.training.loop import State
from forecaster.swarm.training.optimizers import is_elementwise

# The most weights of a member: with more, copying them costs more than it saves. With 2**16 it
# costs two hundredths of the time on an AMD EPYC, up to here nothing.
_MOST = 2**14


@dataclasses.dataclass(frozen=True)
class Vector:
    """How weights, and an optimiser's state, are laid out in vectors.

    - ``tree``: returns the tree of a vector
    - ``joined``: a tree like the optimiser's state: for each array, whether it is a vector that
      joins a tree like the weights
    """

    tree: Callable[[jax.Array], Tree]
    joined: Tree

    @staticmethod
    def of(task: Task, state: State, hyperparams: Hyperparams) -> "Vector | None":
        """Return the layout for a member's state; None where a vector is slower or impossible."""
        weights = trained(state.params)
        leaves, structure = cast(tuple[list[Any], Any], jax.tree.flatten(weights))
        sizes, types = [math.prod(leaf.shape) for leaf in leaves], {leaf.dtype for leaf in leaves}
        few = len(leaves) < 2 or len(types) > 1 or sum(sizes) > _MOST
        if few or not is_elementwise(task.optimizer):
            return None

        def is_joined(_: Any, part: Tree) -> bool:
            return cast(Any, jax.tree.structure(part)) == structure

        vector = jax.ShapeDtypeStruct((sum(sizes),), *types)
        memory = jax.eval_shape(task.optimizer(hyperparams).init, vector)
        joined = jax.tree.map(is_joined, memory, state.opt_state)
        return Vector(cast(Callable[..., Tree], ravel_pytree(weights)[1]), joined)

    def task(self, task: Task) -> Task:
        """Return the task for weights in a vector. It can only train: ``init`` returns trees."""

        def of_vector(function: Callable[..., Any]) -> Callable[..., Any]:
            def called(params: Params, *others: Any) -> Any:
                return function(self._params(params), *others)

            return called

        functions = {name: getattr(task, name) for name in ("loss", "validate", "measure")}
        return dataclasses.replace(task, **jax.tree.map(of_vector, functions))

    def joined_state(self, state: State) -> State:
        """Return a member's state with vectors in place of trees."""

        def join(is_joined: bool, part: Tree) -> Any:  # noqa: FBT001
            return ravel_pytree(part)[0] if is_joined else part

        def of(params: Params) -> Params:
            return with_trained(params, ravel_pytree(trained(params))[0])

        return state._replace(
            params=of(state.params),
            opt_state=jax.tree.map(join, self.joined, state.opt_state),
            best_params=of(state.best_params),
        )

    def state(self, state: State) -> State:
        """Return a member's state with trees in place of vectors."""

        def split(is_joined: bool, part: Any) -> Tree:  # noqa: FBT001
            return self.tree(part) if is_joined else part

        return state._replace(
            params=self._params(state.params),
            opt_state=jax.tree.map(split, self.joined, state.opt_state),
            best_params=self._params(state.best_params),
        )

    def _params(self, params: Params) -> Params:
        return with_trained(params, self.tree(trained(params)))
