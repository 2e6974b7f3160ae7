"""Take, write and append members, which are rows of trees of arrays."""

from collections.abc import Sequence
from typing import Any, TypeAlias, TypeVar, cast

import jax
import numpy as np
from jaxtyping import Float

from forecaster.swarm.checks import SwarmError
from forecaster.swarm.task import ArrayLike

_T = TypeVar("_T")

Rows: TypeAlias = int | Sequence[int] | np.ndarray | slice
"""Positions of members, a slice of them, or a mask (member,)."""


def take_members(tree: _T, rows: Rows) -> _T:
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
