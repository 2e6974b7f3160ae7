"""Calls of the compiled recurrences from JAX; ``library`` tells whether they run here."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias, cast

import jax
import jax.numpy as jnp
from jax import Array

from forecaster.swarm.checks import SwarmError
from forecaster.swarm.native import library

Cell: TypeAlias = Literal["lstm", "gru"]
Steps: TypeAlias = Literal["all", "last"]
"""The hidden states to return."""

_GATES: dict[Cell, int] = {"lstm": 4, "gru": 3}
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


def infer(cell: Cell, kernel: Array, *others: Array) -> Array:
    """Return hidden states; arguments as for :func:`forecaster.swarm.recurrence.lstm`."""
    out = _array(*others[-2].shape[:2], kernel.shape[-1] // _GATES[cell])
    return _call(f"{cell}_infer", out)(kernel, *others)


def forward(cell: Cell, kernel: Array, *others: Array) -> Sequence[Array]:
    """Return hidden states, and cell states and gates in the layout of the backward pass."""
    (steps, batch, _), size = others[-2].shape, kernel.shape[-1] // _GATES[cell]
    saved = _saved_width(size)
    widths = (size, saved, 4 * saved) if cell == "lstm" else (size, 4 * saved)
    out = [_array(steps, batch, width) for width in widths]
    return _call(f"{cell}_forward", out)(kernel, *others)


def backward(
    cell: Cell, steps: Steps, saved: Sequence[Array], grad_hidden: Array, *, want_inputs: bool
) -> Sequence[Array]:
    """Return gradients of kernel, biases and inputs.

    - ``saved``: kernel, inputs, valid and what :func:`forward` returned.
    - ``grad_hidden``: (time, batch, H), or of the last of the ``steps``, (batch, H).
    - ``want_inputs``: without it the inputs' gradient is undefined.
    """
    kernel, inputs = saved[:2]
    width = kernel.shape[-1]
    biases = [_array(width), *([_array(width // 3)] if cell == "gru" else [])]
    call = _call(f"{cell}_backward", [_array(*kernel.shape), *biases, _array(*inputs.shape)])
    return call(*saved, grad_hidden, last_only=steps == "last", want_x=want_inputs)


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
    call = _call("bfloat16_forward", [hidden, words, factors])
    return call(kernel, bias, new_bias, inputs, valid, **_kind(cell, steps))


def bfloat16_backward(
    cell: Cell, steps: Steps, saved: Sequence[Array], grad_hidden: Array, *, want_inputs: bool
) -> Sequence[Array]:
    """Return gradients of kernel, both biases and inputs; otherwise as :func:`backward`.

    ``saved``: kernel, inputs, valid and what :func:`bfloat16_forward` returned after the states.
    """
    kernel, inputs = saved[:2]
    width = kernel.shape[-1]
    out = [_array(*kernel.shape), _array(width), _array(width // 3 if cell == "gru" else 0)]
    call = _call("bfloat16_backward", [*out, _array(*inputs.shape)])
    return call(*saved, grad_hidden, **_kind(cell, steps), want_x=want_inputs)


def _kind(cell: Cell, steps: Steps) -> dict[str, bool | str]:
    return {
        "gru": cell == "gru",
        "last_only": steps == "last",
        "by": library.bfloat16_status()[0] or "",
    }


def _hidden_of(cell: Cell, steps: Steps, bias: Array, inputs: Array) -> jax.ShapeDtypeStruct:
    time, batch, _ = inputs.shape
    size = bias.shape[-1] // _GATES[cell]
    return _array(batch, size) if steps == "last" else _array(time, batch, size)


def _saved_width(size: int) -> int:
    """Return ``saved_width`` of kernels.h: ``size`` rounded up to the widest vector."""
    return -(-size // 16) * 16


def _array(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def _call(name: str, out: Any) -> Callable[..., Any]:
    """Return a call of compiled code, whose own derivatives raise SwarmError."""
    call: Callable[..., Any] = cast(Any, jax.ffi.ffi_call)(
        f"forecaster_{name}", out, vmap_method="broadcast_all"
    )

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
