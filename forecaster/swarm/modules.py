"""From a Flax module to pure functions, and back."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from forecaster.swarm.checks import SwarmError
from forecaster.swarm.lanes import use_all_cores
from forecaster.swarm.task import Hyperparams, Params


class Functions(NamedTuple):
    """One model as pure functions.

    ``init(key) -> params``; ``apply(params, *inputs, key=None, hyperparams=None) -> predictions``, in
    training with a key, otherwise without; ``export(params, hyperparams) -> model``, by itself.
    """

    init: Callable[[jax.Array], Params]
    apply: Callable[..., Any]
    export: Callable[[Params, Hyperparams], Any]


class Rate(nnx.Variable):
    """A hyperparameter inside a module: not trained, but set from the member's hyperparameters."""


class Dropout(nnx.Module):
    """Dropout whose rate is a member's hyperparameter, so that it may differ between members.

    In training each value is zero with probability ``rate``, the others are scaled up to make up
    for it (Srivastava et al. 2014); otherwise values pass unchanged. ``name``: of the
    hyperparameter; ``rate``: where the hyperparameters do not have it.
    """

    def __init__(self, rate: float = 0.0, *, name: str = "dropout", rngs: nnx.Rngs):
        self.rate = Rate(jnp.float32(rate), hyperparameter=name)
        self.rngs = rngs.dropout.fork()
        self.deterministic = False

    def __call__(self, inputs: jax.Array) -> jax.Array:
        """Any shape; the same shape."""
        if self.deterministic:
            return inputs
        keep = 1.0 - self.rate[...]
        kept = jax.random.bernoulli(self.rngs(), keep, inputs.shape)
        return jnp.where(kept, inputs / jnp.maximum(keep, 1e-6), 0).astype(inputs.dtype)


def module_functions(build: Callable[[nnx.Rngs], nnx.Module]) -> Functions:
    """Split a Flax module once into pure functions; ``build(rngs)`` makes one.

    Params are a plain nested dict of arrays. Raises SwarmError for a module with state that is
    neither trained nor random, such as running statistics.
    """
    use_all_cores()  # before anything starts JAX
    abstract = _abstract(build)
    graphs, rest = {}, None
    for training in (False, True):
        abstract.train() if training else abstract.eval()
        graphs[training], _, rest = nnx.split(abstract, nnx.Param, ...)
    other = nnx.to_flat_state(rest)  # pyright: ignore[reportArgumentType]
    for path, variable in other:
        if not isinstance(variable, nnx.RngState | Rate):
            raise SwarmError(
                f"module variable {'.'.join(map(str, path))} is a {type(variable).__name__}; "
                "expected weights (nnx.Param) and random streams only. Running statistics are not "
                "kept per member: use LayerNorm or GroupNorm in place of BatchNorm"
            )

    def init(key):
        return nnx.to_pure_dict(nnx.state(build(nnx.Rngs(key)), nnx.Param))

    def others(key, hyperparams):
        """Random streams that start from the key, and rates from the hyperparameters."""
        values = []
        for place, (path, variable) in enumerate(other):
            if isinstance(variable, nnx.RngKey):
                value = jax.random.fold_in(jax.random.key(0) if key is None else key, place)
            elif isinstance(variable, nnx.RngState):
                value = jnp.uint32(0)
            else:
                name = variable.get_metadata()["hyperparameter"]
                value = jnp.float32((hyperparams or {}).get(name, defaults[path]))
            values.append((path, variable.replace(value)))
        return nnx.from_flat_state(values)

    defaults = _rates(build) if any(isinstance(v, Rate) for _, v in other) else {}

    def apply(params, *inputs, key=None, hyperparams=None, **options):
        graph = graphs[key is not None]
        module: Any = nnx.merge(graph, params, others(key, hyperparams))
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

    def export(params, hyperparams):
        module = build(nnx.Rngs(0))
        nnx.update(module, jax.tree.map(jnp.asarray, params))
        for _, rate in nnx.iter_graph(module):
            name = isinstance(rate, Rate) and rate.get_metadata()["hyperparameter"]
            if name and name in hyperparams:
                rate.set_value(jnp.float32(hyperparams[name]))
        module.eval()
        return module

    return Functions(init, apply, export)


def pure_functions(init: Callable[[jax.Array], Params], apply: Callable[..., Any]) -> Functions:
    """A model from pure functions ``init(key) -> params`` and ``apply(params, inputs)``.

    An ``apply(params, inputs, key)`` gets a random key in training and None otherwise.
    """
    takes_key = "key" in inspect.signature(apply).parameters

    def run(params, *inputs, key=None, hyperparams=None, **options):
        del hyperparams
        return apply(params, *inputs, **options, **({"key": key} if takes_key else {}))

    def export(params, hyperparams):
        del hyperparams
        return lambda *inputs, **options: run(params, *inputs, **options)

    return Functions(init, run, export)


def linen_functions(module: Any, sample: Any) -> Functions:
    """A model from a ``flax.linen`` module and an example of its inputs, (example, ...).

    The key reaches the module as its ``dropout`` stream. Raises SwarmError for a module with more
    collections than ``params``.
    """

    def init(key):
        variables = dict(module.init({"params": key, "dropout": key}, sample))
        params = variables.pop("params", {})
        if variables:
            raise SwarmError(
                f"linen module {type(module).__name__}: collections {', '.join(variables)} are not "
                "kept per member; expected params only"
            )
        return params

    def apply(params, *inputs, key=None, hyperparams=None, **options):
        del hyperparams
        rngs = None if key is None else {"dropout": key}
        return module.apply({"params": params}, *inputs, rngs=rngs, **options)

    return Functions(init, apply, lambda params, hyperparams: module.bind({"params": params}))


def _abstract(build: Any) -> Any:
    """The module without its numbers."""
    try:
        module = nnx.eval_shape(lambda: build(nnx.Rngs(0)))
    except TypeError as error:
        raise SwarmError(
            f"the model: expected a function build(rngs) that returns a flax.nnx module, or a pair "
            f"(init, apply); calling it failed: {error}"
        ) from error
    if not isinstance(module, nnx.Module):
        raise SwarmError(f"build(rngs): expected a flax.nnx module; got {type(module).__name__}")
    return module


def _rates(build: Callable[[nnx.Rngs], nnx.Module]) -> Mapping[Any, float]:
    with jax.ensure_compile_time_eval():  # numbers, also when called while tracing
        state = nnx.state(build(nnx.Rngs(0)), Rate)
        return {path: float(rate.get_value()) for path, rate in nnx.to_flat_state(state)}
