"""Convolutions as matrix products, where networks train on CPUs.

``vmap`` turns the convolutions of many members into one grouped convolution, for whose gradients
XLA has no fast code on CPUs. Sixteen small networks on images train in a fifth of the time when
each window is laid out as a row, so that one product of all windows and the kernel is the
convolution (Chellapilla, Puri & Simard 2006). Without gradients XLA's own convolution takes 0.5 to
0.9 of the time of the product, and less memory.
"""

import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, cast

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, jaxpr_as_fun
from jaxtyping import Float

from forecaster.swarm.task import Params

_Function = TypeVar("_Function", bound=Callable[..., Any])

_NAME = "conv_general_dilated"
_WIDEST = 64  # the most positions of a kernel: longer rows of windows take too much memory
_LARGEST = 2**26  # numbers in all windows of one convolution


def with_products(function: _Function) -> _Function:
    """Return the same function of params and other arguments, with convolutions as products.

    This pays on CPUs, for a function whose gradient is taken; on other devices the function stays
    as it is. So do grouped convolutions, and those with very large windows.
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
    """Return whether weights may be kernels, (position, ..., input, output)."""
    return any(jnp.ndim(leaf) >= 3 for leaf in jax.tree.leaves(params))


def _changed(jaxpr: Jaxpr) -> Jaxpr:
    """Replace convolutions by products, in branches, loop bodies and called functions too."""
    changed = [_product(eqn) if _fits(eqn) else [_inside(eqn)] for eqn in jaxpr.eqns]
    return jaxpr.replace(eqns=list(itertools.chain.from_iterable(changed)))


def _inside(eqn: JaxprEqn) -> JaxprEqn:
    return eqn.replace(params={name: _in_value(value) for name, value in eqn.params.items()})


def _in_value(value: Any) -> Any:
    """Do the same to the functions that a parameter of an operation holds."""
    if isinstance(value, Jaxpr):
        return _changed(value)
    if isinstance(value, ClosedJaxpr):
        return value.replace(jaxpr=_changed(value.jaxpr))
    if type(value) is tuple:
        return tuple(map(_in_value, cast(tuple[Any, ...], value)))
    return value


def _fits(eqn: JaxprEqn) -> bool:
    if eqn.primitive.name != _NAME:
        return False
    inputs, kernel, result = _shapes(eqn)
    dimensions: lax.ConvDimensionNumbers = eqn.params["dimension_numbers"]
    positions = math.prod(kernel.shape[axis] for axis in dimensions.rhs_spec[2:])
    windows = result.size // max(1, result.shape[dimensions.out_spec[1]])
    numbers = windows * positions * kernel.shape[dimensions.rhs_spec[1]]
    return (
        eqn.params["feature_group_count"] == eqn.params["batch_group_count"] == 1
        and jnp.issubdtype(inputs.dtype, jnp.floating)
        and 1 <= positions <= _WIDEST
        and 1 <= numbers <= _LARGEST
    )


def _shapes(eqn: JaxprEqn) -> list[jax.ShapeDtypeStruct]:
    """Return the shapes of the inputs, the kernel and the result."""
    return [cast(jax.ShapeDtypeStruct, var.aval) for var in (*eqn.invars, *eqn.outvars)]


def _product(eqn: JaxprEqn) -> list[JaxprEqn]:
    """Return the operations that compute the same by a product."""
    inputs, kernel, _ = _shapes(eqn)
    traced = jax.make_jaxpr(functools.partial(_convolved, eqn.params))(inputs, kernel).jaxpr
    ours = (*traced.invars, *traced.outvars)
    known = dict(zip(map(id, ours), (*eqn.invars, *eqn.outvars), strict=True))

    def named(values: Sequence[Any]) -> list[Any]:
        return [known.get(id(value), value) for value in values]

    return [each.replace(invars=named(each.invars), outvars=named(each.outvars))
            for each in traced.eqns]  # fmt: skip


def _convolved(given: Mapping[str, Any], inputs: jax.Array, kernel: jax.Array) -> jax.Array:
    """Do what JAX's convolution with these parameters does: multiply all windows by the kernel.

    ``dimension_numbers`` gives the order of the axes of inputs, kernel and result.
    """
    lhs, rhs, out = given["dimension_numbers"]
    inputs = inputs.transpose(lhs[0], *lhs[2:], lhs[1])  # (example, ..., channel)
    kernel = kernel.transpose(*rhs[2:], rhs[1], rhs[0])  # (..., channel, output)
    rows = _windows(given, inputs, kernel.shape[:-2])
    product = lax.dot_general(
        rows.reshape(-1, rows.shape[-1]),
        kernel.reshape(-1, kernel.shape[-1]),
        (((1,), (0,)), ((), ())),
        precision=given["precision"],
        preferred_element_type=given["preferred_element_type"],
    )
    canonical = product.reshape(*rows.shape[:-1], kernel.shape[-1])
    axes = (out[0], *out[2:], out[1])  # where each axis of ``canonical`` belongs
    return canonical.transpose(*(axes.index(axis) for axis in range(len(axes))))


def _windows(
    given: Mapping[str, Any],
    inputs: Float[jax.Array, "example *position channel"],
    kernel: Sequence[int],
) -> Float[jax.Array, "example *window row"]:
    """Return each window as a row (position, channel). ``kernel``: its spatial shape."""
    strides, steps = given["window_strides"], given["rhs_dilation"]
    widths = zip(given["padding"], given["lhs_dilation"], strict=True)
    between = [(low, high, dilation - 1) for (low, high), dilation in widths]
    inputs = lax.pad(inputs, jnp.zeros((), inputs.dtype), [(0, 0, 0), *between, (0, 0, 0)])
    spans = zip(inputs.shape[1:-1], kernel, steps, strides, strict=True)
    last = [  # where the last window along each axis begins
        (size - (count - 1) * step - 1) // stride * stride for size, count, step, stride in spans
    ]
    columns: list[jax.Array] = []
    for position in itertools.product(*map(range, kernel)):
        start = [at * step for at, step in zip(position, steps, strict=True)]
        limit = [low + end + 1 for low, end in zip(start, last, strict=True)]
        low, high = (0, *start, 0), (inputs.shape[0], *limit, inputs.shape[-1])
        columns.append(lax.slice(inputs, low, high, (1, *strides, 1)))
    return lax.concatenate(columns, dimension=inputs.ndim - 1)
