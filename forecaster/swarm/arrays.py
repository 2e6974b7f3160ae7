"""Trees of arrays with a member axis: members as rows, data that they share or own, weights.

Knows arrays alone: no devices, no training.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeGuard, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from forecaster.swarm.checks import SwarmError
from forecaster.swarm.task import AnyArray, ArrayLike, Data, Hyperparams, Params, Tree

_T = TypeVar("_T")

Selection: TypeAlias = int | Sequence[int] | np.ndarray | slice
"""Positions of members, a slice of them, or a mask (member,)."""


def take_members(tree: _T, rows: Selection) -> _T:
    """Return some members of a tree as numpy leaves (member, ...), in the order of ``rows``."""

    def take(leaf: Any) -> np.ndarray | np.generic:
        return np.asarray(leaf)[rows]

    return jax.tree.map(take, tree)


def consecutive(rows: np.ndarray) -> np.ndarray | slice:
    """Return rows as a slice if they are consecutive, so that indexing copies nothing."""
    if len(rows) and (np.diff(rows) == 1).all():
        return slice(int(rows[0]), int(rows[-1]) + 1)
    return rows


def named_leaves(tree: Any) -> list[tuple[str, np.ndarray]]:
    """Return every leaf of a tree with its name, such as ``['out']['kernel']``."""
    leaves = cast(list[tuple[Any, Any]], jax.tree_util.tree_flatten_with_path(tree)[0])
    return [(jax.tree_util.keystr(path), np.asarray(leaf)) for path, leaf in leaves]


def write_members(tree: _T, rows: np.ndarray, new: _T) -> _T:
    """Return a copy of a tree of numpy arrays (member, ...) with new values in some rows."""
    if np.array_equal(rows, np.arange(len(jax.tree.leaves(tree)[0]))):
        return new

    def write(leaf: np.ndarray, value: np.ndarray) -> np.ndarray:
        leaf = leaf.copy()
        leaf[rows] = value
        return leaf

    return jax.tree.map(write, tree, new)


def fill_members(tree: Any, rows: np.ndarray, new: Any) -> None:
    """Write new values into some rows of a tree of numpy arrays (member, ...), in place."""
    for leaf, values in zip(jax.tree.leaves(tree), jax.tree.leaves(new), strict=True):
        leaf[rows] = values


def append_members(first: _T, second: _T) -> _T:
    """Concatenate two trees of arrays (member, ...) along the member axis."""

    def append(*leaves: np.ndarray) -> np.ndarray:
        return np.concatenate(leaves)

    return jax.tree.map(append, first, second)


def mean_members(tree: _T, weights: Float[np.ndarray, " member"]) -> _T:
    """Return the weighted mean over the members of a tree of arrays (member, ...), leaves (...).

    Means of signed integers, such as step counts, are rounded. Unsigned integers and bools (raw
    random keys, flags) have no mean: the first member's are returned.
    """
    share = weights / weights.sum()

    def mean(leaf: np.ndarray) -> np.ndarray:
        if leaf.dtype.kind in "ub":
            return np.asarray(leaf[0])
        average = np.tensordot(share, leaf, 1)
        whole = leaf.dtype.kind == "i"
        return np.asarray(np.rint(average) if whole else average, leaf.dtype)

    return jax.tree.map(mean, tree)


def broadcast_params(params: _T, like: _T) -> _T:
    """Return weights in the shapes and types of ``like``, leaves (member, ...).

    ``params``: leaves (member, ...), or (...) for the same weights in all members. Raises
    SwarmError for other shapes.
    """
    shapes = jax.tree.map(np.shape, like)
    one = jax.tree.map(np.shape, take_members(like, 0))
    if (given := jax.tree.map(np.shape, params)) not in (shapes, one):
        raise SwarmError(f"params: expected shapes {shapes} or {one}; got {given}")

    def broadcast(leaf: ArrayLike, like: np.ndarray) -> np.ndarray:
        return np.array(np.broadcast_to(leaf, like.shape), like.dtype)

    return jax.tree.map(broadcast, params, like)


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


class Variables(NamedTuple):
    """The params of a model with state that no optimiser changes: running statistics, tables.

    Each training step replaces the state by the model's updated one; a prediction leaves it as it
    is. Weights and state are saved, selected, merged and chosen as the best together.
    """

    params: Params
    state: Tree


def trained(params: Params) -> Params:
    """Return the part of a model's params that an optimiser changes."""
    return params.params if isinstance(params, Variables) else params


def with_trained(params: Params, weights: Params) -> Params:
    """Return the params with other weights."""
    return params._replace(params=weights) if isinstance(params, Variables) else weights


def count_weights(params: Params) -> int:
    """Return the number of trained weights, from one member's params or their shapes."""
    return sum(math.prod(np.shape(leaf)) for leaf in jax.tree.leaves(trained(params)))


def loss_of_weights(
    loss: Callable[..., Any],
    params: Params,
    batch: Tree,
    key: jax.Array | None,
    hyperparams: Hyperparams,
) -> Callable[[Params], tuple[Float[jax.Array, ""], Tree]]:
    """Return a task's loss of a batch as a function of the trained weights, and the state."""

    def of_weights(weights: Params) -> tuple[Float[jax.Array, ""], Tree]:
        found = loss(with_trained(params, weights), batch, key, hyperparams)
        return _pair(found) if isinstance(params, Variables) else (found, None)

    return of_weights


def value_and_grad(
    loss: Callable[[Params], tuple[Float[jax.Array, ""], Tree]], params: Params
) -> tuple[Float[jax.Array, ""], Params, Params]:
    """Return a loss of weights and its gradient by them, and the params with the updated state.

    Raises SwarmError for weights that cannot be trained, such as whole numbers.
    """
    _check_types(trained(params))
    (value, state), grads = jax.value_and_grad(loss, has_aux=True)(trained(params))
    if isinstance(params, Variables):
        params = params._replace(state=jax.tree.map(_as_before, state, params.state))
    return value, grads, params


def _check_types(weights: Params) -> None:
    leaves = cast(list[tuple[Any, AnyArray]], jax.tree_util.tree_leaves_with_path(weights))
    for path, leaf in leaves:
        dtype = getattr(leaf, "dtype", None) or np.result_type(leaf)  # plain numbers, too
        if not jnp.issubdtype(dtype, np.inexact):
            raise SwarmError(
                f"params{jax.tree_util.keystr(path)}: expected a type with fractions, such as "
                f"float32, since all params are trained; got {dtype}. What is not trained "
                "belongs in the state of Variables(params, state)"
            )


def _pair(result: Any) -> tuple[jax.Array, Tree]:
    """Return the pair (loss, state) of a model with state. Raises SwarmError for anything else."""
    given = cast(tuple[Any, ...], result) if isinstance(result, tuple) else ()
    if len(given) != 2:
        raise SwarmError(
            "the loss of a model with state: expected (loss, state) in training, with the state "
            f"from Functions.train; got a {type(cast(object, result)).__name__}"
        )
    return cast(tuple[jax.Array, Tree], given)


def _as_before(leaf: AnyArray, before: AnyArray) -> jax.Array:
    """Return an array of the state in its former type, so that statistics keep their precision."""
    return jnp.asarray(leaf, before.dtype)
