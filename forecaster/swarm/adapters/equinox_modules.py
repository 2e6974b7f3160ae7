"""Turn an Equinox module into pure functions."""

import functools
import importlib
import inspect
from collections.abc import Callable
from typing import Any, cast

import jax

from forecaster.swarm.adapters.flax_modules import arguments, check_not_made
from forecaster.swarm.adapters.functions import Functions, Given, functions_of_module, on_device
from forecaster.swarm.arrays import Variables
from forecaster.swarm.devices.lanes import use_all_cores
from forecaster.swarm.task import Hyperparams, Params, Tree


def equinox_functions(make: Callable[[jax.Array], Any]) -> Functions:
    """Return the functions of a model that ``make(key)`` returns.

    That is an Equinox module, or the pair of ``eqx.nn.make_with_state``. The module takes one
    example, as Equinox modules do; here it is mapped over a batch, along the axis ``batch`` that
    batch norms name (with ``mode="batch"``; those with ``mode="ema"`` do not work on several
    devices). A module with an argument ``key`` gets a key in training and None in prediction.
    Integer arrays and state are carried along untrained.
    """
    use_all_cores()  # before JAX starts
    check_not_made(make, "a function make(key)")
    model = _Model(make)
    return functions_of_module(model.init, model.call, model.export, (make,))


class _Model:
    """A module split into trained weights, carried arrays and state, and static parts."""

    def __init__(self, make: Callable[[jax.Array], Any]):
        self._make, self._eqx = make, cast(Any, importlib.import_module("equinox"))
        *_, carried, self._static = self._eqx.filter_eval_shape(self._split, jax.random.key(0))
        self._structure = cast(Any, jax.tree.structure(carried))

    def init(self, key: jax.Array) -> Params:
        weights, kept, _ = self._split(key)
        return Variables(weights, jax.tree.leaves(kept)) if self._structure.num_leaves else weights

    def export(self, params: Params, _: Hyperparams) -> Any:
        module, _others, state = self._whole(jax.tree.map(on_device, params))

        def with_state(*inputs: Tree) -> Tree:
            return module(*inputs, state)[0]

        return module if state is None else with_state

    def _split(self, key: jax.Array) -> tuple[Any, Any, Any]:
        made: Any = self._make(key)
        module, state = cast(tuple[Any, Any], made if isinstance(made, tuple) else (made, None))
        arrays, static = self._eqx.partition(module, self._eqx.is_array)
        weights, others = self._eqx.partition(arrays, self._eqx.is_inexact_array)
        return weights, (others, state), static

    def _whole(self, params: Params) -> tuple[Any, Any, Any]:
        """Return the module in inference mode, its untrained arrays, and its state."""
        weights, kept = _parts(params)
        others, state = jax.tree.unflatten(self._structure, kept)
        module = self._eqx.combine(weights, others, self._static)
        return self._eqx.nn.inference_mode(module), others, state

    def call(self, params: Params, given: Given) -> tuple[Tree, Tree]:
        """Return predictions for a batch, and the carried arrays and state after it."""
        module, others, state = self._whole(params)
        if given.training:
            module = self._eqx.nn.inference_mode(module, value=False)
        elif given.drawn:
            module = self._with_dropout(module)
        inputs, key = given.inputs, given.key
        examples = len(jax.tree.leaves(inputs)[0])
        keys = None if key is None else jax.random.split(key, examples)
        axes = 0, None if key is None else 0, None
        one = functools.partial(_call_one, module, given.options)
        mapped = jax.vmap(one, in_axes=axes, out_axes=(0, None), axis_name="batch")
        predictions, state = mapped(inputs, keys, state)
        return predictions, jax.tree.leaves((others, state))

    def _with_dropout(self, module: Any) -> Any:
        """Return the module with dropout as in training, and statistics frozen."""
        nn = self._eqx.nn

        def is_dropout(layer: Any) -> bool:
            return isinstance(layer, nn.Dropout)

        def draw(layer: Any) -> Any:
            return nn.inference_mode(layer, value=False) if is_dropout(layer) else layer

        return jax.tree.map(draw, module, is_leaf=is_dropout)


def _call_one(
    module: Any, given: dict[str, Any], inputs: Any, key: jax.Array | None, state: Any
) -> tuple[Any, Any]:
    """Return a module's prediction for one example, and the state after it."""
    takes = inspect.signature(type(module).__call__).parameters
    options = ({"key": key} if "key" in takes else {}) | given
    if state is None or "state" in takes:
        options |= {} if state is None else {"state": state}
        inputs, options = arguments(module, inputs, **options)
    else:  # its state has another name
        inputs = *inputs, state
    out = module(*inputs, **options)
    return (out, None) if state is None else out


def _parts(params: Params) -> tuple[Any, list[Any]]:
    return tuple(params) if isinstance(params, Variables) else (params, [])
