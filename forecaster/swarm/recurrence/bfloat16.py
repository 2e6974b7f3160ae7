"""The recurrences by products of bfloat16: one pair of passes for LSTM and GRU.

See ``native.library`` for where they run.
"""

import functools
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jax import Array
from jax.custom_derivatives import CustomVJPPrimal, SymbolicZero

from forecaster.swarm.native import calls
from forecaster.swarm.native.calls import Cell, Steps

_Flag: TypeAlias = tuple[()] | None  # a bool in the structure of a pytree, where it stays static


class _Saved(NamedTuple):
    """What the forward pass hands to the backward pass, some of it in an order of its own."""

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
    """Hidden states by products of bfloat16; an LSTM has no ``new_bias``: an array (0,)."""
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
