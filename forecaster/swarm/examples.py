"""Examples as callers have them, checked and brought into the shape that training wants."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from forecaster.swarm.checks import SwarmError
from forecaster.swarm.data import Shared, Streamed, check_rows
from forecaster.swarm.supervised import Supervised


def stack(arrays: Sequence[Any]) -> tuple[np.ndarray, np.ndarray]:
    """Stack members with unequal numbers of examples: arrays (member, example, ...), padded with
    zeros, and the weight (member, example), 0.0 in the padding."""
    arrays = [np.asarray(array) for array in arrays]
    if len({array.shape[1:] for array in arrays}) > 1:
        raise _different(arrays, "the shapes of single examples")
    longest = max(len(array) for array in arrays)
    out = np.zeros((len(arrays), longest, *arrays[0].shape[1:]), np.result_type(*arrays))
    weight = np.zeros((len(arrays), longest), np.float32)
    for row, array in enumerate(arrays):
        out[row, : len(array)] = array
        weight[row, : len(array)] = 1.0
    return out, weight


def training_data(
    ids: Sequence[str],
    inputs: Any,
    targets: Any,
    weight: Any,
    validation: Any,
    bootstrap: Any,
    check: bool = True,
) -> Supervised | Streamed:
    """Data of a fit; raises SwarmError when shapes do not match or a number is not finite."""
    if isinstance(inputs, Streamed):
        if targets is not None or weight is not None or validation is not None:
            raise SwarmError("streamed data bring their own targets, weight and validation")
        return _streamed(inputs, bootstrap)
    inputs, targets, weight = part(ids, inputs, targets, weight, "", check)
    if validation is None:
        return Supervised(inputs, targets, weight, bootstrap=bootstrap)
    if not isinstance(validation, tuple) or len(validation) not in (2, 3):
        raise SwarmError("validation: expected (inputs, targets) or (inputs, targets, weight)")
    x, y, used = (*validation, None)[:3]
    held_back = part(ids, x, y, used, "validation ", check)
    _same_examples(inputs, held_back[0], "training and validation inputs")
    return Supervised(inputs, targets, weight, *held_back, bootstrap=bootstrap)


def part(ids: Sequence[str], inputs: Any, targets: Any, weight: Any, what: str, check=True):
    """Inputs, targets and weight of a span, checked; the weight is 1.0 unless given."""
    shared = isinstance(inputs, Shared)
    inputs, targets = _arrays(inputs, f"{what}inputs"), _arrays(targets, f"{what}targets")
    examples = _examples(ids, inputs, f"{what}inputs")
    for name, tree in (("targets", targets), ("weight", weight)):
        if tree is not None and (found := _examples(ids, tree, what + name)) != examples:
            raise SwarmError(
                f"{what}{name}: expected {examples} examples, as in the inputs; got {found}"
            )
    if weight is None:
        ones = np.ones(examples, np.float32)
        weight = Shared(ones) if shared else np.broadcast_to(ones, (len(ids), examples))
    elif not isinstance(weight, Shared):
        weight = np.asarray(weight, np.float32)
    if check:
        _finite(ids, inputs, weight, f"{what}inputs")
        _finite(ids, targets, weight, f"{what}targets")
    return inputs, targets, weight


def _streamed(inputs: Streamed, bootstrap: Any) -> Streamed:
    def load(rows):
        loaded = inputs.load(rows)
        if not isinstance(loaded, Supervised):
            x, y, weight = (
                (*loaded, None, None)[:3] if isinstance(loaded, tuple) else (loaded, None, None)
            )
            if weight is None:
                weight = np.ones(np.shape(jax.tree.leaves(x)[0])[:2], np.float32)
            loaded = Supervised(x, y, weight)
        return loaded if bootstrap is None else loaded._replace(bootstrap=bootstrap[rows])

    return Streamed(load)


def _arrays(tree: Any, what: str) -> Any:
    """Every leaf an array. A list of arrays of one shape is stacked, members with different shapes
    are an error."""
    if isinstance(tree, list):
        arrays = [np.asarray(item) for item in tree]
        if len({array.shape for array in arrays}) > 1:
            raise _different(arrays, f"{what}: the members' shapes")
        return np.stack(arrays)
    if isinstance(tree, Shared):
        return Shared(jax.tree.map(np.asarray, tree.values), tree.rows)
    return jax.tree.map(np.asarray, tree)


def _different(arrays: Sequence[np.ndarray], what: str) -> SwarmError:
    shapes = {array.shape: row for row, array in reversed(list(enumerate(arrays)))}
    shown = ", ".join(f"{shape} (member {row})" for shape, row in sorted(shapes.items())[:4])
    return SwarmError(
        f"{what} differ: expected one shape; got {shown}. Members with unequal numbers of examples "
        "are padded by swarm.stack(arrays), which also gives the weight"
    )


def _examples(ids: Sequence[str], tree: Any, what: str) -> int:
    """How many examples a tree has; its member axis checked."""
    if isinstance(tree, Shared):
        axis = 0 if tree.rows is None else 1
        leaves = jax.tree.leaves(tree.values)
    else:
        check_rows(tree, len(ids), what)
        axis, leaves = 1, jax.tree.leaves(tree)
    found = {np.shape(leaf)[axis] if np.ndim(leaf) > axis else -1 for leaf in leaves}
    if len(found) != 1 or -1 in found:
        raise SwarmError(
            f"{what}: expected arrays ({'member, ' if axis else ''}example, ...) with the same "
            f"number of examples; got {[np.shape(leaf) for leaf in leaves]}"
        )
    return found.pop()


def _same_examples(first: Any, second: Any, what: str) -> None:
    """Examples on both sides must have the same shapes."""

    def shapes(tree):
        if isinstance(tree, Shared):
            return [
                np.shape(a)[1 if tree.rows is None else 2 :] for a in jax.tree.leaves(tree.values)
            ]
        return [np.shape(a)[2:] for a in jax.tree.leaves(tree)]

    if shapes(first) != shapes(second):
        raise SwarmError(f"{what}: single examples differ: {shapes(first)} and {shapes(second)}")


def _finite(ids: Sequence[str], tree: Any, weight: Any, what: str) -> None:
    """Every number of an example that counts must be finite."""
    shared = isinstance(tree, Shared)
    counts = np.asarray(weight.values if isinstance(weight, Shared) else weight) > 0
    if shared and not isinstance(weight, Shared):
        counts = np.ones((), bool)  # members count different examples of it: all must be finite
    elif isinstance(weight, Shared) and not shared and weight.rows is not None:
        counts = counts[weight.rows]
    for leaf in jax.tree.leaves(tree.values if shared else tree):
        if leaf.dtype.kind != "f":
            continue
        each = 1 if shared and tree.rows is None else 2  # axes before those of one example
        bad = ~np.isfinite(leaf).all(tuple(range(each, leaf.ndim))) & counts
        if not bad.any():
            continue
        *row, example = np.argwhere(bad)[0]
        at = f"example {example}"
        if shared and row:
            at = f"row {row[0]}, {at}"
        elif row:
            rows = sorted(set(np.argwhere(bad)[:, 0]))
            names = ", ".join(str(ids[number]) for number in rows[:5])
            at = f"member {ids[row[0]]}, {at} ({len(rows)} in all: {names})"
        raise SwarmError(
            f"{what}: expected finite numbers; got NaN or infinity, first in {at}. Give such "
            "examples weight 0.0, leave them out, or pass check=False: members that meet them "
            "are then set aside as diverged"
        )
