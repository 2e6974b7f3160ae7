"""Shapes of examples, and errors that name them when a model fails on another shape."""

import contextlib
from collections.abc import Generator, Mapping
from typing import Any, NamedTuple, TypeAlias, cast

import jax
import numpy as np

from forecaster.swarm.arrays.data import Shared
from forecaster.swarm.checks import SwarmError
from forecaster.swarm.task import Tree

_NOTE = "forecaster.swarm: called with arrays of one member, "
_EXPLAINED = (  # errors that say what is wrong; JAX's errors of tracing do not depend on shapes
    SwarmError,
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
    jax.errors.UnexpectedTracerError,
)


class Shape(NamedTuple):
    """Shape and type of a single example.

    ``shared``: whether it was given in an array without a member axis
    """

    sizes: tuple[int, ...]
    type: str
    shared: bool = False


Shapes: TypeAlias = Mapping[str, Shape]
"""Shapes of single examples by their path in the data, such as ``inputs['image']``."""


def shapes_of(inputs: Tree = None, targets: Tree = None) -> dict[str, Shape]:
    """Return the shapes of single examples in trees of arrays (member, example, ...) or Shared."""
    found: dict[str, Shape] = {}
    for name, tree in (("inputs", inputs), ("targets", targets)):
        shared = isinstance(tree, Shared)
        axes = 1 if shared and tree.rows is None else 2  # leading axes
        found |= _named(name, tree.values if shared else tree, axes)
    return found


def sample_shapes(*inputs: Tree) -> dict[str, Shape]:
    """Return the shapes of single examples in sample inputs (example, ...)."""
    return _named("inputs", inputs[0] if len(inputs) == 1 else inputs, 1)


@contextlib.contextmanager
def naming_arrays(**trees: Tree) -> Generator[None]:
    """Add the shapes of these arrays, (example, ...), as a note to an error of the user's code."""
    try:
        yield
    except Exception as error:
        if not _is_named(error):
            shown = (f"{name} {jax.numpy.shape(leaf)}" for name, leaf in _leaves(**trees))
            error.add_note(_NOTE + ", ".join(shown))
        raise


@contextlib.contextmanager
def expecting(known: Shapes, what: str, *given: Tree) -> Generator[None]:
    """Turn an error of the user's code into a SwarmError if the shapes differ from training.

    - ``known``: shapes of the training examples; empty before training
    - ``what``: the method that the error names
    - ``given``: the examples at hand, as :func:`shapes_of` takes them
    """
    try:
        yield
    except Exception as error:
        shapes = shapes_of(*given)
        parts = {name.partition("[")[0] for name in shapes}
        had = {name: shape for name, shape in known.items() if name.partition("[")[0] in parts}
        difference = _difference(had, shapes) if had else _not_taken(error)
        if not (difference and _is_named(error)):
            raise
        message = next(iter(str(error).strip().splitlines()), "no message").rstrip(".")
        raise SwarmError(
            f"{what}: {difference} (refused with {type(error).__name__}: {message})"
        ) from error


def _not_taken(error: Exception) -> str:
    """Return what a model or loss did not take, where no training has told the shapes.

    Empty for an error that arrays of a wrong shape or type do not raise.
    """
    if isinstance(error, _EXPLAINED) or not isinstance(error, TypeError | ValueError):
        return ""
    notes = cast(list[str], getattr(error, "__notes__", []))
    named = (note.removeprefix(_NOTE) for note in notes if note.startswith(_NOTE))
    arrays = next(named, "") or "none"
    return (
        f"the model or the loss did not take the arrays of one member, {arrays}. Expected "
        "model(inputs) of arrays (example, ...), and loss(predictions, targets) or "
        "loss_fn(params, batch, key), that take these shapes"
    )


def _difference(known: Shapes, given: Shapes) -> str:
    """Return what was expected, what came and what to do; empty if the shapes agree."""
    if known.keys() != given.keys():
        return (
            f"expected {', '.join(known)}, as in training; got {', '.join(given) or 'none'}. Give "
            "the same tree of arrays"
        )
    for name, expected in known.items():
        own = "".join(f", {size}" for size in expected.sizes)
        advice = f"Give arrays (member, example{own}), or Shared ones (example{own})"
        sizes, kind, shared = given[name]
        if shared:
            advice = f"Give values (example{own})"
        if sizes != expected.sizes:
            return (
                f"{name}: expected single examples of shape {expected.sizes}, as in training; got "
                f"{sizes}. {advice}"
            )
        if np.dtype(kind).kind != np.dtype(expected.type).kind:
            return f"{name}: expected {expected.type}, as in training; got {kind}"
    return ""


def _is_named(error: Exception) -> bool:
    notes = cast(list[str], getattr(error, "__notes__", []))
    return any(note.startswith(_NOTE) for note in notes)


def _leaves(**trees: Tree) -> list[tuple[str, Any]]:
    """Return every array of these trees with its path."""
    return [
        (name + jax.tree_util.keystr(path), leaf)
        for name, tree in trees.items()
        for path, leaf in cast(list[tuple[Any, Any]], jax.tree_util.tree_leaves_with_path(tree))
    ]


def _named(name: str, tree: Tree, axes: int) -> dict[str, Shape]:
    return {
        path: Shape(tuple(np.shape(leaf))[axes:], str(_type_of(leaf)), axes == 1)
        for path, leaf in _leaves(**{name: tree})
    }


def _type_of(leaf: Any) -> np.dtype[Any]:
    return leaf.dtype if hasattr(leaf, "dtype") else np.asarray(leaf).dtype
