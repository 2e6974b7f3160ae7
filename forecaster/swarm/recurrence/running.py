"""Run a recurrence over time, forward and backward, by compiled code or by JAX.

Its matrix products are of float32, or of bfloat16 with float32 sums.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jax import Array
from jax.custom_derivatives import CustomVJPPrimal, SymbolicZero
from jaxtyping import Float, Shaped

from forecaster.swarm.checks import SwarmError
from forecaster.swarm.devices.data_parallel import by_example
from forecaster.swarm.native import calls, library
from forecaster.swarm.native.calls import MOST_EXACT_INPUTS, Cell, Steps
from forecaster.swarm.task import AnyArray

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


_Flag: TypeAlias = tuple[()] | None  # a static bool: part of the pytree's structure


class Residuals(NamedTuple):
    """What the backward pass by JAX needs."""

    kernel: Float[Array, "row gates"]
    inputs: Float[Array, "time batch feature"]
    valid: Shaped[Array, "time batch"]
    hidden: Float[Array, "time batch hidden"]
    saved: tuple[Array, ...]


class JaxCell(NamedTuple):
    """A recurrence by JAX alone.

    - ``gates``: the number of gates
    - ``forward(precision, *weights, inputs, valid)``: hidden states of all steps, and what the
      backward pass needs
    - ``backward(precision, residuals, grad_hidden)``: the gradient of the gates, (time, batch,
      gates x H), or those of their two parts, of the inputs and of the hidden state
    """

    gates: int
    forward: Callable[..., tuple[Array, ...]]
    backward: Callable[..., Array | tuple[Array, Array]]


CELLS: dict[Cell, JaxCell] = {}


def run(
    cell: Cell,
    weights: Sequence[AnyArray],
    inputs: AnyArray,
    valid: AnyArray,
    *,
    last_only: bool,
    precision: str,
    compiled: bool,
) -> Array:
    """Return hidden states; arguments as for :func:`forecaster.swarm.recurrence.lstm`."""
    kernel, *biases = (jnp.asarray(array) for array in weights)
    inputs, valid = jnp.asarray(inputs), jnp.asarray(valid).astype(kernel.dtype)
    calls.check_shapes(kernel, CELLS[cell].gates, inputs, valid, *biases)
    one = functools.partial(_run, cell, "last" if last_only else "all", check_precision(precision))
    one = functools.partial(one, compiled=compiled)
    return by_example(one, (kernel, *biases), (inputs, valid), last_only=last_only)


def _run(cell: Cell, steps: Steps, precision: Precision, *arrays: Array, compiled: bool) -> Array:
    if compiled and library.usable(*arrays):
        if precision == "float32" or library.bfloat16_status()[0] is None:
            return _by_kernel(cell, steps, "float32", *arrays)
        kernel, bias, *more, inputs, valid = arrays
        biases = bias, *(more or [jnp.zeros(0)])
        return _by_kernel(cell, steps, precision, kernel, *biases, inputs, valid)
    if compiled:
        return _wanted(steps, by_jax(cell, precision, *arrays))
    # Without a backward pass of our own there are derivatives of every kind.
    valid = jax.lax.stop_gradient(arrays[-1])
    return _wanted(steps, CELLS[cell].forward(precision, *arrays[:-1], valid)[0])


def _wanted(steps: Steps, hidden: Array) -> Array:
    return hidden[-1] if steps == "last" else hidden


# ---- by compiled code ----


class _Saved(NamedTuple):
    """What the forward pass saves for the backward pass."""

    arrays: tuple[Array, ...]
    want_inputs: _Flag


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2))
def _by_kernel(cell: Cell, steps: Steps, products: Precision, *arrays: Array) -> Array:
    if products == "bfloat16":
        return calls.bfloat16_infer(cell, steps, *arrays)
    return _wanted(steps, calls.infer(cell, *arrays))


def _kernel_forward(
    cell: Cell, steps: Steps, products: Precision, *given: CustomVJPPrimal
) -> tuple[Array, _Saved]:
    arrays = [primal.value for primal in given]
    if products == "bfloat16":
        hidden, *found = calls.bfloat16_forward(cell, steps, *arrays)
    else:
        found = calls.forward(cell, *arrays)
        hidden = _wanted(steps, found[0])
    want_inputs = () if given[-2].perturbed else None
    return hidden, _Saved((arrays[0], *arrays[-2:], *found), want_inputs)


def _kernel_backward(
    cell: Cell, steps: Steps, products: Precision, saved: _Saved, grad: Array | SymbolicZero
) -> tuple[Array, ...]:
    kernel, _, valid, *_ = saved.arrays
    if isinstance(grad, SymbolicZero):
        grad = jnp.zeros(grad.shape, kernel.dtype)
    backward = calls.bfloat16_backward if products == "bfloat16" else calls.backward
    want_inputs = saved.want_inputs is not None
    grads = backward(cell, steps, saved.arrays, grad, want_inputs=want_inputs)
    return *grads, jnp.zeros_like(valid)


_by_kernel.defvjp(_kernel_forward, _kernel_backward, symbolic_zeros=True)


# ---- by JAX alone ----


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def by_jax(cell: Cell, precision: Precision, *arrays: Array) -> Array:
    """Return all hidden states by JAX alone: the reference for the compiled code."""
    return CELLS[cell].forward(precision, *arrays)[0]


def _jax_forward(cell: Cell, precision: Precision, *arrays: Array) -> tuple[Array, Residuals]:
    hidden, *saved = CELLS[cell].forward(precision, *arrays)
    return hidden, Residuals(arrays[0], arrays[-2], arrays[-1], hidden, tuple(saved))


def _jax_backward(
    cell: Cell, precision: Precision, residuals: Residuals, grad_hidden: Array
) -> tuple[Array, ...]:
    kernel, inputs, valid, hidden, _ = residuals
    features, size = inputs.shape[-1], hidden.shape[-1]
    found = CELLS[cell].backward(precision, residuals, grad_hidden)
    of_inputs, of_hidden = found if isinstance(found, tuple) else (found, found)
    biases = [of_inputs.sum((0, 1))]
    if isinstance(found, tuple):  # a bias of the last gate's hidden part
        biases.append(of_hidden[..., -size:].sum((0, 1)))
    before = jnp.pad(hidden[:-1], ((1, 0), (0, 0), (0, 0)))
    rows, past, grad, grad_past = (
        array.reshape(-1, array.shape[-1]) for array in (inputs, before, of_inputs, of_hidden)
    )
    grad_kernel = [input_gradient(rows, grad, precision), product(past.T, grad_past, precision)]
    grad_inputs = product(of_inputs, kernel[:features].T, precision)
    return jnp.concatenate(grad_kernel), *biases, grad_inputs, jnp.zeros_like(valid)


by_jax.defvjp(_jax_forward, _jax_backward)
