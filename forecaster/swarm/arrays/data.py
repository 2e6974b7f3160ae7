"""The data of members: arrays with a row per member, shared arrays, or a stream."""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, TypeAlias, TypeGuard, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int
from numpy.typing import ArrayLike

from forecaster.swarm.arrays.members import take_members
from forecaster.swarm.checks import SwarmError
from forecaster.swarm.task import Data, Tree

Rows: TypeAlias = Int[np.ndarray, " row"]
"""Positions of members among the ids."""


@functools.partial(jax.tree_util.register_dataclass, data_fields=["values", "rows"], meta_fields=[])
@dataclasses.dataclass(frozen=True)
class Shared:
    """Arrays that all members learn from, kept once on every device and not copied per member.

    - ``values``: a pytree of arrays
    - ``rows``: integers (member,); member k gets ``leaf[rows[k]]`` of every leaf of ``values``, so
      that several members can share a series. Without ``rows`` each member gets the whole
      ``values``
    """

    values: Tree
    rows: Tree = None

    def __post_init__(self) -> None:
        """Turn a list or tuple of rows into an array, which is one leaf for JAX."""
        if isinstance(self.rows, list | tuple):
            object.__setattr__(self, "rows", np.asarray(cast(Any, self.rows)))


@functools.partial(jax.tree_util.register_dataclass, data_fields=["rows"], meta_fields=["number"])
@dataclasses.dataclass(frozen=True)
class Reference:
    """Placeholder in one member's data for the shared arrays with this number."""

    number: int
    rows: Tree


@dataclasses.dataclass(frozen=True)
class Streamed:
    """Data too large for memory: ``load(rows)`` returns the data of some members when needed.

    ``rows``: integers (row,), the members' positions among the ids. ``load`` returns a pytree of
    arrays (row, ...), always the same for the same rows. It is called again whenever members move
    to another position on the devices.
    """

    load: Callable[[Rows], Data]


def split_shared(data: Data) -> tuple[Data, tuple[Tree, ...]]:
    """Return a tree with References in place of Shared arrays, and the shared arrays."""
    shared: list[Tree] = []

    def refer(leaf: Tree) -> Tree:
        if not isinstance(leaf, Shared):
            return leaf
        shared.append(leaf.values)
        return Reference(len(shared) - 1, leaf.rows)

    return jax.tree.map(refer, data, is_leaf=is_shared), tuple(shared)


def with_shared(data: Data, shared: tuple[Tree, ...]) -> Data:
    """Return one member's data with the shared arrays in place of References."""

    def put(leaf: Tree) -> Tree:
        if not isinstance(leaf, Reference):
            return leaf
        values = shared[leaf.number]
        if leaf.rows is None:
            return values
        # Rows are checked on the host; clip compiles to less than a check for bounds.
        row = functools.partial(jnp.take, indices=leaf.rows, axis=0, mode="clip")
        return jax.tree.map(row, values)

    return jax.tree.map(put, data, is_leaf=is_reference)


def is_shared(leaf: object) -> TypeGuard[Shared]:
    """Return whether a leaf is :class:`Shared`."""
    return isinstance(leaf, Shared)


def is_reference(leaf: object) -> TypeGuard[Reference]:
    """Return whether a leaf is a :class:`Reference`."""
    return isinstance(leaf, Reference)


class Held:
    """The data of all members, read by rows; ``shared`` arrays are copied to every device."""

    def __init__(self, data: Data | Streamed, members: int):
        self.streamed = isinstance(data, Streamed)
        self.shared: tuple[Tree, ...] = ()
        if isinstance(data, Streamed):
            self._load = data.load
        else:
            by_member, shared = split_shared(data)
            self.shared = with_room(by_member, shared)
            self._load = functools.partial(take_members, by_member)
        first = self.rows(np.arange(1))
        self.bytes_each = total_bytes(first)
        self.example = jax.tree.map(_shape_of_one, first)
        self.members = members

    def rows(self, rows: Rows) -> Data:
        """Return the data of these members, arrays (row, ...); rows may repeat."""
        if not self.streamed:
            return self._load(rows)
        unique, back = np.unique(rows, return_inverse=True)
        data = self._load(unique)
        check_rows(data, len(unique), "load(rows)")
        if np.array_equal(unique, rows):
            return data
        return take_members(data, back)


