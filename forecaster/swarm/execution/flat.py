"""Trees of arrays as one array for each type of number.

Every array that goes between host and devices costs about ten microseconds a call, however small it
is: for small networks more than their training.
"""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias, cast

import jax
import jax.numpy as jnp
import numpy as np

from forecaster.swarm.arrays.data import Held, with_shared
from forecaster.swarm.arrays.members import take_members
from forecaster.swarm.task import AnyArray, Data, Hyperparams, Limits, Member, Task, Tree
from forecaster.swarm.training.loop import Origin, State, start

Flat: TypeAlias = dict[str, Any]
"""Arrays by the name of their type: of one member (number,), of many (member, number) or
(lane, chunk, member, number)."""


class Slot(NamedTuple):
    """The numbers of a leaf: those from ``begin`` to before ``end`` in the array of a type."""

    dtype: str
    begin: int
    end: int


@dataclasses.dataclass(frozen=True)
class Form:
    """The structure of a member's tree, and shapes and types of its leaves."""

    structure: Any
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]

    @staticmethod
    def of(member: Tree) -> "Form":
        """Return the form of a member's tree, of arrays or of their shapes."""
        leaves, structure = cast(tuple[list[Any], Any], jax.tree.flatten(member))
        shapes = tuple(tuple(leaf.shape) for leaf in leaves)
        return Form(structure, shapes, tuple(np.dtype(leaf.dtype).name for leaf in leaves))

    @functools.cached_property
    def slots(self) -> Any:
        """A tree of this structure, with the :class:`Slot` of each leaf."""
        return jax.tree.unflatten(self.structure, self._slots)

    @property
    def bytes(self) -> int:
        """The size of a member's tree."""
        sizes = map(math.prod, self.shapes)
        return sum(n * jnp.dtype(t).itemsize for n, t in zip(sizes, self.dtypes, strict=True))

    @functools.cached_property
    def _slots(self) -> list[Slot]:
        slots, end = list[Slot](), dict.fromkeys(self.dtypes, 0)
        for shape, dtype in zip(self.shapes, self.dtypes, strict=True):
            begin = end[dtype]
            end[dtype] = begin + math.prod(shape)
            slots.append(Slot(dtype, begin, end[dtype]))
        return slots

    def blank(self, members: int) -> Any:
        """Return a tree of numpy arrays (member, ...), all zero."""
        leaves = [
            np.zeros((members, *shape), jnp.dtype(dtype))
            for shape, dtype in zip(self.shapes, self.dtypes, strict=True)
        ]
        return jax.tree.unflatten(self.structure, leaves)

    def zeros(self) -> Flat:
        """Return the arrays of one member, all zero, in a program."""
        totals = {slot.dtype: slot.end for slot in self._slots}
        known = jax.dtypes.canonicalize_dtype
        return {dtype: jnp.zeros(total, known(dtype)) for dtype, total in totals.items()}

    def flat(self, tree: Tree) -> Flat:
        """Return the arrays of one member from its tree, in a program."""
        return self._joined(tree, jnp.concatenate, 0)

    def flat_rows(self, tree: Tree) -> Flat:
        """Return the arrays (member, number) of a tree of numpy arrays (member, ...)."""
        return self._joined(tree, np.concatenate, 1)

    def tree(self, flat: Flat, axes: int = 0) -> Any:
        """Return the tree from arrays with this many leading axes; of numpy arrays, views."""
        leaves = [
            flat[dtype][..., begin:end].reshape(*flat[dtype].shape[:axes], *shape)
            for (dtype, begin, end), shape in zip(self._slots, self.shapes, strict=True)
        ]
        return jax.tree.unflatten(self.structure, leaves)

    def where(self, condition: AnyArray, yes: Flat, no: Flat, *, first: Sequence[str]) -> Flat:
        """Return ``yes``, with the ``first`` fields of ``no`` where the condition is false.

        The tree is a named tuple, and ``first`` names its first fields.
        """
        ends = dict.fromkeys(self.dtypes, 0)
        fields = [getattr(self.slots, name) for name in first]
        for slot in cast(list[Slot], jax.tree.leaves(fields, is_leaf=_is_slot)):
            ends[slot.dtype] = max(ends[slot.dtype], slot.end)
        return {
            dtype: jnp.where(condition | (jnp.arange(len(array)) >= ends[dtype]), array, no[dtype])
            for dtype, array in yes.items()
        }

    def _joined(self, tree: Tree, concatenate: Any, axis: int) -> Flat:
        """Join the leaves of each type, behind ``axis`` leading axes that stay."""
        parts: dict[str, list[Any]] = {}
        for leaf, dtype in zip(jax.tree.leaves(tree), self.dtypes, strict=True):
            size = math.prod(leaf.shape[axis:])
            leaf = leaf.astype(jax.dtypes.canonicalize_dtype(dtype), copy=False)
            parts.setdefault(dtype, []).append(leaf.reshape(*leaf.shape[:axis], size))
        return {dtype: concatenate(each, axis=axis) for dtype, each in parts.items()}


def _is_slot(node: Any) -> bool:
    return isinstance(node, Slot)


def state_form(
    task: Task, held: Held, hyperparams: Hyperparams, limits: Limits, origin: Origin
) -> Form:
    """Return the form of one member's state. Hyperparameters, limits and origin: (member, ...)."""
    if isinstance(origin, State):
        return Form.of(take_members(origin, 0))

    def first_state(
        key: jax.Array, hyperparams: Hyperparams, limits: Limits, unshared: Data, shared: Data
    ) -> State:
        return start(task, key, Member(with_shared(unshared, shared), hyperparams, limits))

    shapes = *take_members((origin, hyperparams, limits), 0), held.example, held.shared
    return Form.of(jax.eval_shape(first_state, *shapes))
