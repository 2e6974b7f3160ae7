"""Turn a Linen module into pure functions."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import jax

from forecaster.swarm.adapters.functions import Functions, Given, functions_of_module
from forecaster.swarm.adapters.modules import arguments, flags, method_of
from forecaster.swarm.arrays.variables import Variables
from forecaster.swarm.devices.lanes import use_all_cores
from forecaster.swarm.task import Hyperparams, Params, Tree

if TYPE_CHECKING:
    from flax import linen


def linen_functions(
    module: "linen.Module", *sample: Tree, streams: Sequence[str] = ("dropout",)
) -> Functions:
    """Return the functions of a ``flax.linen`` module.

    - ``sample``: an example of each of its inputs, (example, ...)
    - ``streams``: the names of its random streams, which are seeded by the key

    Collections other than ``params``, such as ``batch_stats``, are the state of :class:`Variables`.
    A module with an argument ``train``, ``training``, ``is_training``, ``deterministic`` or
    ``use_running_average`` gets it set for training or prediction. ``Swarm.predict(key=)`` draws at
    random with frozen statistics: a module with both needs two arguments, ``train`` and
    ``deterministic``; with a single one for both it draws nothing.
    """
    use_all_cores()  # before JAX starts

    def init(key: jax.Array) -> Params:
        keys = dict.fromkeys(("params", *streams), key)
        args, options = _arguments(module, Given(sample, None, {}, {}, training=False))
        state = dict(cast(Mapping[str, Tree], module.init(keys, *args, **options)))
        params = state.pop("params", {})
        return Variables(params, state) if jax.tree.leaves(state) else params

    def call(params: Params, given: Given) -> tuple[Tree, Tree]:
        args, options = _arguments(module, given)
        apply = functools.partial(module.apply, _collections(params), rngs=_rngs(given, streams))
        if not given.training or not isinstance(params, Variables):
            return apply(*args, **options), None
        state = cast(Mapping[str, Tree], params.state)
        out, after = cast(tuple[Tree, Any], apply(*args, **options, mutable=list(state)))
        return out, dict(state) | dict(after)

    def export(params: Params, _: Hyperparams) -> Callable[..., Tree]:
        return cast(Callable[..., Tree], module.bind(_collections(params)))

    return functions_of_module(init, call, export, (module, tuple(streams)))


def _arguments(module: "linen.Module", given: Given) -> tuple[tuple[Tree, ...], dict[str, Any]]:
    """Return a call's arguments, with flags such as ``train`` added."""
    options = dict(given.options)
    method = options.pop("method", None)
    called = method or "__call__"
    called = getattr(type(module), called) if isinstance(called, str) else called
    options = flags(called, given) | options
    args, options = arguments(method_of(module, method), given.inputs, **options)
    return args, options if method is None else options | {"method": method}


def _collections(params: Params) -> dict[str, Tree]:
    """Return all collections of variables by name."""
    if isinstance(params, Variables):
        return {"params": params.params, **cast(Mapping[str, Tree], params.state)}
    return {"params": params}


def _rngs(given: Given, streams: Sequence[str]) -> dict[str, jax.Array] | None:
    """Return a key for every random stream; the first stream gets the key itself."""
    if (key := given.key) is None:
        return None
    return {
        name: jax.random.fold_in(key, number) if number else key
        for number, name in enumerate(streams)
    }
