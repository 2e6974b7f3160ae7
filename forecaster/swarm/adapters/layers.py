"""LSTM and GRU layers for Flax modules."""

import functools

import jax.numpy as jnp
from flax import nnx
from jax import Array

from forecaster.swarm.recurrence import check_precision, gru, lstm

_glorot = nnx.initializers.glorot_uniform()


class _Recurrent(nnx.Module):
    """A recurrent layer, time-major, with ``gates`` gates."""

    gates: int

    def __init__(
        self,
        features: int,
        hidden: int,
        *,
        precision: str = "float32",
        compiled: bool = True,
        rngs: nnx.Rngs,
    ):
        self.precision, self.compiled = check_precision(precision), compiled
        self.kernel = nnx.Param(_glorot(rngs.params(), (features + hidden, self.gates * hidden)))
        self.bias = nnx.Param(jnp.zeros(self.gates * hidden))
        if self.gates == 3:
            self.new_bias = nnx.Param(jnp.zeros(hidden))
        else:  # forget gates start open: Jozefowicz, Zaremba & Sutskever (2015), ICML
            self.bias[...] = self.bias[...].at[hidden : 2 * hidden].set(1.0)

    def __call__(
        self, inputs: Array, valid: Array | None = None, *, last_only: bool = False
    ) -> Array:
        """Return the hidden states, (T, B, H), or with ``last_only`` the last one, (B, H).

        - ``inputs``: (T, B, F)
        - ``valid``: (T, B), 1.0 for steps and 0.0 for padding; by default all are steps
        """
        valid = jnp.ones(inputs.shape[:2], inputs.dtype) if valid is None else valid
        of_layer = functools.partial(gru, new_bias=self.new_bias[...]) if self.gates == 3 else lstm
        return of_layer(
            self.kernel[...],
            self.bias[...],
            inputs=inputs,
            valid=valid,
            last_only=last_only,
            precision=self.precision,
            compiled=self.compiled,
        )


class LSTM(_Recurrent):
    """One LSTM layer, time-major; see :func:`forecaster.swarm.recurrence.lstm`.

    - ``features``, ``hidden``: number of inputs per step, and of units
    - ``precision``: ``float32``, or ``bfloat16`` for the matrix products only
    - ``compiled``: use the compiled code, which has first derivatives only; False leaves all to
      JAX, which is slower

    Raises SwarmError for another precision.
    """

    gates = 4


class GRU(_Recurrent):
    """One GRU layer, time-major; see :func:`forecaster.swarm.recurrence.gru`.

    Arguments as for :class:`LSTM`.
    """

    gates = 3
