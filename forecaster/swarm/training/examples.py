"""Check the examples that callers give, and bring them into the form of training data."""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias, cast

import jax
import numpy as np
from jaxtyping import Bool, Float, Float32, Shaped, UInt32
from numpy.typing import ArrayLike

from forecaster.swarm.arrays import Rows, Shared, Streamed, check_rows, check_shared, is_shared
from forecaster.swarm.checks import SwarmError
from forecaster.swarm.task import AnyArray, Data, Tree

_Weight: TypeAlias = Float[AnyArray, "*member example"] | Shared
_Keys: TypeAlias = UInt32[np.ndarray, "member 2"]


class Supervised(NamedTuple):
    """The examples of one member. In a swarm each array has a leading member axis, or is Shared."""

    inputs: Tree  # arrays (example, ...)
    targets: Tree  # arrays (example, ...), or None
    weight: _Weight  # 1.0, or 0.0 for padding
    validation_inputs: Tree = None  # arrays (example, ...)
    validation_targets: Tree = None  # arrays (example, ...)
    validation_weight: _Weight | None = None
    # A raw key, which decides a bootstrap sample to learn from; None: learn from all examples.
    bootstrap: UInt32[AnyArray, "*member 2"] | None = None


def stack(
    arrays: Sequence[ArrayLike],
) -> tuple[Shaped[np.ndarray, "member example ..."], Float32[np.ndarray, "member example"]]:
    """Stack members with unequal numbers of examples; returns the array and its weight.

    Each array is (example, ...). Shorter ones are padded with zeros, whose weight is 0.0. Raises
    SwarmError when there are no arrays, and when single examples have different shapes.
    """
    arrays = [_numbers(array, "arrays") for array in arrays]
    if not arrays:
        raise SwarmError("arrays: expected one per member; got none")
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
    inputs: Tree | Streamed,
    targets: Tree,
    weight: Tree,
    validation: Tree,
    bootstrap: _Keys | None,
    *,
    check: bool = True,
) -> Supervised | Streamed:
    """Check the data of a fit and combine them.

    - ``ids``: the members' names.
    - ``inputs``, ``targets``: pytrees of arrays (member, example, ...), or Shared ones; or
      Streamed inputs, which bring the rest.
    - ``weight``: (member, example), or None for 1.0 throughout.
    - ``validation``: (inputs, targets) or (inputs, targets, weight), or None.
    - ``bootstrap``: raw keys of the members' bootstrap samples, or None for all examples.
    - ``check``: whether all numbers must be finite.

    Raises SwarmError when shapes do not match or a number is not finite.
    """
    if isinstance(inputs, Streamed):
        if targets is not None or weight is not None or validation is not None:
            raise SwarmError(
                "streamed data bring their own targets, sample_weight and validation_data"
            )
        return _streamed(ids, inputs, bootstrap)
    training = part(ids, inputs, targets, weight, "", check=check)
    if validation is None:
        return Supervised(*training, bootstrap=bootstrap)
    if not isinstance(validation, tuple) or len(cast(tuple[Tree, ...], validation)) not in (2, 3):
        raise SwarmError(
            "validation_data: expected (inputs, targets) or (inputs, targets, sample_weight)"
        )
    x, y, used = (*cast(tuple[Tree, ...], validation), None)[:3]
    held_back = part(ids, x, y, used, "validation ", check=check)
    one, other = _shapes_of_one(training[0]), _shapes_of_one(held_back[0])
    if one != other:
        raise SwarmError(
            f"training and validation inputs: single examples differ: {one} and {other}"
        )
    return Supervised(*training, *held_back, bootstrap=bootstrap)


def first_of(data: Supervised | Streamed) -> Supervised:
    """Return the data; of streamed data only those of the first member."""
    return cast(Supervised, data.load(np.arange(1))) if isinstance(data, Streamed) else data


