"""How exactly a recurrence multiplies matrices: float32, or bfloat16 with float32 sums."""

from typing import Literal, TypeAlias

import jax
import jax.numpy as jnp
from jax import Array

from forecaster.swarm.checks import SwarmError
from forecaster.swarm.native.calls import MOST_EXACT_INPUTS

Precision: TypeAlias = Literal["float32", "bfloat16"]
"""Of the matrix products alone: sums, states and activations keep the type of the arrays."""

PRECISIONS = ("float32", "bfloat16")


def check_precision(precision: str) -> Precision:
    """The same, or SwarmError for what is none."""
    if precision not in PRECISIONS:
        raise SwarmError(f"precision: expected {' or '.join(PRECISIONS)}; got {precision!r}")
    return precision


def product(a: Array, b: Array, precision: Precision) -> Array:
    """The matrix product (m, k) (k, n), or (..., k) (k, n), summed in the arrays' own type."""
    if precision == "float32":
        return a @ b
    half = jnp.bfloat16
    return jnp.matmul(a.astype(half), b.astype(half), preferred_element_type=a.dtype)


def input_product(x: Array, kernel: Array, precision: Precision) -> Array:
    """Inputs (..., feature) times their rows of the kernel (feature, gates)."""
    exact = len(kernel) <= MOST_EXACT_INPUTS
    return product(x, kernel, "float32" if exact else precision)


def input_gradient(x: Array, grad_gates: Array, precision: Precision) -> Array:
    """The gradient of those rows: inputs (row, feature) and gradients of the gates (row, gates)."""
    if precision == "float32" or x.shape[-1] > MOST_EXACT_INPUTS:
        return product(x.T, grad_gates, precision)
    return x.T @ jax.lax.reduce_precision(grad_gates, 8, 7)


_WHOLE, _PART = 64, 16


def steps_per_iteration(steps: int) -> int:
    """Steps of time that one iteration of a scan does; more than one also hoists the inputs' part.

    On CPUs one: measured 5 to 50 % slower otherwise. On GPUs an iteration is a few launches of
    kernels that last no longer than a launch, so short windows are unrolled whole, and longer ones
    in parts, which keeps the program and its compilation small.
    """
    if jax.default_backend() == "cpu":
        return 1
    return max(1, steps if steps <= _WHOLE else _PART)
