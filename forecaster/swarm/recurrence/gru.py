"""The GRU recurrence over time for one model, with a hand-written backward pass.

Gated recurrent unit, Cho et al. (2014), arXiv 1406.1078, in the variant that cuDNN and
``torch.nn.GRU`` compute: the reset gate acts after the recurrent matrix product. Gate order:
reset, update, new. ``lstm.py`` explains why the backward pass is written by hand.
"""

import functools
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jax import Array
from jax.custom_derivatives import CustomVJPPrimal, SymbolicZero
from jaxtyping import Float, Shaped

from forecaster.swarm.devices.data_parallel import by_example
from forecaster.swarm.native import calls, library
from forecaster.swarm.native.calls import Steps
from forecaster.swarm.recurrence.bfloat16 import in_bfloat16
from forecaster.swarm.recurrence.precision import (
    Precision,
    check_precision,
    input_gradient,
    input_product,
    product,
    steps_per_iteration,
)
from forecaster.swarm.task import AnyArray

_Flag: TypeAlias = tuple[()] | None  # a static bool: part of the pytree's structure


class _Residuals(NamedTuple):
    """What the backward pass needs; the layout of gates depends on which code computed them."""

    kernel: Float[Array, "row gates"]
    inputs: Float[Array, "time batch feature"]
    valid: Shaped[Array, "time batch"]
    hidden: Float[Array, "time batch hidden"]
    gates: tuple[Array, ...]


class _Saved(NamedTuple):
    """What the forward pass saves for the backward pass."""

    residuals: _Residuals
    compiled: _Flag
    want_inputs: _Flag


def gru(
    kernel: Float[AnyArray, "row gates"],
    bias: Float[AnyArray, " gates"],
    new_bias: Float[AnyArray, " gates//3"],
    inputs: Float[AnyArray, "time batch feature"],
    valid: Shaped[AnyArray, "time batch"],
    *,
    last_only: bool = False,
    precision: str = "float32",
    compiled: bool = True,
) -> Float[Array, "... batch gates//3"]:
    """Run a GRU over time from a zero state and return the hidden state of every step.

    With F features and hidden size H:

    - ``kernel``: (F + H, 3H), its first F rows for the input and the rest for the hidden state.
    - ``bias``: (3H,), added to the input part.
    - ``new_bias``: (H,), added to the recurrent part of the new gate, inside the reset.
    - ``inputs``: (time, batch, F).
    - ``valid``: (time, batch), 1.0 for an observed step, 0.0 for padding, which leaves the state
      unchanged. It has no derivative. Inputs must be finite in padding too.
    - ``last_only``: return only the last step's hidden state, whose gradient is cheaper.
    - ``precision``, ``compiled``: as for :func:`forecaster.swarm.recurrence.lstm`.

    Returns (time, batch, H), or (batch, H) with ``last_only``. Raises SwarmError for shapes that do
    not fit together, and for another precision.

    On CPUs, in float32, compiled code is used if it was built; see ``native.library``.
    """
    arrays = [jnp.asarray(array) for array in (kernel, bias, new_bias, inputs, valid)]
    kernel, bias, new_bias, inputs, valid = arrays
    valid = valid.astype(kernel.dtype)
    calls.check_shapes(kernel, 3, inputs, valid, bias, new_bias)
    run = functools.partial(_run, "last" if last_only else "all", check_precision(precision))
    run = functools.partial(run, compiled=compiled)
    return by_example(run, (kernel, bias, new_bias), (inputs, valid), last_only=last_only)


def _run(
    steps: Steps, precision: Precision, kernel: Array, bias: Array, new_bias: Array,
    inputs: Array, valid: Array, *, compiled: bool,
) -> Array:  # fmt: skip
    """Run by compiled code where possible, else by JAX."""
    arrays = kernel, bias, new_bias, inputs, valid
    if not compiled:
        valid = jax.lax.stop_gradient(valid)
        hidden = _forward(precision, kernel, bias, new_bias, inputs, valid)[0]
        return hidden[-1] if steps == "last" else hidden
    if precision == "bfloat16" and library.bfloat16_usable(*arrays):
        return in_bfloat16("gru", steps, *arrays)
    return _gru(steps, precision, True, *arrays)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2))
def _gru(
    steps: Steps, precision: Precision, compiled: bool,  # noqa: FBT001
    kernel: Array, bias: Array, new_bias: Array, inputs: Array, valid: Array,
) -> Array:  # fmt: skip
    if compiled and library.usable(kernel, bias, new_bias, inputs, valid):
        hidden = calls.gru_infer(kernel, bias, new_bias, inputs, valid)
    else:
        hidden = _forward(precision, kernel, bias, new_bias, inputs, valid)[0]
    return hidden[-1] if steps == "last" else hidden


def jax_gru(
    kernel: Float[Array, "row gates"],
    bias: Float[Array, " gates"],
    new_bias: Float[Array, " gates//3"],
    inputs: Float[Array, "time batch feature"],
    valid: Shaped[Array, "time batch"],
    *,
    precision: Precision = "float32",
) -> Float[Array, "time batch gates//3"]:
    """Return the hidden states by JAX alone: the reference for the compiled code."""
    return _gru("all", precision, False, kernel, bias, new_bias, inputs, valid)