def with_room(by_member: Data, shared: tuple[Tree, ...]) -> tuple[Tree, ...]:
    """Return the shared arrays, padded with spare rows where members select rows.

    A program is compiled for a fixed number of rows. Padding lets similar numbers of rows share a
    program, and keeps a single row from a program of its own, which would round differently.
    """
    chosen = {
        leaf.number
        for leaf in jax.tree.leaves(by_member, is_leaf=is_reference)
        if is_reference(leaf) and leaf.rows is not None
    }
    return tuple(
        jax.tree.map(padded, values) if number in chosen else values
        for number, values in enumerate(shared)
    )


def padded(leaf: ArrayLike) -> np.ndarray:
    """Return an array (row, ...) padded with copies of its first row."""
    array = np.asarray(leaf)
    spare = rounded(len(array)) - len(array)
    return np.concatenate([array, np.repeat(array[:1], spare, axis=0)]) if spare else array


def rounded(count: int) -> int:
    """Round up by at most an eighth, to an even number: similar counts share a program."""
    step = max(2, 1 << max(0, count.bit_length() - 4))
    return math.ceil(count / step) * step


def _shape_of_one(leaf: ArrayLike) -> jax.ShapeDtypeStruct:
    return shape_in_jax(np.shape(leaf)[1:], np.asarray(leaf).dtype)


def shape_in_jax(shape: tuple[int, ...], dtype: Any) -> jax.ShapeDtypeStruct:
    """Return a shape with the type that JAX keeps: without x64, numbers of 64 bits have 32.

    JAX 0.12 warns where it is asked for 64 bits that it does not keep.
    """
    kept = jax.dtypes.canonicalize_dtype(dtype, allow_extended_dtype=True)
    return jax.ShapeDtypeStruct(shape, kept)


def check_rows(tree: Tree, members: int, what: str) -> None:
    """Raise SwarmError unless every array has one row per member."""
    for path, leaf in cast(list[tuple[Any, Any]], jax.tree_util.tree_leaves_with_path(tree)):
        if np.shape(leaf)[:1] != (members,):
            raise SwarmError(
                f"{what}{jax.tree_util.keystr(path)}: expected a leading axis of {members} "
                f"members, one per id; got shape {np.shape(leaf)}. Give arrays that all members "
                "share as Shared(array)"
            )


def shared_rows(data: Data | Streamed, rows: Rows) -> Data | Streamed:
    """Return data for members that use these rows of ``data``; rows may repeat. Copies nothing."""
    if isinstance(data, Streamed):
        return Streamed(lambda some: data.load(rows[some]))

    def choose(leaf: Tree) -> Shared:
        if not is_shared(leaf):
            return Shared(leaf, rows)
        return leaf if leaf.rows is None else Shared(leaf.values, np.asarray(leaf.rows)[rows])

    return jax.tree.map(choose, data, is_leaf=is_shared)


def check_data(data: Data, members: int) -> None:
    """Raise SwarmError unless data, not streamed, fit the members, and shared rows are valid."""
    by_member, _ = split_shared(data)
    check_rows(by_member, members, "data")
    for leaf in jax.tree.leaves(data, is_leaf=is_shared):
        if isinstance(leaf, Shared):
            check_shared(leaf, members, "shared data")


def check_shared(shared: Shared, members: int, what: str) -> None:
    """Raise SwarmError unless ``rows``, if given, has one valid row per member.

    ``what``: what the error calls the arrays.
    """
    if shared.rows is None:
        return
    rows = np.asarray(shared.rows)
    if rows.shape != (members,):
        raise SwarmError(
            f"rows of {what}: expected one per member, shape ({members},); got {rows.shape}"
        )
    shapes: list[tuple[int, ...]] = [np.shape(leaf) for leaf in jax.tree.leaves(shared.values)]
    most = min(shape[0] if shape else 0 for shape in shapes)
    whole = rows.dtype.kind in "iu"
    if not whole or rows.min() < 0 or rows.max() >= most:
        span = f" from {rows.min()} to {rows.max()}" if whole else ""
        raise SwarmError(
            f"rows of {what}: expected whole numbers from 0 to {most - 1}; got {rows.dtype}{span}"
        )


def total_bytes(tree: Tree) -> int:
    """Return the bytes of all arrays of a tree."""
    return sum(np.asarray(leaf).nbytes for leaf in jax.tree.leaves(tree))
