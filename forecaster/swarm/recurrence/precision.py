"""The precision of matrix products: float32, or bfloat16 with float32 sums."""

from typing import Literal, TypeAlias

import jax
import jax.numpy as jnp
from jax import Array

from forecaster.swarm.checks import SwarmError
from forecaster.swarm.native.calls import MOST_EXACT_INPUTS

Precision: TypeAlias = Literal["float32", "bfloat16"]
"""Applies to matrix products only: sums, states and activations keep the arrays' type."""

PRECISIONS = ("float32", "bfloat16")


def check_precision(precision: str) -> Precision:
    """Return the precision. Raises SwarmError for an unknown one."""
    if precision not in PRECISIONS:
        raise SwarmError(f"precision: expected {' or '.join(PRECISIONS)}; got {precision!r}")
    return precision


def product(a: Array, b: Array, precision: Precision) -> Array:
    """Return the matrix product of (..., k) and (k, n), summed in the type of ``a``."""
    if precision == "float32":
        return a @ b
    half = jnp.bfloat16
    return jnp.matmul(a.astype(half), b.astype(half), preferred_element_type=a.dtype)


def input_product(x: Array, kernel: Array, precision: Precision) -> Array:
    """Multiply inputs (..., feature) by their rows of the kernel, (feature, gates)."""
    exact = len(kernel) <= MOST_EXACT_INPUTS
    return product(x, kernel, "float32" if exact else precision)


def input_gradient(x: Array, grad_gates: Array, precision: Precision) -> Array:
    """Return the gradient of those rows of the kernel; ``x`` (row, feature), gates (row, gates)."""
    if precision == "float32" or x.shape[-1] > MOST_EXACT_INPUTS:
        return product(x.T, grad_gates, precision)
    return x.T @ jax.lax.reduce_precision(grad_gates, 8, 7)


_WHOLE, _PART = 64, 16


def steps_per_iteration(steps: int) -> int:
    """Return how many time steps one iteration of a scan does.

    More than one also computes the inputs' part of the gates for all steps at once. On CPUs it is
    one: more was 5 to 50 % slower. On GPUs an iteration launches a few kernels that take no longer
    than their launch, so short windows are unrolled completely and longer ones in parts, which
    keeps the program and its compilation small.
    """
    if jax.default_backend() == "cpu":
        return 1
    return max(1, steps if steps <= _WHOLE else _PART)
