"""Recurrences with random weights, for the tests of the kernels."""

import jax
import jax.numpy as jnp
import numpy as np

from forecaster.swarm.recurrence import gru, lstm
from forecaster.swarm.recurrence.gru import jax_gru
from forecaster.swarm.recurrence.lstm import jax_lstm

CELLS = [(lstm, jax_lstm), (gru, jax_gru)]


def problem(seed, members, steps, batch, features, hidden, cell=lstm):
    """Weights, inputs, which steps are valid, and weights that make a scalar of the outputs."""
    random = np.random.default_rng(seed)
    scale, gates = 1 / np.sqrt(features + hidden), 4 if cell is lstm else 3
    shapes = [((features + hidden, gates * hidden), scale), ((gates * hidden,), 1.0)]
    if cell is gru:
        shapes.append(((hidden,), 1.0))
    shapes.append(((steps, batch, features), 1.0))
    arrays = [(random.normal(size=(members, *s)) * by).astype(np.float32) for s, by in shapes]
    valid = (random.random((members, steps, batch)) < 0.8).astype(np.float32)
    weights = random.normal(size=(members, steps, batch, hidden)).astype(np.float32)
    return tuple(map(jnp.asarray, (*arrays, valid, weights)))


def outputs(recurrence, arrays):
    """Return hidden states, and gradients of all arrays but the mask, of many members."""

    def one(*arrays):
        *arrays, weights = arrays
        hidden = recurrence(*arrays)
        weights = weights[-1] if hidden.ndim == 2 else weights
        return (hidden * weights).sum(), hidden

    differentiated = tuple(range(len(arrays) - 2))
    both = jax.jit(jax.vmap(jax.value_and_grad(one, argnums=differentiated, has_aux=True)))
    (_, hidden), gradients = both(*arrays)
    return hidden, *gradients
