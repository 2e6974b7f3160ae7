"""Weights as one vector while they train.

An optimiser that treats every number alike then has one array to change instead of one for each
layer's weights and biases. The compiler, and small networks, spend most of their time on these
operations, and a vector leaves half of them.
"""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, cast

import jax
import jax.numpy as jnp
from jaxtyping import Float

from forecaster.swarm.arrays.variables import trained, with_trained
from forecaster.swarm.task import Hyperparams, OptState, Params, Task, Tree
from forecaster.swarm.training.loop import State
from forecaster.swarm.training.optimizers import is_elementwise

# The most weights of a member: with more, copying them costs more than it saves. With 2**16 it
# costs two hundredths of the time on an AMD EPYC, up to here nothing.
_MOST = 2**14


@dataclasses.dataclass(frozen=True)
class Vector:
    """How weights, and an optimiser's state, are laid out in vectors.

    - ``structure``, ``shapes``: structure and shapes of the tree of weights
    - ``joined``: a tree like the optimiser's state of a vector: for each array, whether it is a
      vector made of a tree like that of the weights
    """

    structure: Any
    shapes: tuple[tuple[int, ...], ...]
    joined: Tree

    @staticmethod
    def of(task: Task, state: State, hyperparams: Hyperparams) -> "Vector | None":
        """Return the layout for a member's state; None where a vector is slower or impossible."""
        leaves, structure = cast(tuple[list[Any], Any], jax.tree.flatten(trained(state.params)))
        sizes, types = [math.prod(leaf.shape) for leaf in leaves], {leaf.dtype for leaf in leaves}
        few = len(leaves) < 2 or len(types) > 1 or sum(sizes) > _MOST
        if few or not is_elementwise(task.optimizer):
            return None
        vector = jax.ShapeDtypeStruct((sum(sizes),), *types)
        optimizer = task.optimizer(hyperparams)

        def is_joined(_: Any, part: Tree) -> bool:
            return cast(Any, jax.tree.structure(part)) == structure

        memory = jax.eval_shape(optimizer.init, vector)
        joined = jax.tree.map(is_joined, memory, state.opt_state)
        return Vector(structure, tuple(tuple(leaf.shape) for leaf in leaves), joined)

    def task(self, task: Task) -> Task:
        """Return the task for weights in a vector. It can only train: ``init`` returns trees."""

        def of_vector(function: Callable[..., Any]) -> Callable[..., Any]:
            def called(params: Params, *others: Any) -> Any:
                return function(self._params(params), *others)

            return called

        return dataclasses.replace(
            task,
            loss=of_vector(task.loss),
            validate=None if task.validate is None else of_vector(task.validate),
            measure=None if task.measure is None else of_vector(task.measure),
        )

    def joined_state(self, state: State) -> State:
        """Return a member's state with vectors in place of trees."""
        return state._replace(
            params=self._joined_params(state.params),
            opt_state=self._joined_memory(state.opt_state),
            best_params=self._joined_params(state.best_params),
        )

    def state(self, state: State) -> State:
        """Return a member's state with trees in place of vectors."""

        def split(is_joined: bool, part: Any) -> Tree:  # noqa: FBT001
            return self._tree(part) if is_joined else part

        return state._replace(
            params=self._params(state.params),
            opt_state=jax.tree.map(split, self.joined, state.opt_state),
            best_params=self._params(state.best_params),
        )

    def _joined_memory(self, memory: OptState) -> OptState:
        def join(is_joined: bool, part: Tree) -> Any:  # noqa: FBT001
            return self.vector(part) if is_joined else part

        return jax.tree.map(join, self.joined, memory)

    def _joined_params(self, params: Params) -> Params:
        return with_trained(params, self.vector(trained(params)))

    def _params(self, params: Params) -> Params:
        return with_trained(params, self._tree(trained(params)))

    def vector(self, tree: Tree) -> Float[jax.Array, " number"]:
        """Return the numbers of a tree like that of the weights."""
        return jnp.concatenate([leaf.reshape(-1) for leaf in jax.tree.leaves(tree)])

    def _tree(self, vector: Float[jax.Array, " number"]) -> Tree:
        return _split(self, vector)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _split(form: Vector, vector: Float[jax.Array, " number"]) -> Tree:
    """Split a vector into its tree. Its gradient is joined at once, not part by part."""
    leaves, begin = list[jax.Array](), 0
    for shape in form.shapes:
        end = begin + math.prod(shape)
        leaves.append(vector[begin:end].reshape(shape))
        begin = end
    return jax.tree.unflatten(form.structure, leaves)


def _split_forwards(form: Vector, vector: jax.Array) -> tuple[Tree, None]:
    return _split(form, vector), None


def _split_back(form: Vector, _: None, gradient: Tree) -> tuple[jax.Array]:
    return (form.vector(gradient),)


_split.defvjp(_split_forwards, _split_back)
