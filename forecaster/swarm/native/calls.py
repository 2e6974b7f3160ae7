"""Calls of the compiled recurrences from JAX; ``library`` tells whether they run here."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from forecaster.swarm.checks import SwarmError
from forecaster.swarm.native import library

Cell: TypeAlias = Literal["lstm", "gru"]
Steps: TypeAlias = Literal["all", "last"]
"""The hidden states to return."""

MOST_EXACT_INPUTS = 7
"""With at most this many inputs per step, products of inputs stay float32 even under bfloat16: they
are little work, and the compiled kernel (``BFLOAT16_EXACT`` in kernels.h) has room for them."""


def check_shapes(kernel: Array, gates: int, inputs: Array, valid: Array, *biases: Array) -> None:
    """Raise SwarmError unless shapes fit; compiled code would read past the arrays' ends.

    - ``kernel``: (F + H, gates x H), for F features and hidden size H.
    - ``gates``: 4 for an LSTM, 3 for a GRU.
    - ``inputs``: (time, batch, F).
    - ``valid``: (time, batch).
    - ``biases``: the bias of all gates, (gates x H,), and for a GRU the bias of the new gate, (H,).
    """
    size = kernel.shape[-1] // gates
    expected = (inputs.shape[-1] + size, gates * size)
    if inputs.ndim != 3 or kernel.shape != expected or valid.shape != inputs.shape[:2]:
        raise SwarmError(
            f"expected inputs (T, B, F), valid (T, B) and a kernel (F + H, {gates}H); got "
            f"{inputs.shape}, {valid.shape} and {kernel.shape}"
        )
    for bias, width in zip(biases, (gates * size, size), strict=False):
        if bias.shape != (width,):
            raise SwarmError(f"expected a bias ({width},); got {bias.shape}")


def lstm_infer(
    kernel: Float[Array, "row gates"],
    bias: Float[Array, " gates"],
    inputs: Float[Array, "time batch feature"],
    valid: Float[Array, "time batch"],
) -> Float[Array, "time batch gates//4"]:
    """Return hidden states; arguments as for :func:`forecaster.swarm.recurrence.lstm`."""
    out = _array(*inputs.shape[:2], bias.shape[-1] // 4)
    return _call("lstm_infer", out)(kernel, bias, inputs, valid)


def lstm_forward(
    kernel: Float[Array, "row gates"],
    bias: Float[Array, " gates"],
    inputs: Float[Array, "time batch feature"],
    valid: Float[Array, "time batch"],
) -> Sequence[Array]:
    """Return hidden states, and cell states and gates in the layout of the backward pass."""
    steps, batch, size = *inputs.shape[:2], bias.shape[-1] // 4
    saved = _saved_width(size)
    out = [_array(steps, batch, width) for width in (size, saved, 4 * saved)]
    return _call_many("lstm_forward", out)(kernel, bias, inputs, valid)


def lstm_backward(
    residuals: Sequence[Array], grad_hidden: Array, *, last_only: bool, want_inputs: bool
) -> Sequence[Array]:
    """Return gradients of kernel, bias and inputs.

    - ``residuals``: kernel, inputs, valid and what :func:`lstm_forward` returned.
    - ``grad_hidden``: (time, batch, H), or with ``last_only`` the last step's, (batch, H).
    - ``want_inputs``: without it the inputs' gradient is undefined.
    """
    kernel, inputs = residuals[:2]
    out = [_array(*kernel.shape), _array(kernel.shape[-1]), _array(*inputs.shape)]
    call = _call_many("lstm_backward", out)
    return call(*residuals, grad_hidden, last_only=last_only, want_x=want_inputs)


def gru_infer(
    kernel: Float[Array, "row gates"],
    bias: Float[Array, " gates"],
    new_bias: Float[Array, " gates//3"],
    inputs: Float[Array, "time batch feature"],
    valid: Float[Array, "time batch"],
) -> Float[Array, "time batch gates//3"]:
    """Return hidden states; arguments as for :func:`forecaster.swarm.recurrence.gru`."""
    out = _array(*inputs.shape[:2], new_bias.shape[-1])
    return _call("gru_infer", out)(kernel, bias, new_bias, inputs, valid)


def gru_forward(
    kernel: Float[Array, "row gates"],
    bias: Float[Array, " gates"],
    new_bias: Float[Array, " gates//3"],
    inputs: Float[Array, "time batch feature"],
    valid: Float[Array, "time batch"],
) -> Sequence[Array]:
    """Return hidden states, and gates in the layout of the backward pass."""
    steps, batch, size = *inputs.shape[:2], new_bias.shape[-1]
    out = [_array(steps, batch, width) for width in (size, 4 * _saved_width(size))]
    return _call_many("gru_forward", out)(kernel, bias, new_bias, inputs, valid)


def gru_backward(
    residuals: Sequence[Array], grad_hidden: Array, *, last_only: bool, want_inputs: bool
) -> Sequence[Array]:
    """Return gradients of kernel, both biases and inputs; otherwise as :func:`lstm_backward`."""
    kernel, inputs = residuals[:2]
    width = kernel.shape[-1]
    out = [_array(*kernel.shape), _array(width), _array(width // 3), _array(*inputs.shape)]
    call = _call_many("gru_backward", out)
    return call(*residuals, grad_hidden, last_only=last_only, want_x=want_inputs)


def bfloat16_infer(
    cell: Cell, steps: Steps, kernel: Array, bias: Array, new_bias: Array, inputs: Array,
    valid: Array,
) -> Array:  # fmt: skip
    """Return all hidden states or the last one, by bfloat16 products.

    - ``cell``: ``lstm``, whose ``new_bias`` is empty, or ``gru``
    - other arguments: as for :func:`forecaster.swarm.recurrence.lstm`
    """
    call = _call("bfloat16_infer", _hidden_of(cell, steps, bias, inputs))
    return call(kernel, bias, new_bias, inputs, valid, **_kind(cell, steps))


def bfloat16_forward(
    cell: Cell, steps: Steps, kernel: Array, bias: Array, new_bias: Array, inputs: Array,
    valid: Array,
) -> Sequence[Array]:  # fmt: skip
    """Return hidden states, and for the backward pass operands and factors of derivatives."""
    time, batch, features = inputs.shape
    hidden = _hidden_of(cell, steps, bias, inputs)
    depth = -(-hidden.shape[-1] // 32) + (
        1 if features <= MOST_EXACT_INPUTS else -(-features // 32)
    )
    blocks, units = -(-batch // 32), -(-hidden.shape[-1] // 16)
    words = jax.ShapeDtypeStruct((time, blocks, 2, depth, 16, 16), jnp.uint32)
    saved = 5 if cell == "gru" else 6
    factors = jax.ShapeDtypeStruct((time, blocks, units, 32, saved, 16), jnp.uint16)
    call = _call_many("bfloat16_forward", [hidden, words, factors])
    return call(kernel, bias, new_bias, inputs, valid, **_kind(cell, steps))


def bfloat16_backward(
    cell: Cell, steps: Steps, saved: Sequence[Array], grad_hidden: Array, *, want_inputs: bool
) -> Sequence[Array]:
    """Return gradients of kernel, both biases and inputs; otherwise as :func:`lstm_backward`.

    ``saved``: kernel, inputs, valid and what :func:`bfloat16_forward` returned after the states.
    """
    kernel, inputs = saved[:2]
    width = kernel.shape[-1]
    out = [_array(*kernel.shape), _array(width), _array(width // 3 if cell == "gru" else 0)]
    call = _call_many("bfloat16_backward", [*out, _array(*inputs.shape)])
    return call(*saved, grad_hidden, **_kind(cell, steps), want_x=want_inputs)


def _kind(cell: Cell, steps: Steps) -> dict[str, bool | str]:
    return {
        "gru": cell == "gru",
        "last_only": steps == "last",
        "by": library.bfloat16_status()[0] or "",
    }


def _hidden_of(cell: Cell, steps: Steps, bias: Array, inputs: Array) -> jax.ShapeDtypeStruct:
    time, batch, _ = inputs.shape
    size = bias.shape[-1] // (3 if cell == "gru" else 4)
    return _array(batch, size) if steps == "last" else _array(time, batch, size)


def _saved_width(size: int) -> int:
    """Return ``saved_width`` of kernels.h: ``size`` rounded up to the widest vector."""
    return -(-size // 16) * 16


def _array(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def _call(name: str, out: jax.ShapeDtypeStruct) -> Callable[..., Array]:
    return _guarded(jax.ffi.ffi_call(f"forecaster_{name}", out, vmap_method="broadcast_all"))


def _call_many(name: str, out: Sequence[jax.ShapeDtypeStruct]) -> Callable[..., Sequence[Array]]:
    return _guarded(jax.ffi.ffi_call(f"forecaster_{name}", out, vmap_method="broadcast_all"))


def _guarded(call: Callable[..., Any]) -> Callable[..., Any]:
    """Return the call with derivatives that raise SwarmError."""

    def called(*arrays: Array, **attributes: Any) -> Any:
        guarded = jax.custom_jvp(functools.partial(call, **attributes))

        @guarded.defjvp
        def _(primals: object, tangents: object) -> Any:
            raise SwarmError(
                "the compiled recurrence has first derivatives by jax.grad only; for second ones "
                "and for jax.jvp give compiled=False, as in LSTM(..., compiled=False); GRU, lstm "
                "and gru take it too"
            )

        return guarded(*arrays)

    return called
