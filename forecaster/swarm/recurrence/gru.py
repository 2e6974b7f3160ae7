"""The GRU recurrence over time for one model, with a hand-written backward pass.

Gated recurrent unit, Cho et al. (2014), arXiv 1406.1078, in the variant that cuDNN and
``torch.nn.GRU`` compute: the reset gate acts after the recurrent matrix product. Gate order:
reset, update, new. Why the backward pass is written by hand: see ``lstm.py``.
"""

import functools

import jax
import jax.numpy as jnp
from jax import Array
from jax.custom_derivatives import SymbolicZero

from forecaster.swarm.recurrence import native
from forecaster.swarm.recurrence.unrolling import steps_per_iteration


def gru(
    kernel: Array,
    bias: Array,
    new_bias: Array,
    inputs: Array,
    valid: Array,
    *,
    last_only: bool = False,
) -> Array:
    """Run a GRU over time from a zero state and return the hidden state of every step.

    Shapes, for time T, batch B, features F and hidden size H: ``kernel`` (F + H, 3H), its first F
    rows for the input and the rest for the hidden state; ``bias`` (3H,), added to the input part;
    ``new_bias`` (H,), added to the recurrent part of the new gate, inside the reset; ``inputs``
    (T, B, F); ``valid`` (T, B), 1.0 where the step is observed and 0.0 where it is padding, which
    leaves the state as it was. Returns (T, B, H), or with ``last_only`` the last step's, (B, H),
    whose gradient is cheaper. Not differentiable in ``valid``.

    On CPUs, in float32, compiled code does it where it was built; see ``native``.
    """
    native.check_shapes(kernel, 3, inputs, valid, bias, new_bias)
    return _gru(last_only, kernel, bias, new_bias, inputs, valid)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _gru(last_only, kernel, bias, new_bias, inputs, valid):
    if native.usable(kernel, bias, new_bias, inputs, valid):
        hidden = native.gru_infer(kernel, bias, new_bias, inputs, valid)
    else:
        hidden = _forward(kernel, bias, new_bias, inputs, valid)[0]
    return hidden[-1] if last_only else hidden


@jax.custom_vjp
def jax_gru(kernel: Array, bias: Array, new_bias: Array, inputs: Array, valid: Array) -> Array:
    """The same in JAX alone: what the compiled code has to agree with."""
    return _forward(kernel, bias, new_bias, inputs, valid)[0]


def _forward(kernel, bias, new_bias, inputs, valid):
    steps, batch, features = inputs.shape
    size, unroll = kernel.shape[-1] // 3, steps_per_iteration(steps)
    input_kernel, hidden_kernel = kernel[:features], kernel[features:]
    hoisted = unroll > 1  # the inputs' part of the gates for all steps at once

    def step(hidden, now):
        x, observed = now
        from_input = x if hoisted else x @ input_kernel + bias  # (B, 3H)
        from_hidden = hidden @ hidden_kernel  # (B, 3H)
        gates = jax.nn.sigmoid(from_input[:, : 2 * size] + from_hidden[:, : 2 * size])
        reset, update = gates[:, :size], gates[:, size:]
        recurrent = from_hidden[:, 2 * size :] + new_bias  # (B, H)
        new = jnp.tanh(from_input[:, 2 * size :] + reset * recurrent)
        hidden = hidden + observed[:, None] * (1 - update) * (new - hidden)
        return hidden, (hidden, reset, update, new, recurrent)

    start = jnp.zeros((batch, size), inputs.dtype)
    if hoisted:
        inputs = inputs @ input_kernel + bias
    return jax.lax.scan(step, start, (inputs, valid), unroll=unroll)[1]


def _gru_forward(last_only, kernel, bias, new_bias, inputs, valid):
    want_inputs = None if not inputs.perturbed else ()  # static: it is part of the structure
    arrays = kernel.value, bias.value, new_bias.value, inputs.value, valid.value
    if native.usable(*arrays):
        hidden, gates = native.gru_forward(*arrays)
        saved = (arrays[0], *arrays[3:], hidden, gates), (), want_inputs
    else:
        hidden, residuals = _jax_forward(*arrays)
        saved = residuals, None, want_inputs
    return (hidden[-1] if last_only else hidden), saved


def _gru_backward(last_only, saved, grad_hidden):
    residuals, by_kernel, want_inputs = saved
    if isinstance(grad_hidden, SymbolicZero):
        grad_hidden = jnp.zeros(grad_hidden.shape, residuals[0].dtype)
    if by_kernel is None:
        if last_only:
            grad_hidden = jnp.zeros_like(residuals[3]).at[-1].set(grad_hidden)
        return _jax_backward(residuals, grad_hidden)
    grads = native.gru_backward(residuals, grad_hidden, last_only, want_inputs is not None)
    return *grads, jnp.zeros_like(residuals[2])


def _jax_forward(kernel, bias, new_bias, inputs, valid):
    hidden, *gates = _forward(kernel, bias, new_bias, inputs, valid)
    return hidden, (kernel, inputs, valid, hidden, tuple(gates))


def _jax_backward(residuals, grad_hidden):
    kernel, inputs, valid, hidden, gates = residuals
    features, size = inputs.shape[-1], hidden.shape[-1]
    hidden_kernel = kernel[features:]
    previous = jnp.pad(hidden[:-1], ((1, 0), (0, 0), (0, 0)))  # (T, B, H)

    def step(grad_h, now):
        grad_out, (reset, update, new, recurrent), before, observed = now
        grad_h = grad_h + grad_out
        grad_now = observed[:, None] * grad_h
        grad_new = grad_now * (1 - update) * (1 - new * new)
        grad_update = grad_now * (before - new) * update * (1 - update)
        grad_reset = grad_new * recurrent * reset * (1 - reset)
        grad_input = jnp.concatenate([grad_reset, grad_update, grad_new], axis=-1)  # (B, 3H)
        grad_recurrent = jnp.concatenate([grad_reset, grad_update, grad_new * reset], axis=-1)
        grad_h = grad_h - grad_now * (1 - update) + grad_recurrent @ hidden_kernel.T
        return grad_h, (grad_input, grad_recurrent)

    steps = (grad_hidden, gates, previous, valid)
    start = jnp.zeros_like(hidden[0])
    _, (grad_input, grad_recurrent) = jax.lax.scan(
        step, start, steps, reverse=True, unroll=steps_per_iteration(len(hidden))
    )
    flat = lambda array: array.reshape(-1, array.shape[-1])  # noqa: E731
    grad_kernel = jnp.concatenate(
        [
            flat(inputs).T @ flat(grad_input),
            flat(previous).T @ flat(grad_recurrent),
        ]
    )
    grad_new_bias = grad_recurrent[..., 2 * size :].sum((0, 1))
    grad_inputs = grad_input @ kernel[:features].T
    return grad_kernel, grad_input.sum((0, 1)), grad_new_bias, grad_inputs, jnp.zeros_like(valid)


_gru.defvjp(_gru_forward, _gru_backward, symbolic_zeros=True)
jax_gru.defvjp(_jax_forward, _jax_backward)
