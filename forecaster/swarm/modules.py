"""From a Flax module to pure functions, and back."""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Float, Key

from forecaster.swarm.checks import SwarmError
from forecaster.swarm.lanes import use_all_cores
from forecaster.swarm.task import AnyArray, Hyperparams, Params, Tree

if TYPE_CHECKING:
    from flax import linen

Build: TypeAlias = Callable[[nnx.Rngs], nnx.Module]
"""A function that makes a module from random streams."""

_Path: TypeAlias = tuple[Any, ...]
_Untrained: TypeAlias = Sequence[tuple[_Path, Any]]  # paths and variables


class Functions(NamedTuple):
    """One model as pure functions.

    - ``init(key) -> params``
    - ``apply(params, *inputs, key=None, hyperparams=None) -> predictions``: with a key in training
      and without otherwise
    - ``export(params, hyperparams) -> model``: an ordinary model that can be called by itself
    """

    init: Callable[[Key[jax.Array, ""]], Params]
    apply: Callable[..., Tree]
    export: Callable[[Params, Hyperparams], Callable[..., Tree]]


class Rate(nnx.Variable[jax.Array]):
    """A hyperparameter inside a module: not trained, but set from the member's hyperparameters."""


class Dropout(nnx.Module):
    """Dropout whose rate is a member's hyperparameter, so that it may differ between members.

    In training each value is zero with probability ``rate``, and the others are scaled up to make
    up for it (Srivastava et al. 2014); otherwise values pass unchanged. ``name`` is that of the
    hyperparameter, and ``rate`` is used where the hyperparameters do not have it.
    """

    def __init__(self, rate: float = 0.0, *, name: str = "dropout", rngs: nnx.Rngs):
        self.rate = Rate(jnp.float32(rate), hyperparameter=name)
        self.rngs = rngs.dropout.fork()
        self.deterministic = False

    def __call__(self, inputs: Float[jax.Array, "*shape"]) -> Float[jax.Array, "*shape"]:
        """Inputs of any shape; the result has the same."""
        if self.deterministic:
            return inputs
        keep = 1.0 - self.rate[...]
        kept = jax.random.bernoulli(self.rngs(), keep, inputs.shape)
        return jnp.where(kept, inputs / jnp.maximum(keep, 1e-6), 0).astype(inputs.dtype)


def module_functions(build: Build) -> Functions:
    """Split a Flax module once into pure functions; ``build(rngs)`` makes one.

    Params are a plain nested dict of arrays. Raises SwarmError for a module with state that is
    neither trained nor random, such as running statistics.
    """
    use_all_cores()  # before anything starts JAX
    graphs, untrained = _split(_abstract(build))
    _check_untrained(untrained)
    has_rates = any(isinstance(variable, Rate) for _, variable in untrained)
    defaults = _rates(build) if has_rates else dict[_Path, float]()

    def init(key: jax.Array) -> Params:
        return nnx.to_pure_dict(nnx.state(build(nnx.Rngs(key)), nnx.Param))

    def apply(
        params: Params,
        *inputs: Tree,
        key: jax.Array | None = None,
        hyperparams: Hyperparams | None = None,
        **options: Any,
    ) -> Tree:
        state = _state(untrained, key, hyperparams or {}, defaults)
        module: Any = nnx.merge(graphs[key is not None], params, state)
        return _call(module, *inputs, **options)

    def export(params: Params, hyperparams: Hyperparams) -> nnx.Module:
        module = build(nnx.Rngs(0))
        nnx.update(module, jax.tree.map(_on_device, params))
        _set_rates(module, hyperparams)
        module.eval()
        return module

    return Functions(init, apply, export)


def _split(module: nnx.Module) -> tuple[dict[bool, Any], _Untrained]:
    """The module's graphs, by whether it trains, and all of its variables but the weights."""
    split = functools.partial(cast(Callable[..., tuple[Any, ...]], nnx.split), module, nnx.Param)
    module.eval()
    using, *_ = split(...)
    module.train()
    training, _, untrained = split(...)
    return {False: using, True: training}, cast(_Untrained, nnx.to_flat_state(untrained))


def _check_untrained(untrained: _Untrained) -> None:
    for path, variable in untrained:
        if not isinstance(variable, nnx.RngState | Rate):
            raise SwarmError(
                f"module variable {'.'.join(map(str, path))} is a {type(variable).__name__}; "
                "expected weights (nnx.Param) and random streams only. Running statistics are not "
                "kept per member: use LayerNorm or GroupNorm in place of BatchNorm"
            )


