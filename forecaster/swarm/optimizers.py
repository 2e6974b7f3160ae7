"""Optimisers whose settings are the members' hyperparameters."""

import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from forecaster.swarm.checks import SwarmError
from forecaster.swarm.task import Hyperparams


def adamw(
    learning_rate: Any, weight_decay: Any = 0.0, clip: Any = jnp.inf
) -> optax.GradientTransformation:
    """AdamW after clipping by the member's own global gradient norm.

    Loshchilov & Hutter (2019), arXiv 1711.05101.
    """
    # optax annotates these as floats; traced scalars work alike and are what makes them data.
    return optax.chain(
        optax.clip_by_global_norm(clip), optax.adamw(learning_rate, weight_decay=weight_decay)
    )


def inject_hyperparams(
    optimizer: Callable[..., optax.GradientTransformation] | optax.GradientTransformation,
    accumulate: int = 1,
) -> Callable[[Hyperparams], optax.GradientTransformation]:
    """An optimiser that takes its arguments from the hyperparameters of the same names.

    ``optimizer``: a function of hyperparameters, such as :func:`adamw` or ``optax.sgd``, or an
    optax transformation, the same for all members. With ``accumulate`` > 1, the gradients of so
    many steps are averaged before weights change.

    Raises SwarmError, when it is called, if that is not what it is.
    """
    fixed = isinstance(optimizer, optax.GradientTransformation)
    if not fixed and not callable(optimizer):
        raise SwarmError(
            "optimizer: expected an optax transformation, or a function of hyperparameters that "
            f"returns one (such as optax.adam); got {optimizer!r}"
        )
    function: Any = optimizer
    parameters = {} if fixed else inspect.signature(function).parameters

    def make(hyperparams: Hyperparams) -> optax.GradientTransformation:
        made: Any = optimizer
        if not fixed:
            missing = [
                name
                for name, parameter in parameters.items()
                if name not in hyperparams
                and parameter.default is parameter.empty
                and parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
            ]
            if missing:
                raise SwarmError(
                    f"optimizer {getattr(optimizer, '__name__', optimizer)}: needs "
                    f"{', '.join(missing)}; hyperparameters given: {', '.join(hyperparams) or 'none'}"
                )
            made = function(
                **{name: hyperparams[name] for name in parameters if name in hyperparams}
            )
        if not isinstance(made, optax.GradientTransformation):
            raise SwarmError(
                f"optimizer: expected an optax transformation; got a {type(made).__name__}"
            )
        if accumulate > 1:
            made = optax.MultiSteps(made, accumulate).gradient_transformation()
        return _with_raw_keys(optax.with_extra_args_support(made))

    return make


def _with_raw_keys(optimizer: Any) -> optax.GradientTransformation:
    """The same optimiser, the random keys in its state as plain numbers: a swarm keeps states as
    numpy arrays, which have no type for keys."""

    def is_key(leaf):
        return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)

    def raw(state):
        return jax.tree.map(lambda leaf: jax.random.key_data(leaf) if is_key(leaf) else leaf, state)

    def init(params):
        return raw(optimizer.init(params))

    def update(updates, state, params=None, **extra):
        like = jax.eval_shape(optimizer.init, params)
        state = jax.tree.map(
            lambda leaf, known: jax.random.wrap_key_data(leaf) if is_key(known) else leaf,
            state,
            like,
        )
        updates, state = optimizer.update(updates, state, params, **extra)
        return updates, raw(state)

    return optax.GradientTransformationExtraArgs(init, update)