def part(
    ids: Sequence[str],
    inputs: Tree,
    targets: Tree,
    weight: Tree,
    what: str,
    *,
    check: bool = True,
) -> tuple[Tree, Tree, _Weight]:
    """Return inputs, targets and weight; arguments as of :func:`training_data`.

    - ``weight``: None for 1.0 throughout
    - ``what``: how errors name the examples
    """
    inputs = _arrays(inputs, f"{what}inputs")
    targets = None if targets is None else _arrays(targets, f"{what}targets")
    examples = _examples(ids, inputs, f"{what}inputs")
    if examples < 1:
        raise SwarmError(f"{what}inputs: expected at least one example; got none")
    for name, tree in (("targets", targets), ("sample_weight", weight)):
        if tree is not None and (count := _examples(ids, tree, what + name)) != examples:
            raise SwarmError(
                f"{what}{name}: expected {examples} examples, as in the inputs; got {count}"
            )
    if weight is None:
        weight = Shared(np.ones(examples, np.float32))
    else:
        weight = _checked_weight(ids, weight, f"{what}sample_weight")
    if check:
        _finite(ids, inputs, weight, f"{what}inputs")
        if targets is not None:
            _finite(ids, targets, weight, f"{what}targets")
    return inputs, targets, weight


def checked_inputs(ids: Sequence[str], inputs: Tree, *, check: bool) -> Tree:
    """Check the inputs of a prediction, of any number of examples; see :func:`training_data`."""
    inputs = _arrays(inputs, "inputs")
    _examples(ids, inputs, "inputs")
    if check:
        _finite(ids, inputs, None, "inputs")
    return inputs


def validated_data(ids: Sequence[str], data: Data | Streamed) -> Data | Streamed:
    """Check that each member has a validation example; of streamed data when they are loaded."""
    if not isinstance(data, Streamed):
        check_validated(ids, data)
        return data

    def load(rows: Rows) -> Data:
        loaded = data.load(rows)
        check_validated([ids[int(row)] for row in rows], loaded)
        return loaded

    return Streamed(load)


def check_validated(ids: Sequence[str], data: Data) -> None:
    """Raise SwarmError where a member has no validation example to choose the weights by."""
    if not isinstance(data, Supervised) or (weight := data.validation_weight) is None:
        return
    rows = weight.rows if isinstance(weight, Shared) else None
    counts = np.asarray(weight.values if isinstance(weight, Shared) else weight) > 0
    counts = counts if rows is None else counts[rows]
    nobody = np.flatnonzero(~np.broadcast_to(counts.any(-1), len(ids)))
    if len(nobody):
        names = ", ".join(ids[int(row)] for row in nobody[:5])
        raise SwarmError(
            "validation_data: expected an example with a sample_weight above 0.0 for each member; "
            f"got none for {len(nobody)}: {names}. Give them some, or train "
            "them in a swarm without validation_data"
        )


def _checked_weight(ids: Sequence[str], weight: Tree, what: str) -> _Weight:
    """Return a weight as float32. Raises SwarmError unless it is 0.0 or more for each example."""
    shared = isinstance(weight, Shared)
    given = _numbers(weight.values if shared else weight, what)
    axes = 1 if shared and weight.rows is None else 2  # (example,) or (member or row, example)
    if given.ndim != axes:
        expected = "(example,)" if axes == 1 else "(member, example)"
        raise SwarmError(f"{what}: expected shape {expected}; got {given.shape}")
    values = given.astype(np.float32, copy=False)
    bad = ~(np.isfinite(values) & (values >= 0))
    if bad.any():
        raise SwarmError(
            f"{what}: expected finite numbers of 0.0 or more; got {values[bad][0]}, first in "
            f"{_where_first(bad, None if shared else ids)}"
        )
    return Shared(values, weight.rows) if shared else values


