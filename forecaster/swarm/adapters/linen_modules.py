"""Turn a Linen module into pure functions."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import jax

from forecaster.swarm.adapters.functions import Functions
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
    model = _Model(module, sample, tuple(streams))
    made_of = module, tuple(streams)
    pure = model.init, model.apply, model.export, model.train
    return Functions(*pure, made_of, frozenset())


@dataclasses.dataclass(frozen=True, eq=False)
class _Model:
    """A module, a sample of its inputs, and the names of its random streams."""

    module: "linen.Module"
    sample: tuple[Tree, ...]
    streams: tuple[str, ...]

    def init(self, key: jax.Array) -> Params:
        keys = dict.fromkeys(("params", *self.streams), key)
        args, options = self._arguments(self.sample, {}, training=False, drawn=False)
        made = self.module.init(keys, *args, **options)
        state = dict(cast(Mapping[str, Tree], made))
        params = state.pop("params", {})
        return Variables(params, state) if jax.tree.leaves(state) else params

    def apply(
        self,
        params: Params,
        *inputs: Tree,
        key: jax.Array | None = None,
        hyperparams: Hyperparams | None = None,
        **options: Any,
    ) -> Tree:
        del hyperparams
        training = key is not None and not isinstance(params, Variables)
        args, options = self._arguments(inputs, options, training=training, drawn=key is not None)
        rngs = _rngs(key, self.streams)
        return cast(Tree, self.module.apply(_collections(params), *args, rngs=rngs, **options))

    def train(
        self,
        params: Params,
        *inputs: Tree,
        key: jax.Array | None = None,
        hyperparams: Hyperparams | None = None,
        **options: Any,
    ) -> tuple[Tree, Tree]:
        del hyperparams
        state = cast(Mapping[str, Tree], params.state)
        args, options = self._arguments(inputs, options, training=True, drawn=True)
        options |= {"rngs": _rngs(key, self.streams), "mutable": list(state)}
        predictions, after = self.module.apply(_collections(params), *args, **options)
        return cast(tuple[Tree, Tree], (predictions, dict(state) | dict(after)))

    def export(self, params: Params, hyperparams: Hyperparams) -> Callable[..., Tree]:
        del hyperparams
        return cast(Callable[..., Tree], self.module.bind(_collections(params)))

    def _arguments(
        self, inputs: Sequence[Tree], options: Mapping[str, Any], *, training: bool, drawn: bool
    ) -> tuple[tuple[Tree, ...], dict[str, Any]]:
        """Return a call's arguments, with flags such as ``train`` added."""
        options = dict(options)
        method = options.pop("method", None)
        called = method or "__call__"
        called = getattr(type(self.module), called) if isinstance(called, str) else called
        options = flags(called, training=training, drawn=drawn) | options
        args, options = arguments(method_of(self.module, method), inputs, **options)
        return args, options if method is None else options | {"method": method}


def _collections(params: Params) -> dict[str, Tree]:
    """Return all collections of variables by name."""
    if isinstance(params, Variables):
        return {"params": params.params, **cast(Mapping[str, Tree], params.state)}
    return {"params": params}


def _rngs(key: jax.Array | None, streams: Sequence[str]) -> dict[str, jax.Array] | None:
    """Return a key for every random stream; the first stream gets the key itself."""
    if key is None:
        return None
    return {
        name: jax.random.fold_in(key, number) if number else key
        for number, name in enumerate(streams)
    }
