"""Convolutions as matrix products, where networks learn on processors.

``vmap`` makes one grouped convolution of those of many members, for whose gradients XLA has no fast
code on CPUs: sixteen small networks on images train in a sixth of the time when each window is laid
out as a row, so that all windows times the kernel are one product (Chellapilla, Puri & Simard
2006). Without gradients XLA's own take 0.5 to 0.9 of the time, and less memory.
"""

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar, cast

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, jaxpr_as_fun

from forecaster.swarm.task import Params

_Function = TypeVar("_Function", bound=Callable[..., Any])

_NAME = "conv_general_dilated"
_WIDEST = 64  # places of a kernel, beyond which rows of windows take too much memory
_LARGEST = 2**26  # numbers in all windows of one convolution


def with_products(function: _Function) -> _Function:
    """The same function of params and whatever else, its convolutions as products on processors.

    Worth it for a function whose gradient is taken. Grouped ones, and those with very large
    windows, stay as they are; so does all where JAX runs on other devices.
    """

    @functools.wraps(function)
    def called(params: Params, *others: Any) -> Any:
        if jax.default_backend() != "cpu" or not _may_convolve(params):
            return function(params, *others)
        traced, shape = jax.make_jaxpr(function, return_shape=True)(params, *others)
        changed = traced.replace(jaxpr=_changed(traced.jaxpr))
        run = cast(Callable[..., list[Any]], jaxpr_as_fun(changed))
        leaves = run(*jax.tree.leaves((params, *others)))
        structure = cast(Any, jax.tree.structure(shape))
        return jax.tree.unflatten(structure, leaves)

    return cast(_Function, called)


def _may_convolve(params: Params) -> bool:
    """Whether weights may be kernels, (place, ..., input, output)."""
    return any(jnp.ndim(leaf) >= 3 for leaf in jax.tree.leaves(params))


def _changed(jaxpr: Jaxpr) -> Jaxpr:
    """With products in the place of convolutions, in what it calls, too; itself where none are."""
    changed = [_product(eqn) if _fits(eqn) else [_inside(eqn)] for eqn in jaxpr.eqns]
    if all(new[0] is old for new, old in zip(changed, jaxpr.eqns, strict=True)):
        return jaxpr
    return jaxpr.replace(eqns=list(itertools.chain.from_iterable(changed)))


def _inside(eqn: JaxprEqn) -> JaxprEqn:
    """The same of the functions that an operation holds: branches, bodies of loops, and others."""
    params = {name: _of_value(value) for name, value in eqn.params.items()}
    if all(params[name] is value for name, value in eqn.params.items()):
        return eqn
    return eqn.replace(params=params)


def _of_value(value: Any) -> Any:
    if isinstance(value, Jaxpr):
        return _changed(value)
    if isinstance(value, ClosedJaxpr):
        changed = _changed(value.jaxpr)
        return value if changed is value.jaxpr else value.replace(jaxpr=changed)
    if type(value) is tuple:
        values = cast(tuple[Any, ...], value)
        changed = tuple(map(_of_value, values))
        same = all(new is old for new, old in zip(changed, values, strict=True))
        return values if same else changed
    return value


class _Window(NamedTuple):
    """A convolution without its arrays, as JAX describes it."""

    strides: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    lhs_dilation: tuple[int, ...]
    rhs_dilation: tuple[int, ...]
    dimensions: lax.ConvDimensionNumbers
    precision: Any
    result: Any

    @staticmethod
    def of(eqn: JaxprEqn) -> "_Window":
        given = eqn.params
        return _Window(
            given["window_strides"], given["padding"], given["lhs_dilation"],
            given["rhs_dilation"], given["dimension_numbers"], given["precision"],
            given["preferred_element_type"],
        )  # fmt: skip


def _fits(eqn: JaxprEqn) -> bool:
    if eqn.primitive.name != _NAME:
        return False
    inputs, kernel, result = _shapes(eqn)
    dimensions: lax.ConvDimensionNumbers = eqn.params["dimension_numbers"]
    places = math.prod(kernel.shape[axis] for axis in dimensions.rhs_spec[2:])
    windows = result.size // max(1, result.shape[dimensions.out_spec[1]])
    numbers = windows * places * kernel.shape[dimensions.rhs_spec[1]]
    return (
        eqn.params["feature_group_count"] == eqn.params["batch_group_count"] == 1
        and jnp.issubdtype(inputs.dtype, jnp.floating)
        and 1 <= places <= _WIDEST
        and 1 <= numbers <= _LARGEST
    )


def _shapes(eqn: JaxprEqn) -> list[jax.ShapeDtypeStruct]:
    """Of the inputs, the kernel and the result."""
    return [cast(jax.ShapeDtypeStruct, var.aval) for var in (*eqn.invars, *eqn.outvars)]


def _product(eqn: JaxprEqn) -> list[JaxprEqn]:
    """The operations of the same by a product, from the same values to the same one."""
    inputs, kernel, _ = _shapes(eqn)
    traced = jax.make_jaxpr(functools.partial(_convolved, _Window.of(eqn)))(inputs, kernel).jaxpr
    ours = (*traced.invars, *traced.outvars)
    known = dict(zip(map(id, ours), (*eqn.invars, *eqn.outvars), strict=True))

    def named(values: Sequence[Any]) -> list[Any]:
        return [known.get(id(value), value) for value in values]

    return [each.replace(invars=named(each.invars), outvars=named(each.outvars))
            for each in traced.eqns]  # fmt: skip


def _convolved(window: _Window, inputs: jax.Array, kernel: jax.Array) -> jax.Array:
    """Each window as a row (place, channel), times the kernel as a matrix."""
    lhs, rhs, out = window.dimensions
    inputs = inputs.transpose(lhs[0], *lhs[2:], lhs[1])  # (example, ..., channel)
    kernel = kernel.transpose(*rhs[2:], rhs[1], rhs[0])  # (..., channel, output)
    widths = zip(*zip(*window.padding, strict=True), window.lhs_dilation, strict=True)
    between = [(low, high, step - 1) for low, high, step in widths]
    zero = jnp.zeros((), inputs.dtype)
    inputs = lax.pad(inputs, zero, [(0, 0, 0), *between, (0, 0, 0)])
    *places, channels, outputs = kernel.shape
    reach = [(size - 1) * step for size, step in zip(places, window.rhs_dilation, strict=True)]
    seen = zip(inputs.shape[1:-1], reach, window.strides, strict=True)
    counts = [(size - far - 1) // stride + 1 for size, far, stride in seen]
    columns: list[jax.Array] = []
    for place in itertools.product(*map(range, places)):
        start = [at * step for at, step in zip(place, window.rhs_dilation, strict=True)]
        steps = zip(start, counts, window.strides, strict=True)
        limit = [low + (count - 1) * stride + 1 for low, count, stride in steps]
        columns.append(
            lax.slice(
                inputs, (0, *start, 0), (inputs.shape[0], *limit, channels),
                (1, *window.strides, 1),
            )
        )  # fmt: skip
    rows = lax.concatenate(columns, dimension=inputs.ndim - 1)
    product = lax.dot_general(
        rows.reshape(-1, rows.shape[-1]),
        kernel.reshape(-1, outputs),
        (((1,), (0,)), ((), ())),
        precision=window.precision,
        preferred_element_type=window.result,
    )
    canonical = product.reshape(inputs.shape[0], *counts, outputs)
    axes = (out[0], *out[2:], out[1])  # where each of its axes belongs
    return canonical.transpose(*(axes.index(axis) for axis in range(len(axes))))
