"""The LSTM recurrence over time for one model, with a hand-written backward pass.

Long short-term memory, Hochreiter & Schmidhuber (1997), Neural Computation 9(8), with the
forget gate of Gers, Schmidhuber & Cummins (2000). Gate order is that of ``torch.nn.LSTM``:
input, forget, cell, output.

Differentiating a ``lax.scan`` makes XLA accumulate the weight gradient in every step. Here the
backward scan carries only the gradients of the hidden and the cell state and stores those of the
gates; the weight gradient is then one matrix product over (time x batch).
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


def lstm(
    kernel: Float[AnyArray, "row gates"],
    bias: Float[AnyArray, " gates"],
    inputs: Float[AnyArray, "time batch feature"],
    valid: Shaped[AnyArray, "time batch"],
    *,
    last_only: bool = False,
    precision: str = "float32",
    compiled: bool = True,
) -> Float[Array, "... batch gates//4"]:
    """Run an LSTM over time from a zero state and return the hidden state of every step.

    With F features and hidden size H:

    - ``kernel``: (F + H, 4H), its first F rows for the input and the rest for the hidden state.
    - ``bias``: (4H,).
    - ``inputs``: (time, batch, F).
    - ``valid``: (time, batch), 1.0 for an observed step, 0.0 for padding, which leaves the state
      unchanged; no other value is allowed. It has no derivative.
    - ``last_only``: return only the last step's hidden state, whose gradient is cheaper.
    - ``precision``: ``float32``, or ``bfloat16``: factors of the matrix products are rounded to
      bfloat16; sums, states and activations stay float32.
    - ``compiled``: False leaves all to JAX, which is slower and has derivatives of every kind.

    Returns (time, batch, H), or (batch, H) with ``last_only``. Raises SwarmError for shapes that do
    not fit together, and for another precision.

    On CPUs, in float32, compiled code is used if it was built; see ``native.library``. It computes
    in float32, whatever the precision, on processors that multiply bfloat16 no faster (those
    without matrix units, AMX, or AMD's AVX-512 BF16). It has first derivatives by ``jax.grad``
    only: pass ``compiled=False`` for second derivatives and for ``jvp``.
    """
    return run(
        "lstm",
        (kernel, bias),
        inputs,
        valid,
        last_only=last_only,
        precision=precision,
        compiled=compiled,
    )


def jax_lstm(*arrays: Array, precision: Precision = "float32") -> Array:
    """Return the hidden states by JAX alone, of arrays as for :func:`lstm`."""
    return by_jax("lstm", precision, *arrays)


def _activate(preactivation: Float[Array, "batch gates"]) -> Float[Array, "batch gates"]:
    """Apply sigmoid to the input, forget and output gates, tanh to the cell gate, by one tanh."""
    size = preactivation.shape[-1] // 4
    half = jnp.repeat(jnp.array([0.5, 0.5, 1.0, 0.5], preactivation.dtype), size)
    return half * jnp.tanh(half * preactivation) + (1 - half)


def _forward(
    precision: Precision,
    kernel: Float[Array, "row gates"],
    bias: Float[Array, " gates"],
    inputs: Float[Array, "time batch feature"],
    valid: Shaped[Array, "time batch"],
) -> tuple[
    Float[Array, "time batch gates//4"],
    Float[Array, "time batch gates//4"],
    Float[Array, "time batch gates"],
]:
    """Return hidden states, cell states and activated gates of every step."""
    steps, batch, features = inputs.shape
    size, unroll = kernel.shape[-1] // 4, steps_per_iteration(steps)
    hoisted = unroll > 1  # compute the inputs' part of the gates for all steps at once
    together = precision == "float32" and not hoisted  # inputs and hidden state in one product

    def input_part(x: Array) -> Array:
        return input_product(x, kernel[:features], precision) + bias

    def step(
        carry: tuple[Array, Array], now: tuple[Array, Array]
    ) -> tuple[tuple[Array, Array], tuple[Array, Array, Array]]:
        hidden, cell = carry
        x, observed = now
        if together:
            gates = jnp.concatenate([x, hidden], axis=-1) @ kernel + bias
        else:
            from_inputs = x if hoisted else input_part(x)
            gates = from_inputs + product(hidden, kernel[features:], precision)
        gates = _activate(gates)  # (batch, 4H)
        i, f, g, o = jnp.split(gates, 4, axis=-1)
        keep = observed[:, None]
        new_cell = f * cell + i * g
        new_hidden = o * jnp.tanh(new_cell)
        new_cell = cell + keep * (new_cell - cell)
        new_hidden = hidden + keep * (new_hidden - hidden)
        return (new_hidden, new_cell), (new_hidden, new_cell, gates)

    zero = jnp.zeros((batch, size), inputs.dtype)
    if hoisted:
        inputs = input_part(inputs)
    _, (hidden, cell, gates) = jax.lax.scan(step, (zero, zero), (inputs, valid), unroll=unroll)
    return hidden, cell, gates


def _backward(
    precision: Precision, residuals: Residuals, grad_hidden: Float[Array, "time batch hidden"]
) -> Float[Array, "time batch 4*hidden"]:
    """Return the gradient of the gates before activation."""
    kernel, inputs, valid, hidden, (cell, gates) = residuals
    hidden_kernel = kernel[inputs.shape[-1] :]
    previous_cell = jnp.pad(cell[:-1], ((1, 0), (0, 0), (0, 0)))

    def step(
        carry: tuple[Array, Array], now: tuple[Array, ...]
    ) -> tuple[tuple[Array, Array], Array]:
        grad_h, grad_c = carry
        grad_out, gates, c, c_before, observed = now
        keep = observed[:, None]
        i, f, g, o = jnp.split(gates, 4, axis=-1)
        tanh_c = jnp.tanh(c)  # c in padding is not from the gates; its gradient is 0
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
        )  # (batch, 4H)
        grad_h = product(grad_gates, hidden_kernel.T, precision) + (grad_h - grad_now)
        grad_c = dc * f + (1 - keep) * grad_c
        return (grad_h, grad_c), grad_gates

    zero = jnp.zeros_like(hidden[0])
    steps = (grad_hidden, gates, cell, previous_cell, valid)
    unroll = steps_per_iteration(len(hidden))
    return jax.lax.scan(step, (zero, zero), steps, reverse=True, unroll=unroll)[1]


CELLS["lstm"] = JaxCell(4, _forward, _backward)