def _state(
    untrained: _Untrained,
    key: jax.Array | None,
    hyperparams: Hyperparams,
    defaults: Mapping[_Path, float],
) -> Any:
    """Random streams that start from the key, and rates from the hyperparameters."""
    values: list[tuple[_Path, Any]] = []
    for position, (path, variable) in enumerate(untrained):
        if isinstance(variable, nnx.RngKey):
            value = jax.random.fold_in(jax.random.key(0) if key is None else key, position)
        elif isinstance(variable, nnx.RngState):
            value = jnp.uint32(0)
        else:
            name = variable.get_metadata()["hyperparameter"]
            value = jnp.float32(hyperparams.get(name, defaults[path]))
        values.append((path, variable.replace(value)))
    return cast(Any, nnx.from_flat_state(values))


def _call(module: Callable[..., Tree], *inputs: Tree, **options: Any) -> Tree:
    """Call a module; one that lacks a random key is an error that says what to do."""
    try:
        return module(*inputs, **options)
    except ValueError as error:
        if "no `rngs` argument" not in str(error):
            raise
        raise SwarmError(
            f"module {type(module).__name__} needs a random key and has none: "
            f"{str(error).splitlines()[0]} Give it the rngs that build(rngs) gets, as in "
            "nnx.Dropout(0.1, rngs=rngs)"
        ) from error


def _on_device(leaf: AnyArray) -> jax.Array:
    return jnp.asarray(leaf)


def _set_rates(module: nnx.Module, hyperparams: Hyperparams) -> None:
    for _, node in nnx.iter_graph(module):
        if isinstance(node, Rate):
            name = node.get_metadata()["hyperparameter"]
            if name in hyperparams:
                node.set_value(jnp.float32(hyperparams[name]))


def pure_functions(init: Callable[[jax.Array], Params], apply: Callable[..., Tree]) -> Functions:
    """A model from pure functions ``init(key) -> params`` and ``apply(params, inputs)``.

    An ``apply(params, inputs, key)`` gets a random key in training and None otherwise.
    """
    takes_key = "key" in inspect.signature(apply).parameters

    def run(
        params: Params,
        *inputs: Tree,
        key: jax.Array | None = None,
        hyperparams: Hyperparams | None = None,
        **options: Any,
    ) -> Tree:
        del hyperparams
        return apply(params, *inputs, **options, **({"key": key} if takes_key else {}))

    def export(params: Params, hyperparams: Hyperparams) -> Callable[..., Tree]:
        del hyperparams
        return functools.partial(run, params)

    return Functions(init, run, export)


def linen_functions(module: "linen.Module", *sample: Tree) -> Functions:
    """A model from a ``flax.linen`` module and an example of each of its inputs, (example, ...).

    The key reaches the module as its ``dropout`` stream. When it initialises a member, a SwarmError
    is raised for a module with other collections than ``params``.
    """

    def init(key: jax.Array) -> Params:
        variables = dict(
            cast(Mapping[str, Params], module.init({"params": key, "dropout": key}, *sample))
        )
        params = variables.pop("params", {})
        if variables:
            raise SwarmError(
                f"linen module {type(module).__name__}: collections {', '.join(variables)} are not "
                "kept per member; expected params only"
            )
        return params

    def apply(
        params: Params,
        *inputs: Tree,
        key: jax.Array | None = None,
        hyperparams: Hyperparams | None = None,
        **options: Any,
    ) -> Tree:
        del hyperparams
        rngs = None if key is None else {"dropout": key}
        return cast(Tree, module.apply({"params": params}, *inputs, rngs=rngs, **options))

    def export(params: Params, hyperparams: Hyperparams) -> Callable[..., Tree]:
        del hyperparams
        return cast(Callable[..., Tree], module.bind({"params": params}))

    return Functions(init, apply, export)


def _abstract(build: Build) -> nnx.Module:
    """The module without its numbers."""

    def built() -> nnx.Module:
        return build(nnx.Rngs(0))

    try:
        module = cast(object, nnx.eval_shape(built))
    except TypeError as error:
        raise SwarmError(
            f"the model: expected a function build(rngs) that returns a flax.nnx module, or a pair "
            f"(init, apply); calling it failed: {error}"
        ) from error
    if not isinstance(module, nnx.Module):
        raise SwarmError(f"build(rngs): expected a flax.nnx module; got {type(module).__name__}")
    return module


def _rates(build: Build) -> Mapping[_Path, float]:
    """The rates that a module is built with, by path."""
    with jax.ensure_compile_time_eval():  # numbers, also when called while tracing
        rates = cast(_Untrained, nnx.to_flat_state(nnx.state(build(nnx.Rngs(0)), Rate)))
        return {path: float(rate.get_value()) for path, rate in rates}
