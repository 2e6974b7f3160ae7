"""Optimisers: settings that are hyperparameters of the members, and weights as one vector."""

import dataclasses
import functools
import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree

from forecaster.swarm.arrays import trained, with_trained
from forecaster.swarm.checks import SwarmError
from forecaster.swarm.task import Hyperparams, Params, Task, Tree
from forecaster.swarm.training.loop import State

Optimizer: TypeAlias = Callable[..., optax.GradientTransformation] | optax.GradientTransformation
"""A function of hyperparameters, or an optax transformation that is the same for all members."""

# Default learning rate of a Swarm; forecasts use forecaster.Config.learning_rate.
SWARM_LEARNING_RATE = np.float32(1e-3)


def adamw(
    learning_rate: float | jax.Array,
    weight_decay: float | jax.Array = 0.0,
    clip: float | jax.Array = jnp.inf,
) -> optax.GradientTransformation:
    """Return AdamW after clipping by the member's own global gradient norm.

    Loshchilov & Hutter (2019), arXiv 1711.05101.
    """
    return optax.chain(
        optax.clip_by_global_norm(clip), optax.adamw(learning_rate, weight_decay=weight_decay)
    )


def inject_hyperparams(
    optimizer: Optimizer, accumulate: int = 1
) -> Callable[[Hyperparams], optax.GradientTransformation]:
    """Return a function that makes the optimiser from the hyperparameters that it takes, by name.

    - ``optimizer``: a function of hyperparameters, such as :func:`adamw` or ``optax.sgd``, or an
      optax transformation, the same for all members
    - ``accumulate``: the number of steps whose gradients are averaged before the weights change

    Raises SwarmError for anything else; for a function, when the optimiser is made: if a
    hyperparameter is missing, or if it returns something else.
    """
    if not isinstance(optimizer, optax.GradientTransformation) and not callable(optimizer):
        raise SwarmError(
            "optimizer: expected an optax transformation, or a function of hyperparameters that "
            f"returns one (such as optax.adam); got {optimizer!r}"
        )
    return _Injected(optimizer, accumulate)


@dataclasses.dataclass(frozen=True, eq=False)
class _Injected:
    """The function that :func:`inject_hyperparams` returns."""

    optimizer: Optimizer
    accumulate: int

    def __call__(self, hyperparams: Hyperparams) -> optax.GradientTransformation:
        made = self.optimizer
        if not isinstance(made, optax.GradientTransformation):
            made = _called(made, hyperparams)
        if self.accumulate > 1:
            made = optax.MultiSteps(made, self.accumulate).gradient_transformation()
        return optax.with_extra_args_support(made)  # as a search along a line needs


# A number's update depends on its own gradients, and at most on the norm of all gradients.
_ELEMENTWISE = (
    adamw, optax.adabelief, optax.adadelta, optax.adagrad, optax.adam, optax.adamax,
    optax.adamaxw, optax.adamw, optax.adan, optax.amsgrad, optax.lion, optax.nadam, optax.nadamw,
    optax.radam, optax.rmsprop, optax.sgd, optax.sign_sgd, optax.yogi,
)  # fmt: skip


def is_elementwise(optimizer: Callable[[Hyperparams], object]) -> bool:
    """Return whether an optimiser is known to ignore how the weights are divided into arrays.

    Its results are then the same, up to rounding, for one long vector of all weights.

    ``optimizer``: the optimiser of a task. :func:`adamw` and many functions of optax are known;
    inside another function they are not recognised.
    """
    if not isinstance(optimizer, _Injected):
        return False
    return any(_content(optimizer.optimizer) == _content(known) for known in _ELEMENTWISE)


def _content(function: Any) -> Any:
    """Return what makes partials equal: an unpickled one is a copy."""
    if isinstance(function, functools.partial):
        made = cast(Any, function)
        return made.func, made.args, made.keywords
    return function


def names_taken(optimizer: Optimizer) -> frozenset[str] | None:
    """Return the hyperparameters that an optimiser can take; None where that cannot be told."""
    taken = _parameters(optimizer)
    if taken is None or any(each.kind is each.VAR_KEYWORD for each in taken.values()):
        return None
    return frozenset(taken)


def has_own_rate(optimizer: Optimizer) -> bool:
    """Return whether a function of hyperparameters has a default learning rate of its own.

    A default of None counts if the function searches along a line, as ``optax.lbfgs`` does.
    """
    taken = _parameters(optimizer) or {}
    rate = taken.get("learning_rate")
    if rate is None or rate.default is rate.empty:
        return False
    return rate.default is not None or "linesearch" in taken


