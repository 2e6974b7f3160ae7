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
import numpy as np
from jaxtyping import Float

from forecaster.swarm.arrays.variables import trained, with_trained
from forecaster.swarm.task import AnyArray, Hyperparams, Params, Task, Tree
from forecaster.swarm.training.loop import State
from forecaster.swarm.training.optimizers import is_elementwise

# The most weights of a member: with more, copying them costs more than it saves. With 2**16 it
# costs two hundredths of the time on an AMD EPYC, up to here nothing.
_MOST = 2**14


@dataclasses.dataclass(frozen=True)
class Vector:
    """How weights, and an optimiser's state, are laid out in vectors.

    - ``structure``, ``shapes``: structure and shapes of the tree of weights
    - ``memory``: the structure of the optimiser's state of a vector
    - ``joined``: for each of its arrays, whether it is a vector made of a tree like that of the
      weights
    """

    structure: Any
    shapes: tuple[tuple[int, ...], ...]
    memory: Any
    joined: tuple[bool, ...]

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
        memory = cast(Any, jax.tree.structure(jax.eval_shape(optimizer.init, vector)))
        parts = memory.flatten_up_to(state.opt_state)
        joined = tuple(cast(Any, jax.tree.structure(part)) == structure for part in parts)
        return Vector(structure, tuple(tuple(leaf.shape) for leaf in leaves), memory, joined)

    def task(self, task: Task) -> Task:
        """Return the task for weights in a vector. It can only train: ``init`` returns trees."""

        def of_vector(function: Callable[..., Any]) -> Callable[..., Any]:
            def called(params: Params, *others: Any) -> Any:
                weights = self.tree(cast(jax.Array, trained(params)))
                return function(with_trained(params, weights), *others)

            return called

        return dataclasses.replace(
            task,
            loss=of_vector(task.loss),
            validate=None if task.validate is None else of_vector(task.validate),
            measure=None if task.measure is None else of_vector(task.measure),
        )

    def joined_state(self, state: State) -> State:
        """Return a member's state with vectors in place of trees."""
        return self._with(state, self.vector)

    def joined_rows(self, state: State) -> State:
        """Return states (member, ...) of numpy arrays, with vectors in place of trees."""
        return self._with(state, _joined_rows)

    def state(self, state: State) -> State:
        """Return a member's state with trees in place of vectors."""
        return self._with(state, self.tree)

    def state_rows(self, state: State) -> State:
        """Return states (member, ...) of numpy arrays, with trees in place of vectors."""
        return self._with(state, self.parts)

    def vector(self, tree: Tree) -> Float[jax.Array, " number"]:
        """Return the numbers of a tree like that of the weights."""
        return jnp.concatenate([leaf.reshape(-1) for leaf in jax.tree.leaves(tree)])

    def tree(self, vector: Float[jax.Array, " number"]) -> Tree:
        """Return the tree of a vector, in a program."""
        return _split(self, vector)

    def parts(self, numbers: Float[AnyArray, "*member number"]) -> Tree:
        """Return the tree of one vector, or of many; of numpy arrays, copies where it must be."""
        leaves, begin = list[Any](), 0
        for shape in self.shapes:
            end = begin + math.prod(shape)
            leaves.append(numbers[..., begin:end].reshape(*numbers.shape[:-1], *shape))
            begin = end
        return jax.tree.unflatten(self.structure, leaves)

    def _with(self, state: State, change: Callable[[Any], Any]) -> State:
        """Return a state with weights, and the optimiser's arrays that are like them, changed."""
        memory = zip(self.joined, self.memory.flatten_up_to(state.opt_state), strict=True)
        parts = [change(part) if is_joined else part for is_joined, part in memory]
        return state._replace(
            params=with_trained(state.params, change(trained(state.params))),
            opt_state=self.memory.unflatten(parts),
            best_params=with_trained(state.best_params, change(trained(state.best_params))),
        )


def _joined_rows(tree: Tree) -> Float[np.ndarray, "member number"]:
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]
    return np.concatenate([leaf.reshape(len(leaf), -1) for leaf in leaves], axis=1)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _split(form: Vector, vector: Float[jax.Array, " number"]) -> Tree:
    """Split a vector into its tree. Its gradient is joined at once, not part by part."""
    return form.parts(vector)


def _split_forwards(form: Vector, vector: jax.Array) -> tuple[Tree, None]:
    return _split(form, vector), None


def _split_back(form: Vector, _: None, gradient: Tree) -> tuple[jax.Array]:
    return (form.vector(gradient),)


_split.defvjp(_split_forwards, _split_back)
