"""LSTM and GRU with bfloat16 matrix products, by compiled code.

See ``native.library`` for the processors that it runs on.
"""

import functools
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jax import Array
from jax.custom_derivatives import CustomVJPPrimal, SymbolicZero

from forecaster.swarm.native import calls
from forecaster.swarm.native.calls import Cell, Steps

_Flag: TypeAlias = tuple[()] | None  # a static bool: part of the pytree's structure


class _Saved(NamedTuple):
    """What the forward pass saves for the backward pass.

    ``words``, ``factors``: of :func:`calls.bfloat16_forward`, in the layout of the kernel
    """

    kernel: Array
    inputs: Array
    valid: Array
    words: Array
    factors: Array
    want_inputs: _Flag


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def in_bfloat16(
    cell: Cell, steps: Steps, kernel: Array, bias: Array, new_bias: Array, inputs: Array,
    valid: Array,
) -> Array:  # fmt: skip
    """Return hidden states; for an LSTM ``new_bias`` is an empty array (0,)."""
    return calls.bfloat16_infer(cell, steps, kernel, bias, new_bias, inputs, valid)


def _forward(
    cell: Cell, steps: Steps, kernel: CustomVJPPrimal, bias: CustomVJPPrimal,
    new_bias: CustomVJPPrimal, inputs: CustomVJPPrimal, valid: CustomVJPPrimal,
) -> tuple[Array, _Saved]:  # fmt: skip
    arrays = kernel.value, bias.value, new_bias.value, inputs.value, valid.value
    hidden, words, factors = calls.bfloat16_forward(cell, steps, *arrays)
    want_inputs = () if inputs.perturbed else None
    return hidden, _Saved(kernel.value, inputs.value, valid.value, words, factors, want_inputs)


def _backward(
    cell: Cell, steps: Steps, saved: _Saved, grad_hidden: Array | SymbolicZero
) -> tuple[Array, ...]:
    if isinstance(grad_hidden, SymbolicZero):
        grad_hidden = jnp.zeros(grad_hidden.shape, saved.kernel.dtype)
    *arrays, want_inputs = saved
    grads = calls.bfloat16_backward(
        cell, steps, arrays, grad_hidden, want_inputs=want_inputs is not None
    )
    return *grads, jnp.zeros_like(saved.valid)


in_bfloat16.defvjp(_forward, _backward, symbolic_zeros=True)