def _parameters(optimizer: Optimizer) -> Mapping[str, inspect.Parameter] | None:
    """Return the arguments of an optimiser's function; None for a builtin that does not say."""
    if isinstance(optimizer, optax.GradientTransformation):
        return {}
    try:
        return inspect.signature(optimizer).parameters
    except (TypeError, ValueError):
        return None


def _called(
    function: Callable[..., object], hyperparams: Hyperparams
) -> optax.GradientTransformation:
    """Call the function with the hyperparameters that are named like its arguments."""
    signature = inspect.signature(function)
    given = {name: hyperparams[name] for name in signature.parameters if name in hyperparams}
    try:
        signature.bind(**given)
    except TypeError as error:
        raise SwarmError(
            f"optimizer {getattr(function, '__name__', function)}: {error}; hyperparameters "
            f"given: {', '.join(hyperparams) or 'none'}"
        ) from error
    try:
        made = function(**given)
    except jax.errors.ConcretizationTypeError as error:
        raise SwarmError(
            f"optimizer {getattr(function, '__name__', function)!r}: it has a branch that "
            "depends on the value of a hyperparameter, which may differ between members. Some of "
            "optax's schedules have one. Make the schedule from plain numbers and multiply it by "
            "the hyperparameter: optax.adam(lambda step: learning_rate * schedule(step)) with "
            "schedule = optax.cosine_decay_schedule(1.0, 1000)"
        ) from error
    if not isinstance(made, optax.GradientTransformation):
        raise SwarmError(
            f"optimizer: expected an optax transformation; got a {type(made).__name__}"
        )
    return made


# The most weights of a member: with more, copying them costs more than it saves. With 2**16 it
# costs two hundredths of the time on an AMD EPYC, up to here nothing.
_MOST = 2**14


@dataclasses.dataclass(frozen=True)
class Vector:
    """How weights, and an optimiser's state, are laid out in vectors.

    An optimiser that treats every number alike then has one array to change instead of one for each
    layer's weights and biases. The compiler, and small networks, spend most of their time on these
    operations, and a vector leaves half of them.

    - ``tree``: returns the tree of a vector
    - ``joined``: a tree like the optimiser's state: for each array, whether it is a vector that
      joins a tree like the weights
    """

    tree: Callable[[jax.Array], Tree]
    joined: Tree

    @staticmethod
    def from_state(task: Task, state: State, hyperparams: Hyperparams) -> "Vector | None":
        """Return the layout for a member's state; None where a vector is slower or impossible."""
        weights = trained(state.params)
        leaves, structure = cast(tuple[list[Any], Any], jax.tree.flatten(weights))
        sizes, types = [math.prod(leaf.shape) for leaf in leaves], {leaf.dtype for leaf in leaves}
        few = len(leaves) < 2 or len(types) > 1 or sum(sizes) > _MOST
        if few or not is_elementwise(task.optimizer):
            return None

        def is_joined(_: Any, part: Tree) -> bool:
            return cast(Any, jax.tree.structure(part)) == structure

        vector = jax.ShapeDtypeStruct((sum(sizes),), *types)
        memory = jax.eval_shape(task.optimizer(hyperparams).init, vector)
        joined = jax.tree.map(is_joined, memory, state.opt_state)
        return Vector(cast(Callable[..., Tree], ravel_pytree(weights)[1]), joined)

    def task(self, task: Task) -> Task:
        """Return the task for weights in a vector. It can only train: ``init`` returns trees."""

        def of_vector(function: Callable[..., Any]) -> Callable[..., Any]:
            def called(params: Params, *others: Any) -> Any:
                return function(self._params(params), *others)

            return called

        functions = {name: getattr(task, name) for name in ("loss", "validate", "measure")}
        return dataclasses.replace(task, **jax.tree.map(of_vector, functions))

    def joined_state(self, state: State) -> State:
        """Return a member's state with vectors in place of trees."""

        def join(is_joined: bool, part: Tree) -> Any:  # noqa: FBT001
            return ravel_pytree(part)[0] if is_joined else part

        def of(params: Params) -> Params:
            return with_trained(params, ravel_pytree(trained(params))[0])

        return state._replace(
            params=of(state.params),
            opt_state=jax.tree.map(join, self.joined, state.opt_state),
            best_params=of(state.best_params),
        )

    def state(self, state: State) -> State:
        """Return a member's state with trees in place of vectors."""

        def split(is_joined: bool, part: Any) -> Tree:  # noqa: FBT001
            return self.tree(part) if is_joined else part

        return state._replace(
            params=self._params(state.params),
            opt_state=jax.tree.map(split, self.joined, state.opt_state),
            best_params=self._params(state.best_params),
        )

    def _params(self, params: Params) -> Params:
        return with_trained(params, self.tree(trained(params)))