def _forward(
    precision: Precision,
    kernel: Float[Array, "row gates"],
    bias: Float[Array, " gates"],
    new_bias: Float[Array, " gates//3"],
    inputs: Float[Array, "time batch feature"],
    valid: Shaped[Array, "time batch"],
) -> tuple[Float[Array, "time batch gates//3"], ...]:
    """Return all steps' hidden states, reset, update and new gates, new gates' recurrent parts."""
    steps, batch, features = inputs.shape
    size, unroll = kernel.shape[-1] // 3, steps_per_iteration(steps)
    input_kernel, hidden_kernel = kernel[:features], kernel[features:]
    hoisted = unroll > 1  # compute the inputs' part of the gates for all steps at once

    def input_part(x: Array) -> Array:
        return input_product(x, input_kernel, precision) + bias

    def step(hidden: Array, now: tuple[Array, Array]) -> tuple[Array, tuple[Array, ...]]:
        x, observed = now
        from_input = x if hoisted else input_part(x)  # (batch, 3H)
        from_hidden = product(hidden, hidden_kernel, precision)  # (batch, 3H)
        gates = jax.nn.sigmoid(from_input[:, : 2 * size] + from_hidden[:, : 2 * size])
        reset, update = gates[:, :size], gates[:, size:]
        recurrent = from_hidden[:, 2 * size :] + new_bias  # (batch, H)
        new = jnp.tanh(from_input[:, 2 * size :] + reset * recurrent)
        hidden = hidden + observed[:, None] * (1 - update) * (new - hidden)
        return hidden, (hidden, reset, update, new, recurrent)

    start = jnp.zeros((batch, size), inputs.dtype)
    if hoisted:
        inputs = input_part(inputs)
    return jax.lax.scan(step, start, (inputs, valid), unroll=unroll)[1]


def _gru_forward(
    steps: Steps,
    precision: Precision,
    compiled: bool,  # noqa: FBT001
    kernel: CustomVJPPrimal,
    bias: CustomVJPPrimal,
    new_bias: CustomVJPPrimal,
    inputs: CustomVJPPrimal,
    valid: CustomVJPPrimal,
) -> tuple[Array, _Saved]:
    want_inputs = () if inputs.perturbed else None
    arrays = kernel.value, bias.value, new_bias.value, inputs.value, valid.value
    compiled = compiled and library.usable(*arrays)
    found = calls.gru_forward(*arrays) if compiled else _forward(precision, *arrays)
    hidden, *gates = found
    residuals = _Residuals(arrays[0], *arrays[3:], hidden, tuple(gates))
    saved = _Saved(residuals, () if compiled else None, want_inputs)
    return (hidden[-1] if steps == "last" else hidden), saved


def _gru_backward(
    steps: Steps, precision: Precision, _: bool,  # noqa: FBT001
    saved: _Saved, grad_hidden: Array | SymbolicZero,
) -> tuple[Array, ...]:  # fmt: skip
    residuals, compiled, want_inputs = saved
    if isinstance(grad_hidden, SymbolicZero):
        grad_hidden = jnp.zeros(grad_hidden.shape, residuals.kernel.dtype)
    if compiled is None:
        if steps == "last":
            grad_hidden = jnp.zeros_like(residuals.hidden).at[-1].set(grad_hidden)
        return _jax_backward(precision, residuals, grad_hidden)
    grads = calls.gru_backward(
        (*residuals[:-1], *residuals.gates),
        grad_hidden,
        last_only=steps == "last",
        want_inputs=want_inputs is not None,
    )
    return *grads, jnp.zeros_like(residuals.valid)


def _jax_backward(
    precision: Precision, residuals: _Residuals, grad_hidden: Float[Array, "time batch hidden"]
) -> tuple[
    Float[Array, "row 3*hidden"],
    Float[Array, " 3*hidden"],
    Float[Array, " hidden"],
    Float[Array, "time batch row-hidden"],
    Float[Array, "time batch"],
]:
    """Return gradients of kernel, both biases and inputs, and zeros for ``valid``."""
    kernel, inputs, valid, hidden, gates = residuals
    features, size = inputs.shape[-1], hidden.shape[-1]
    hidden_kernel = kernel[features:]
    previous = jnp.pad(hidden[:-1], ((1, 0), (0, 0), (0, 0)))  # (time, batch, H)

    def step(
        grad_h: Array, now: tuple[Array, tuple[Array, ...], Array, Array]
    ) -> tuple[Array, tuple[Array, Array]]:
        grad_out, (reset, update, new, recurrent), before, observed = now
        grad_h = grad_h + grad_out
        grad_now = observed[:, None] * grad_h
        grad_new = grad_now * (1 - update) * (1 - new * new)
        grad_update = grad_now * (before - new) * update * (1 - update)
        grad_reset = grad_new * recurrent * reset * (1 - reset)
        grad_input = jnp.concatenate([grad_reset, grad_update, grad_new], axis=-1)  # (batch, 3H)
        grad_recurrent = jnp.concatenate([grad_reset, grad_update, grad_new * reset], axis=-1)
        grad_h = (
            grad_h - grad_now * (1 - update) + product(grad_recurrent, hidden_kernel.T, precision)
        )
        return grad_h, (grad_input, grad_recurrent)

    steps = (grad_hidden, gates, previous, valid)
    start = jnp.zeros_like(hidden[0])
    _, (grad_input, grad_recurrent) = jax.lax.scan(
        step, start, steps, reverse=True, unroll=steps_per_iteration(len(hidden))
    )
    grad_kernel = jnp.concatenate(
        [
            input_gradient(_flat(inputs), _flat(grad_input), precision),
            product(_flat(previous).T, _flat(grad_recurrent), precision),
        ]
    )
    grad_new_bias = grad_recurrent[..., 2 * size :].sum((0, 1))
    grad_inputs = product(grad_input, kernel[:features].T, precision)
    return grad_kernel, grad_input.sum((0, 1)), grad_new_bias, grad_inputs, jnp.zeros_like(valid)


def _flat(array: Float[Array, "time batch column"]) -> Float[Array, "time*batch column"]:
    return array.reshape(-1, array.shape[-1])


_gru.defvjp(_gru_forward, _gru_backward, symbolic_zeros=True)