def _numbers(given: Any, what: str) -> np.ndarray:
    """Return an array. Raises SwarmError unless it holds numbers."""
    if type(given) is np.ndarray and given.dtype.kind in "fiub":
        return given
    if isinstance(given, Shared):
        raise SwarmError(f"{what}: expected arrays in Shared(...); got Shared in Shared")
    try:
        array = np.asarray(given)
    except ValueError as error:
        raise SwarmError(f"{what}: expected an array of numbers; {error}") from error
    if array.dtype.kind in "OUSMm":
        raise SwarmError(
            f"{what}: expected numbers; got an array of {array.dtype}. Convert it first, as in "
            "array.astype(np.float32)"
        )
    return array


def _streamed(ids: Sequence[str], inputs: Streamed, bootstrap: _Keys | None) -> Streamed:
    """Return a stream of Supervised from one of inputs, (inputs, targets[, weight]) or of that."""

    def load(rows: Rows) -> Supervised:
        loaded, names = inputs.load(rows), [ids[int(row)] for row in rows]
        if not isinstance(loaded, Supervised):
            given = cast(tuple[Tree, ...], loaded) if isinstance(loaded, tuple) else (loaded,)
            x, y, weight = (*given, None, None)[:3]
            if weight is None:
                weight = np.ones(np.shape(jax.tree.leaves(x)[0])[:2], np.float32)
            loaded = Supervised(x, y, weight)
        loaded = loaded._replace(weight=_checked_weight(names, loaded.weight, "sample_weight"))
        if loaded.validation_weight is not None:
            used = _checked_weight(names, loaded.validation_weight, "validation sample_weight")
            loaded = loaded._replace(validation_weight=used)
        return loaded if bootstrap is None else loaded._replace(bootstrap=bootstrap[rows])

    return Streamed(load)


def _arrays(tree: Tree, what: str) -> Tree:
    """Return a tree with an array in every leaf; stack a list of members' arrays.

    Raises SwarmError where members have different shapes.
    """
    numbers = functools.partial(_numbers, what=what)
    if isinstance(tree, list):
        arrays = [numbers(item) for item in cast(list[ArrayLike], tree)]
        if len({array.shape for array in arrays}) > 1:
            raise _different(arrays, f"{what}: the members' shapes")
        if not arrays:
            raise SwarmError(f"{what}: expected an array per member; got an empty list")
        return np.stack(arrays)
    if isinstance(tree, Shared):
        values = jax.tree.map(numbers, tree.values, is_leaf=is_shared)
        return Shared(values, tree.rows)
    return numbers(tree) if isinstance(tree, np.ndarray) else jax.tree.map(numbers, tree)


def _different(arrays: Sequence[np.ndarray], what: str) -> SwarmError:
    shapes = {array.shape: row for row, array in reversed(list(enumerate(arrays)))}
    shown = ", ".join(f"{shape} (member {row})" for shape, row in sorted(shapes.items())[:4])
    return SwarmError(
        f"{what} differ: expected one shape; got {shown}. Members with unequal numbers of examples "
        "are padded by swarm.stack(arrays), which also gives the weight"
    )


def _examples(ids: Sequence[str], tree: Tree, what: str) -> int:
    """Return the number of examples of a tree, and check its member axis."""
    leaves, axes = _leaves(tree)
    shapes = {np.shape(leaf)[:axes] for leaf in leaves}
    if isinstance(tree, Shared):
        check_shared(tree, len(ids), what)
    elif any(shape[:1] != (len(ids),) for shape in shapes):
        check_rows(tree, len(ids), what)
    counts = {shape[-1] if len(shape) == axes else -1 for shape in shapes}
    if len(counts) != 1 or -1 in counts:
        shapes = ", ".join(str(np.shape(leaf)) for leaf in leaves[:5])
        more = f" and {len(leaves) - 5} more" if len(leaves) > 5 else ""
        raise SwarmError(
            f"{what}: expected arrays ({'member, ' if axes > 1 else ''}example, ...) with the same "
            f"number of examples; got shapes {shapes}{more}"
        )
    return counts.pop()


