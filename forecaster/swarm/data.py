"""Where members' data come from: arrays with a row per member, shared arrays, or a stream."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from forecaster.swarm.checks import SwarmError


@jax.tree_util.register_pytree_node_class
@dataclasses.dataclass(frozen=True)
class Shared:
    """Arrays that all members learn from, kept once on every device, never copied per member.

    Without ``rows`` each member sees ``values`` as they are. With ``rows``, whole numbers
    (member,), member k sees row ``rows[k]`` of their leading axis: many members to a series.
    """

    values: Any
    rows: Any = None

    def tree_flatten(self):
        """For JAX."""
        return (self.values, self.rows), None

    @classmethod
    def tree_unflatten(cls, _, children):
        """For JAX."""
        return cls(*children)


@jax.tree_util.register_pytree_node_class
@dataclasses.dataclass(frozen=True)
class _Place:
    """Stands in one member's data for the shared arrays with this number."""

    number: int
    rows: Any

    def tree_flatten(self):
        return (self.rows,), self.number

    @classmethod
    def tree_unflatten(cls, number, children):
        return cls(number, *children)


@dataclasses.dataclass(frozen=True)
class Streamed:
    """Data too large to be held: ``load(rows)`` gives those of some members when they are due.

    ``rows``: whole numbers (n,), the members' places among the ids. The result is a pytree of
    arrays (n, ...), always the same for the same rows. Called again whenever members move.
    """

    load: Callable[[np.ndarray], Any]


def split_shared(tree: Any) -> tuple[Any, tuple[Any, ...]]:
    """Take shared arrays out of a tree; returns what has a row per member, and the shared."""
    found: list[Any] = []

    def take(leaf):
        if not isinstance(leaf, Shared):
            return leaf
        found.append(leaf.values)
        return _Place(len(found) - 1, leaf.rows)

    own = jax.tree.map(take, tree, is_leaf=lambda leaf: isinstance(leaf, Shared))
    return own, tuple(found)


def with_shared(own: Any, shared: tuple[Any, ...]) -> Any:
    """Undo :func:`split_shared` for one member: its data, shared arrays in their places."""

    def put(leaf):
        if not isinstance(leaf, _Place):
            return leaf
        values = shared[leaf.number]
        return values if leaf.rows is None else jax.tree.map(lambda a: a[leaf.rows], values)

    return jax.tree.map(put, own, is_leaf=lambda leaf: isinstance(leaf, _Place))


class Held:
    """The data of all members, read by rows. ``shared`` lies on every device."""

    def __init__(self, data: Any, members: int):
        self.streamed = isinstance(data, Streamed)
        self.shared: tuple[Any, ...] = ()
        if isinstance(data, Streamed):
            self._load = data.load
        else:
            own, self.shared = split_shared(data)
            self._load = lambda rows: jax.tree.map(lambda leaf: np.asarray(leaf)[rows], own)
        first = self.rows(np.arange(1))
        self.bytes_each = total_bytes(first)
        self.example = jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(np.shape(leaf)[1:], np.asarray(leaf).dtype), first
        )
        self.members = members

    def rows(self, rows: np.ndarray) -> Any:
        """The data of these members, arrays (row, ...). The same row may come more than once."""
        if not self.streamed:
            return self._load(rows)
        unique, back = np.unique(rows, return_inverse=True)
        tree = self._load(unique)
        check_rows(tree, len(unique), "load(rows)")
        if np.array_equal(unique, rows):
            return tree
        return jax.tree.map(lambda leaf: np.asarray(leaf)[back], tree)


def check_rows(tree: Any, members: int, what: str) -> None:
    """Check that every array has one row per member."""
    for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
        if np.ndim(leaf) == 0 or np.shape(leaf)[0] != members:
            raise SwarmError(
                f"{what}{jax.tree_util.keystr(path)}: expected a leading axis of {members} "
                f"members, one per id; got shape {np.shape(leaf)}. Arrays that all members share "
                "go in as Shared(array)"
            )


def check_data(data: Any, members: int) -> None:
    """Check the shapes of data that are not streamed, and the rows of shared arrays."""
    own, shared = split_shared(data)
    check_rows(own, members, "data")
    is_place = lambda leaf: isinstance(leaf, _Place)  # noqa: E731
    for leaf in jax.tree.leaves(own, is_leaf=is_place):
        if isinstance(leaf, _Place) and leaf.rows is not None:
            rows = np.asarray(leaf.rows)
            sizes = {
                np.shape(a)[0] if np.ndim(a) else 0 for a in jax.tree.leaves(shared[leaf.number])
            }
            if rows.dtype.kind not in "iu" or rows.min() < 0 or rows.max() >= min(sizes):
                raise SwarmError(
                    f"rows of shared data: expected whole numbers from 0 to {min(sizes) - 1}; got "
                    f"{rows.dtype} from {rows.min()} to {rows.max()}"
                )


def total_bytes(tree: Any) -> int:
    """Bytes of all arrays of a tree."""
    return sum(np.asarray(leaf).nbytes for leaf in jax.tree.leaves(tree))
