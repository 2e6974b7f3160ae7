"""Trees of arrays as one array for each type of number.

Between host and devices every array of every call costs some ten microseconds, however
small it is: for small networks more than their training.
"""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias, cast

import jax
import jax.numpy as jnp
import numpy as np

from forecaster.swarm.task import AnyArray, Tree

Flat: TypeAlias = dict[str, Any]
"""By the name of the type, an array (number,); of members (member, number), or (lane,
chunk, member, number)."""


class Place(NamedTuple):
    """Where a leaf's numbers are: the name of their type, from the first to before the last."""

    dtype: str
    begin: int
    end: int


@dataclasses.dataclass(frozen=True)
class Form:
    """What a member's tree is made of, in the order of its leaves.

    - ``structure``: of the tree
    - ``shapes``, ``dtypes``: of its leaves
    """

    structure: Any
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]

    @staticmethod
    def of(member: Tree) -> "Form":
        """The form of a member's tree, of arrays or of their shapes."""
        leaves, structure = cast(tuple[list[Any], Any], jax.tree.flatten(member))
        shapes = tuple(tuple(leaf.shape) for leaf in leaves)
        return Form(structure, shapes, tuple(np.dtype(leaf.dtype).name for leaf in leaves))

    @functools.cached_property
    def places(self) -> Any:
        """A tree of this structure, of a :class:`Place` for each leaf."""
        return jax.tree.unflatten(self.structure, self._places)

    @property
    def bytes(self) -> int:
        """Of a member's tree."""
        sizes = map(math.prod, self.shapes)
        return sum(n * jnp.dtype(t).itemsize for n, t in zip(sizes, self.dtypes, strict=True))

    @functools.cached_property
    def _places(self) -> list[Place]:
        places, end = list[Place](), dict.fromkeys(self.dtypes, 0)
        for shape, dtype in zip(self.shapes, self.dtypes, strict=True):
            begin = end[dtype]
            end[dtype] = begin + math.prod(shape)
            places.append(Place(dtype, begin, end[dtype]))
        return places

    def zeros(self) -> Flat:
        """As :meth:`flat` gives it."""
        totals: dict[str, int] = {}
        for place in self._places:
            totals[place.dtype] = place.end
        known = jax.dtypes.canonicalize_dtype
        return {dtype: jnp.zeros(total, known(dtype)) for dtype, total in totals.items()}

    def flat(self, tree: Tree) -> Flat:
        """A member's tree, in a program."""
        return self._joined(tree, jnp.concatenate, 0)

    def tree(self, flat: Flat, axes: int = 0) -> Any:
        """The other way round, after so many axes of other things; of numpy arrays, views."""
        leaves = [
            flat[dtype][..., begin:end].reshape(*flat[dtype].shape[:axes], *shape)
            for (dtype, begin, end), shape in zip(self._places, self.shapes, strict=True)
        ]
        return jax.tree.unflatten(self.structure, leaves)

    def where(self, condition: AnyArray, yes: Flat, no: Flat, *, first: Sequence[str]) -> Flat:
        """A flat tree of a member, whose ``first`` fields are those of one or of the other.

        All fields after them are those of ``yes``.
        """
        ends = dict.fromkeys(self.dtypes, 0)
        fields = [getattr(self.places, name) for name in first]
        for place in cast(list[Place], jax.tree.leaves(fields, is_leaf=_is_place)):
            ends[place.dtype] = max(ends[place.dtype], place.end)
        return {
            dtype: jnp.where(condition | (jnp.arange(len(array)) >= ends[dtype]), array, no[dtype])
            for dtype, array in yes.items()
        }

    def flat_rows(self, tree: Tree) -> Flat:
        """A tree of numpy arrays (member, ...)."""
        return self._joined(tree, np.concatenate, 1)

    def _joined(self, tree: Tree, concatenate: Any, axis: int) -> Flat:
        """``axis``: how many axes of the leaves stay."""
        parts: dict[str, list[Any]] = {}
        for leaf, dtype in zip(jax.tree.leaves(tree), self.dtypes, strict=True):
            size = math.prod(leaf.shape[axis:])
            leaf = leaf.astype(jax.dtypes.canonicalize_dtype(dtype), copy=False)
            parts.setdefault(dtype, []).append(leaf.reshape(*leaf.shape[:axis], size))
        return {dtype: concatenate(each, axis=axis) for dtype, each in parts.items()}


def _is_place(node: Any) -> bool:
    return isinstance(node, Place)
