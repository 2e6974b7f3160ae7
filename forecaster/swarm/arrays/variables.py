"""Trained weights, and the untrained state of models that have one."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from forecaster.swarm.checks import SwarmError
from forecaster.swarm.task import AnyArray, Hyperparams, Params, Tree


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
