"""The GRU recurrence over time for one model, with a hand-written backward pass.

Gated recurrent unit, Cho et al. (2014), arXiv 1406.1078, in the variant that cuDNN and
``torch.nn.GRU`` compute: the reset gate acts after the recurrent matrix product. Gate order:
reset, update, new. ``lstm.py`` explains why the backward pass is written by hand.
"""

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Shaped

from forecaster.swarm.recurrence.running import (
    CELLS,
    JaxCell,
    Precision,
    Residuals,
    by_jax,
    input_product,
    product,
    run,
    steps_per_iteration,
)
from forecaster.swarm.task import AnyArray


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
    return run(
        "gru",
        (kernel, bias, new_bias),
        inputs,
        valid,
        last_only=last_only,
        precision=precision,
        compiled=compiled,
    )


def jax_gru(*arrays: Array, precision: Precision = "float32") -> Array:
    """Return the hidden states by JAX alone, of arrays as for :func:`gru`."""
    return by_jax("gru", precision, *arrays)


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


def _backward(
    precision: Precision, residuals: Residuals, grad_hidden: Float[Array, "time batch hidden"]
) -> tuple[Float[Array, "time batch 3*hidden"], Float[Array, "time batch 3*hidden"]]:
    """Return the gradients of both parts of the gates, of the inputs and of the hidden state."""
    kernel, inputs, valid, hidden, gates = residuals
    hidden_kernel = kernel[inputs.shape[-1] :]
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
    unroll = steps_per_iteration(len(hidden))
    return jax.lax.scan(step, start, steps, reverse=True, unroll=unroll)[1]


CELLS["gru"] = JaxCell(3, _forward, _backward)
