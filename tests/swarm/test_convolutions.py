"""Convolutions as products agree with JAX's own, anywhere in a function."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from forecaster.swarm.training.convolutions import with_products
from tests.slow import rest_slow

NHWC, NCHW = ("NHWC", "HWIO", "NHWC"), ("NCHW", "OIHW", "NCHW")
INPUTS, KERNEL = (2, 8, 9, 3), (3, 2, 3, 4)
CASES = {  # shapes of inputs and kernel, and what differs from SAME and NHWC
    "same": (INPUTS, (3, 3, 3, 4), {}),
    "valid": (INPUTS, KERNEL, {"padding": "VALID"}),
    "strides": (INPUTS, (3, 3, 3, 4), {"window_strides": (2, 3)}),
    "dilated": (INPUTS, KERNEL, {"padding": [(2, 1), (0, 3)], "rhs_dilation": (2, 3)}),
    "transposed": (
        (2, 4, 5, 3), (3, 3, 3, 4), {"padding": [(2, 2), (1, 2)], "lhs_dilation": (2, 2)}
    ),
    "channels first": ((2, 3, 8, 9), (4, 3, 3, 2), {"dimension_numbers": NCHW}),
    "mixed layouts": (INPUTS, (4, 3, 3, 2), {"dimension_numbers": ("NHWC", "OIHW", "NCHW")}),
    "one axis": (
        (2, 20, 3), (5, 3, 4),
        {"window_strides": (2,), "dimension_numbers": ("NHC", "HIO", "NHC")},
    ),
}  # fmt: skip


def arrays(*shapes, dtype=np.float32):
    random = np.random.default_rng(0)
    return [jnp.asarray(random.normal(size=shape), dtype) for shape in shapes]


def convolutions(function, *arguments) -> int:
    return str(jax.make_jaxpr(function)(*arguments)).count("conv_general_dilated[")


def convolve(kernel, inputs, **options):
    usual = {"padding": "SAME", "dimension_numbers": NHWC}
    options = usual | {"window_strides": (1,) * (inputs.ndim - 2)} | options
    return lax.conv_general_dilated(inputs, kernel, **options)


@pytest.mark.parametrize("case", rest_slow(CASES, ordinary=4))
def test_values_and_gradients_are_those_of_jax(case):
    inputs_shape, kernel_shape, options = CASES[case]
    inputs, kernel = arrays(inputs_shape, kernel_shape)
    theirs = functools.partial(convolve, **options)
    ours = with_products(theirs)
    assert convolutions(theirs, kernel, inputs) == 1
    assert convolutions(ours, kernel, inputs) == 0
    np.testing.assert_allclose(ours(kernel, inputs), theirs(kernel, inputs), atol=2e-5)

    def size(function, *arguments):
        return jnp.sin(function(*arguments)).sum()

    for argument in (0, 1):
        expected = jax.grad(functools.partial(size, theirs), argument)(kernel, inputs)
        got = jax.grad(functools.partial(size, ours), argument)(kernel, inputs)
        np.testing.assert_allclose(got, expected, atol=1e-4)


def test_grouped_ones_and_those_of_whole_numbers_stay():
    inputs, kernel = arrays((2, 8, 9, 4), (3, 3, 1, 4))
    grouped = functools.partial(convolve, feature_group_count=4)
    assert convolutions(with_products(grouped), kernel, inputs) == 1
    numbers = jnp.ones((3, 3, 4, 2), jnp.int32), jnp.ones((2, 8, 9, 4), jnp.int32)
    assert convolutions(with_products(convolve), *numbers) == 1


def test_they_are_found_inside_of_other_functions():
    inputs, kernel = arrays((2, 8, 8, 3), (3, 3, 3, 3))

    def function(kernel, inputs, flag):
        kept = jax.checkpoint(jax.jit(convolve))(kernel, inputs)
        kept = lax.scan(lambda x, _: (jnp.tanh(convolve(kernel, x)), None), kept, length=2)[0]
        return {"out": lax.cond(flag, lambda x: convolve(kernel, x), lambda x: 2 * x, kept)}

    ours = with_products(function)
    assert convolutions(function, kernel, inputs, True) == 3
    assert convolutions(ours, kernel, inputs, True) == 0

    def total(function, kernel, flag):
        return function(kernel, inputs, flag)["out"].sum()

    for flag in (True, False):
        expected, got = (jax.grad(total, 1)(which, kernel, flag) for which in (function, ours))
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-3)
