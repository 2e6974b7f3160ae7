"""Errors that name the shapes of the arrays on which a model or a loss failed."""

import contextlib
from collections.abc import Generator
from typing import Any, cast

import jax

from forecaster.swarm.checks import SwarmError
from forecaster.swarm.task import Tree

_EXPLAINED = (  # errors that say what is wrong; JAX's errors of tracing do not depend on shapes
    SwarmError,
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
    jax.errors.UnexpectedTracerError,
)


@contextlib.contextmanager
def naming_arrays(**trees: Tree) -> Generator[None]:
    """Turn an error that arrays of a wrong shape or type raise into a SwarmError that names them.

    ``trees``: the arrays of one member, (example, ...), by name
    """
    try:
        yield
    except _EXPLAINED:
        raise
    except (TypeError, ValueError) as error:
        leaves = cast(list[tuple[Any, Any]], jax.tree_util.tree_leaves_with_path(trees))
        shown = (
            f"{path[0].key}{jax.tree_util.keystr(path[1:])} {jax.numpy.shape(leaf)}"
            for path, leaf in leaves
        )
        message = next(iter(str(error).strip().splitlines()), "no message").rstrip(".")
        raise SwarmError(
            f"the model or the loss did not take the arrays of one member, {', '.join(shown)}. "
            "Expected model(inputs) of arrays (example, ...), and loss(predictions, targets) or "
            "loss_fn(params, batch, key), that take these shapes (refused with "
            f"{type(error).__name__}: {message})"
        ) from error
