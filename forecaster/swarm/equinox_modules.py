"""From an Equinox module to pure functions."""

import importlib
import inspect
from collections.abc import Callable
from typing import Any, cast

import jax

from forecaster.swarm.lanes import use_all_cores
from forecaster.swarm.modules import Functions, arguments, on_device
from forecaster.swarm.task import Hyperparams, Params, Tree
from forecaster.swarm.variables import Variables


def equinox_functions(make: Callable[[jax.Array], Any]) -> Functions:
    """A model from ``make(key)``: an Equinox module, or the pair of ``eqx.nn.make_with_state``.

    The module takes one example, as Equinox modules do; here it is mapped over a batch, the axis
    ``batch`` of its batch norms (with ``mode="batch"``; those with ``mode="ema"`` do not work on
    several devices). It gets a ``key`` where it takes one, None in use. Arrays of whole numbers,
    and a state, are carried along without being trained.
    """
    use_all_cores()  # before anything starts JAX
    eqx: Any = importlib.import_module("equinox")

    def split(key: jax.Array) -> tuple[Any, Any, Any]:
        made: Any = make(key)
        module, state = cast(tuple[Any, Any], made if isinstance(made, tuple) else (made, None))
        arrays, static = eqx.partition(module, eqx.is_array)
        weights, others = eqx.partition(arrays, eqx.is_inexact_array)
        return weights, (others, state), static

    *_, carried, static = eqx.filter_eval_shape(split, jax.random.key(0))
    structure = cast(Any, jax.tree.structure(carried))

    def init(key: jax.Array) -> Params:
        weights, kept, _ = split(key)
        return Variables(weights, jax.tree.leaves(kept)) if structure.num_leaves else weights

    def whole(params: Params) -> tuple[Any, Any]:
        weights, kept = _parts(params)
        others, state = jax.tree.unflatten(structure, kept)
        return eqx.nn.inference_mode(eqx.combine(weights, others, static)), state

    def call(params: Params, inputs: Any, key: jax.Array | None, *, training: bool) -> Any:
        module, state = whole(params)
        others = jax.tree.unflatten(structure, _parts(params)[1])[0]
        if training:
            module = eqx.nn.inference_mode(module, value=False)
        elif key is not None:  # dropout alone: statistics stay as they are

            def is_dropout(layer: Any) -> bool:
                return isinstance(layer, eqx.nn.Dropout)

            def draw(layer: Any) -> Any:
                return eqx.nn.inference_mode(layer, value=False) if is_dropout(layer) else layer

            module = jax.tree.map(draw, module, is_leaf=is_dropout)
        takes = inspect.signature(type(module).__call__).parameters

        def one(inputs: Any, key: jax.Array | None, state: Any) -> Any:
            options = {"key": key} if "key" in takes else {}
            if state is None or "state" in takes:
                options |= {} if state is None else {"state": state}
                inputs, options = arguments(module, inputs, **options)
            else:  # it calls it otherwise
                inputs = *inputs, state
            out = module(*inputs, **options)
            return (out, None) if state is None else out

        examples = len(jax.tree.leaves(inputs)[0])
        keys = None if key is None else jax.random.split(key, examples)
        axes = 0, None if key is None else 0, None
        mapped = jax.vmap(one, in_axes=axes, out_axes=(0, None), axis_name="batch")
        predictions, state = mapped(inputs, keys, state)
        return predictions, jax.tree.leaves((others, state))

    def apply(params: Params, *inputs: Tree, key: Any = None, hyperparams: Any = None) -> Tree:
        training = key is not None and not structure.num_leaves
        return call(params, inputs, key, training=training)[0]

    def train(params: Params, *inputs: Tree, key: Any = None, hyperparams: Any = None) -> Any:
        return call(params, inputs, key, training=True)

    def export(params: Params, _: Hyperparams) -> Any:
        module, state = whole(jax.tree.map(on_device, params))

        def with_state(*inputs: Tree) -> Tree:
            return module(*inputs, state)[0]

        return module if state is None else with_state

    return Functions(init, apply, export, train, (make,), frozenset())


def _parts(params: Params) -> tuple[Any, list[Any]]:
    return tuple(params) if isinstance(params, Variables) else (params, [])