def _shapes_of_one(tree: Tree) -> list[tuple[int, ...]]:
    """Return the shapes of a single example."""
    leaves, axes = _leaves(tree)
    return [np.shape(leaf)[axes:] for leaf in leaves]


def _leaves(tree: Tree) -> tuple[list[Any], int]:
    """Return a tree's arrays, and the number of axes before those of a single example."""
    shared = isinstance(tree, Shared)
    leaves = jax.tree.leaves(tree.values if shared else tree)
    return leaves, 1 if shared and tree.rows is None else 2


def _finite(ids: Sequence[str], tree: Tree, weight: _Weight | None, what: str) -> None:
    """Raise SwarmError unless every number of an example that counts is finite."""
    leaves, axes = _leaves(tree)
    for leaf in leaves:
        if (finite := representable(leaf)).all():
            continue
        bad = ~finite.all(tuple(range(axes, leaf.ndim))) & _counting(tree, weight)
        if bad.any():
            where = _where_first(bad, None if isinstance(tree, Shared) else ids)
            raise SwarmError(
                f"{what}: expected finite numbers of the bits that JAX keeps, 32 unless told "
                f"otherwise; got {np.asarray(leaf)[~finite][0]} ({np.asarray(leaf).dtype}), first "
                f"in {where}. Give such examples "
                "sample_weight 0.0, leave them out, or pass check=False: members that train on "
                "them are then set aside as diverged"
            )


def representable(leaf: AnyArray) -> Bool[np.ndarray, "..."]:
    """Return where numbers are finite, and representable in the type that JAX computes with."""
    array = np.asarray(leaf)
    dtype = jax.dtypes.canonicalize_dtype(array.dtype)
    if dtype == array.dtype:
        return np.isfinite(array)
    with np.errstate(over="ignore"):
        kept = array.astype(dtype)
    return kept == array if dtype.kind in "iub" else np.isfinite(kept)


def _counting(tree: Tree, weight: _Weight | None) -> Bool[np.ndarray, "..."]:
    """Return which examples of a tree count, in a shape that broadcasts with them."""
    if weight is None or (isinstance(tree, Shared) and not isinstance(weight, Shared)):
        return np.ones((), bool)  # members count different examples: all must be finite
    if not isinstance(weight, Shared):
        return np.asarray(weight) > 0
    counts = np.asarray(weight.values) > 0
    return counts if isinstance(tree, Shared) or weight.rows is None else counts[weight.rows]


def _where_first(bad: Bool[np.ndarray, "*row example"], ids: Sequence[str] | None) -> str:
    """Describe where the first bad example is, by member, or by row of shared arrays."""
    *row, example = np.argwhere(bad)[0]
    if not row:
        return f"example {example}"
    if ids is None:
        return f"row {row[0]}, example {example}"
    rows = sorted(set(np.argwhere(bad)[:, 0]))
    names = ", ".join(str(ids[number]) for number in rows[:5])
    return f"member {ids[row[0]]}, example {example} ({len(rows)} in all: {names})"


class Folds(NamedTuple):
    """The weights of examples in each fold: 1.0 for those that count, 0.0 for the others."""

    train: Float32[np.ndarray, "fold example"]
    held_out: Float32[np.ndarray, "fold example"]


def kfold_weights(examples: int, folds: int, *, seed: int) -> Folds:
    """Return weights for K-fold cross-validation, where each fold is a member of one swarm.

    The seed shuffles the examples into folds whose sizes differ by one at most. Each example is
    held out of one fold and trained on in all others. Give the data themselves once, as
    :class:`Shared`. Raises SwarmError unless ``folds`` is from 2 to ``examples``.
    """
    if not 2 <= folds <= examples:
        raise SwarmError(f"folds: expected 2 to {examples}, one per example at most; got {folds}")
    dealt = np.empty(examples, int)
    dealt[np.random.default_rng(seed).permutation(examples)] = np.arange(examples) % folds
    held_out = (dealt == np.arange(folds)[:, None]).astype(np.float32)
    return Folds(1 - held_out, held_out)
