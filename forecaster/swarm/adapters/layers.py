"""LSTM and GRU layers for the module of one member."""

from collections.abc import Callable

import jax.numpy as jnp
from flax import nnx
from jax import Array

from forecaster.swarm.recurrence import check_precision, gru, lstm

_glorot = nnx.initializers.glorot_uniform()


class LSTM(nnx.Module):
    """One LSTM layer, time-major; see :func:`forecaster.swarm.recurrence.lstm`.

    - ``features``, ``hidden``: inputs of a step, and units
    - ``precision``: ``float32``, or ``bfloat16`` for the matrix products alone
    - ``compiled``: without, all is left to JAX, slower, and with second derivatives, which the
      compiled code does not have

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
        """States at every step, (T, B, H), or at the last, (B, H); ``inputs`` (T, B, F).

        ``valid``: (T, B), 0.0 where there is no step; all are unless given.
        """
        weights = self.kernel[...], self.bias[...]
        return _states(lstm, self, weights, inputs, valid, last_only=last_only)


class GRU(nnx.Module):
    """One GRU layer, time-major; see :func:`forecaster.swarm.recurrence.gru`.

    Arguments as of :class:`LSTM`.
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
        """States at every step, (T, B, H), or at the last, (B, H); ``inputs`` (T, B, F).

        ``valid``: (T, B), 0.0 where there is no step; all are unless given.
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
    """The states of a layer, by its recurrence ``run``; arguments as of the layer's call."""
    valid = jnp.ones(inputs.shape[:2], inputs.dtype) if valid is None else valid
    options = {"precision": layer.precision, "compiled": layer.compiled}
    return run(*weights, inputs, valid, last_only=last_only, **options)
