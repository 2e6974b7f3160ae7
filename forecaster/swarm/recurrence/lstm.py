"""The LSTM recurrence over time for one model, with a hand-written backward pass.

Long short-term memory, Hochreiter & Schmidhuber (1997), Neural Computation 9(8), with the
forget gate of Gers, Schmidhuber & Cummins (2000). Gate order is that of ``torch.nn.LSTM``:
input, forget, cell, output.

Differentiating a ``lax.scan`` makes XLA accumulate the weight gradient once a step. Here the
backward scan carries only the gradients of the hidden and the cell state and stores those of the
gates; the weight gradient is then one matrix product over (time x batch).
"""

import functools

import jax
import jax.numpy as jnp
from jax import Array
from jax.custom_derivatives import SymbolicZero

from forecaster.swarm.recurrence import native
from forecaster.swarm.recurrence.unrolling import steps_per_iteration


def lstm(
    kernel: Array, bias: Array, inputs: Array, valid: Array, *, last_only: bool = False
) -> Array:
    """Run an LSTM over time from a zero state and return the hidden state of every step.

    Shapes, for time T, batch B, features F and hidden size H: ``kernel`` (F + H, 4H), its first F
    rows for the input and the rest for the hidden state; ``bias`` (4H,); ``inputs`` (T, B, F);
    ``valid`` (T, B), 1.0 where the step is observed and 0.0 where it is padding, which leaves the
    state as it was, no other values. Returns (T, B, H), or with ``last_only`` the last step's,
    (B, H), whose gradient is cheaper. Not differentiable in ``valid``.

    On CPUs, in float32, compiled code does it where it was built; see ``native``. It has no second
    derivatives: for those set ``FORECASTER_KERNEL=off``. Raises ValueError for wrong shapes.
    """
    native.check_shapes(kernel, 4, inputs, valid, bias)
    return _lstm(last_only, kernel, bias, inputs, valid)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _lstm(last_only, kernel, bias, inputs, valid):
    if native.usable(kernel, bias, inputs, valid):
        hidden = native.lstm_infer(kernel, bias, inputs, valid)
    else:
        hidden = _forward(kernel, bias, inputs, valid)[0]
    return hidden[-1] if last_only else hidden


@jax.custom_vjp
def jax_lstm(kernel: Array, bias: Array, inputs: Array, valid: Array) -> Array:
    """The same in JAX alone: what the compiled code has to agree with."""
    return _forward(kernel, bias, inputs, valid)[0]


def _activate(preactivation: Array) -> Array:
    """Sigmoid of the input, forget and output gates and tanh of the cell gate, by one tanh."""
    size = preactivation.shape[-1] // 4
    half = jnp.repeat(jnp.array([0.5, 0.5, 1.0, 0.5], preactivation.dtype), size)
    return half * jnp.tanh(half * preactivation) + (1 - half)


def _forward(kernel: Array, bias: Array, inputs: Array, valid: Array):
    steps, batch, features = inputs.shape
    size, unroll = kernel.shape[-1] // 4, steps_per_iteration(steps)
    hoisted = unroll > 1  # the inputs' part of the gates for all steps at once

    def step(carry, now):
        hidden, cell = carry
        x, observed = now
        if hoisted:
            gates = x + hidden @ kernel[features:]
        else:
            gates = jnp.concatenate([x, hidden], axis=-1) @ kernel + bias
        gates = _activate(gates)  # (B, 4H)
        i, f, g, o = jnp.split(gates, 4, axis=-1)
        keep = observed[:, None]
        new_cell = f * cell + i * g
        new_hidden = o * jnp.tanh(new_cell)
        new_cell = cell + keep * (new_cell - cell)
        new_hidden = hidden + keep * (new_hidden - hidden)
        return (new_hidden, new_cell), (new_hidden, new_cell, gates)

    zero = jnp.zeros((batch, size), inputs.dtype)
    if hoisted:
        inputs = inputs @ kernel[:features] + bias
    _, (hidden, cell, gates) = jax.lax.scan(step, (zero, zero), (inputs, valid), unroll=unroll)
    return hidden, cell, gates


def _lstm_forward(last_only, kernel, bias, inputs, valid):
    want_inputs = None if not inputs.perturbed else ()  # static: it is part of the structure
    arrays = kernel.value, bias.value, inputs.value, valid.value
    if native.usable(*arrays):
        hidden, cell, gates = native.lstm_forward(*arrays)
        saved = (arrays[0], *arrays[2:], hidden, cell, gates), (), want_inputs
    else:
        hidden, residuals = _jax_forward(*arrays)
        saved = residuals, None, want_inputs
    return (hidden[-1] if last_only else hidden), saved


def _lstm_backward(last_only, saved, grad_hidden):
    residuals, by_kernel, want_inputs = saved
    if isinstance(grad_hidden, SymbolicZero):
        grad_hidden = jnp.zeros(grad_hidden.shape, residuals[0].dtype)
    if by_kernel is None:
        if last_only:
            grad_hidden = jnp.zeros_like(residuals[3]).at[-1].set(grad_hidden)
        return _jax_backward(residuals, grad_hidden)
    grads = native.lstm_backward(residuals, grad_hidden, last_only, want_inputs is not None)
    return *grads, jnp.zeros_like(residuals[2])


def _jax_forward(kernel, bias, inputs, valid):
    hidden, cell, gates = _forward(kernel, bias, inputs, valid)
    return hidden, (kernel, inputs, valid, hidden, cell, gates)


def _jax_backward(residuals, grad_hidden):
    kernel, inputs, valid, hidden, cell, gates = residuals
    features = inputs.shape[-1]
    hidden_kernel = kernel[features:]
    previous = functools.partial(jnp.pad, pad_width=((1, 0), (0, 0), (0, 0)))
    previous_hidden, previous_cell = previous(hidden[:-1]), previous(cell[:-1])  # (T, B, H)

    def step(carry, now):
        grad_h, grad_c = carry
        grad_out, gates, c, c_before, observed = now
        keep = observed[:, None]
        i, f, g, o = jnp.split(gates, 4, axis=-1)
        tanh_c = jnp.tanh(c)  # where padded, c is another but counts for nothing
        grad_h = grad_h + grad_out
        grad_now = keep * grad_h
        dc = keep * grad_c + grad_now * o * (1 - tanh_c * tanh_c)
        grad_gates = jnp.concatenate(
            [
                dc * g * i * (1 - i),
                dc * c_before * f * (1 - f),
                dc * i * (1 - g * g),
                grad_now * tanh_c * o * (1 - o),
            ],
            axis=-1,
        )  # (B, 4H)
        grad_h = grad_gates @ hidden_kernel.T + (grad_h - grad_now)
        grad_c = dc * f + (1 - keep) * grad_c
        return (grad_h, grad_c), grad_gates

    zero = jnp.zeros_like(hidden[0])
    steps = (grad_hidden, gates, cell, previous_cell, valid)
    _, grad_gates = jax.lax.scan(
        step, (zero, zero), steps, reverse=True, unroll=steps_per_iteration(len(hidden))
    )  # (T, B, 4H)
    seen = jnp.concatenate([inputs, previous_hidden], axis=-1).reshape(-1, len(kernel))
    grad_kernel = seen.T @ grad_gates.reshape(len(seen), -1)
    grad_inputs = grad_gates @ kernel[:features].T
    return grad_kernel, grad_gates.sum((0, 1)), grad_inputs, jnp.zeros_like(valid)


_lstm.defvjp(_lstm_forward, _lstm_backward, symbolic_zeros=True)
jax_lstm.defvjp(_jax_forward, _jax_backward)
