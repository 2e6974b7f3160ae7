"""Run a recurrence over time, forward and backward, by compiled code or by JAX."""

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jax import Array
from jax.custom_derivatives import CustomVJPPrimal, SymbolicZero
from jaxtyping import Float, Shaped

from forecaster.swarm.devices.data_parallel import by_example
from forecaster.swarm.native import calls, library
from forecaster.swarm.native.calls import Cell, Steps
from forecaster.swarm.recurrence.bfloat16 import in_bfloat16
from forecaster.swarm.recurrence.precision import Precision, check_precision
from forecaster.swarm.task import AnyArray

_Flag: TypeAlias = tuple[()] | None  # a static bool: part of the pytree's structure


class Residuals(NamedTuple):
    """What the backward pass needs; the layout of ``saved`` depends on which code ran."""

    kernel: Float[Array, "row gates"]
    inputs: Float[Array, "time batch feature"]
    valid: Shaped[Array, "time batch"]
    hidden: Float[Array, "time batch hidden"]
    saved: tuple[Array, ...]


class _Saved(NamedTuple):
    """What the forward pass saves for the backward pass."""

    residuals: Residuals
    compiled: _Flag
    want_inputs: _Flag


class JaxCell(NamedTuple):
    """A recurrence by JAX alone.

    - ``gates``: the number of gates
    - ``forward(precision, *weights, inputs, valid)``: hidden states of all steps, and what the
      backward pass needs
    - ``backward(precision, residuals, grad_hidden)``: gradients of weights and inputs, and zeros
      for ``valid``
    """

    gates: int
    forward: Callable[..., tuple[Array, ...]]
    backward: Callable[..., tuple[Array, ...]]


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


def by_jax(cell: Cell, precision: Precision, *arrays: Array) -> Array:
    """Return all hidden states by JAX alone: the reference for the compiled code."""
    return _recurrence(cell, "all", precision, False, *arrays)


def _run(cell: Cell, steps: Steps, precision: Precision, *arrays: Array, compiled: bool) -> Array:
    if not compiled:
        hidden = CELLS[cell].forward(precision, *arrays[:-1], jax.lax.stop_gradient(arrays[-1]))[0]
        return _wanted(steps, hidden)
    if precision == "bfloat16" and library.bfloat16_usable(*arrays):
        kernel, bias, *more, inputs, valid = arrays
        return in_bfloat16(cell, steps, kernel, bias, *(more or [jnp.zeros(0)]), inputs, valid)
    return _recurrence(cell, steps, precision, True, *arrays)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2, 3))
def _recurrence(
    cell: Cell, steps: Steps, precision: Precision, compiled: bool, *arrays: Array  # noqa: FBT001
) -> Array:  # fmt: skip
    if compiled and library.usable(*arrays):
        return _wanted(steps, calls.infer(cell, *arrays))
    return _wanted(steps, CELLS[cell].forward(precision, *arrays)[0])


def _forward(
    cell: Cell, steps: Steps, precision: Precision, compiled: bool,  # noqa: FBT001
    *given: CustomVJPPrimal,
) -> tuple[Array, _Saved]:  # fmt: skip
    arrays = [primal.value for primal in given]
    compiled = compiled and library.usable(*arrays)
    found = calls.forward(cell, *arrays) if compiled else CELLS[cell].forward(precision, *arrays)
    hidden, *rest = found
    residuals = Residuals(arrays[0], arrays[-2], arrays[-1], hidden, tuple(rest))
    saved = _Saved(residuals, () if compiled else None, () if given[-2].perturbed else None)
    return _wanted(steps, hidden), saved


def _backward(
    cell: Cell, steps: Steps, precision: Precision, _: bool,  # noqa: FBT001
    saved: _Saved, grad_hidden: Array | SymbolicZero,
) -> tuple[Array, ...]:  # fmt: skip
    residuals, compiled, want_inputs = saved
    if isinstance(grad_hidden, SymbolicZero):
        grad_hidden = jnp.zeros(grad_hidden.shape, residuals.kernel.dtype)
    if compiled is None:
        if steps == "last":
            grad_hidden = jnp.zeros_like(residuals.hidden).at[-1].set(grad_hidden)
        return CELLS[cell].backward(precision, residuals, grad_hidden)
    grads = calls.backward(
        cell,
        (*residuals[:-1], *residuals.saved),
        grad_hidden,
        last_only=steps == "last",
        want_inputs=want_inputs is not None,
    )
    return *grads, jnp.zeros_like(residuals.valid)


def _wanted(steps: Steps, hidden: Array) -> Array:
    return hidden[-1] if steps == "last" else hidden


_recurrence.defvjp(_forward, _backward, symbolic_zeros=True)
