"""LSTM and GRU layers for Flax modules."""

from collections.abc import Callable

import jax.numpy as jnp
from flax import nnx
from jax import Array

from forecaster.swarm.recurrence import check_precision, gru, lstm

_glorot = nnx.initializers.glorot_uniform()


class LSTM(nnx.Module):
    """One LSTM layer, time-major; see :func:`forecaster.swarm.recurrence.lstm`.

    - ``features``, ``hidden``: number of inputs per step, and of units
    - ``precision``: ``float32``, or ``bfloat16`` for the matrix products only
    - ``compiled``: use the compiled code, which has first derivatives only; False leaves all to
      JAX, which is slower

    Raises SwarmError for another precision.
    """

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
        self.kernel = nnx.Param(_glorot(rngs.params(), (features + hidden, 4 * hidden)))
        # Forget gates start open: Jozefowicz, Zaremba & Sutskever (2015), ICML.
        self.bias = nnx.Param(jnp.zeros(4 * hidden).at[hidden : 2 * hidden].set(1.0))

    def __call__(
        self, inputs: Array, valid: Array | None = None, *, last_only: bool = False
    ) -> Array:
        """Return the hidden states, (T, B, H), or with ``last_only`` the last one, (B, H).

        - ``inputs``: (T, B, F)
        - ``valid``: (T, B), 1.0 for steps and 0.0 for padding; by default all are steps
        """
        weights = self.kernel[...], self.bias[...]
        return _states(lstm, self, weights, inputs, valid, last_only=last_only)


class GRU(nnx.Module):
    """One GRU layer, time-major; see :func:`forecaster.swarm.recurrence.gru`.

    Arguments as for :class:`LSTM`.
    """

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
        self.kernel = nnx.Param(_glorot(rngs.params(), (features + hidden, 3 * hidden)))
        self.bias = nnx.Param(jnp.zeros(3 * hidden))
        self.new_bias = nnx.Param(jnp.zeros(hidden))

    def __call__(
        self, inputs: Array, valid: Array | None = None, *, last_only: bool = False
    ) -> Array:
        """Return the hidden states, (T, B, H), or with ``last_only`` the last one, (B, H).

        - ``inputs``: (T, B, F)
        - ``valid``: (T, B), 1.0 for steps and 0.0 for padding; by default all are steps
        """
        weights = self.kernel[...], self.bias[...], self.new_bias[...]
        return _states(gru, self, weights, inputs, valid, last_only=last_only)


def _states(
    run: Callable[..., Array],
    layer: LSTM | GRU,
    weights: tuple[Array, ...],
    inputs: Array,
    valid: Array | None,
    *,
    last_only: bool,
) -> Array:
    """Return the states of a layer from its recurrence ``run``; arguments as in its call."""
    valid = jnp.ones(inputs.shape[:2], inputs.dtype) if valid is None else valid
    options = {"precision": layer.precision, "compiled": layer.compiled}
    return run(*weights, inputs, valid, last_only=last_only, **options)
