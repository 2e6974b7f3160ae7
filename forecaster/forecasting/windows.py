"""Which steps of a history are learned from, validated on and forecast from; windows by index.

Histories are aligned at their end (:class:`~forecaster.series.Histories`), so the split falls on
the same step for all. With ``steps`` in all and the last ``validation`` of them held back:

    ... training targets ...  boundary | validation targets ... steps - 1

A training target never lies past the boundary; a forecast made at the boundary is the first whose
targets are validated. Windows are never cut out and stored: the history stays on the device once
and a window is a start index into it, gathered inside the training step.
"""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from forecaster.swarm import shuffled_batches


@dataclasses.dataclass(frozen=True)
class Split:
    """Static sizes of windows and spans; the same for every member."""

    steps: int
    lookback: int
    burn_in: int
    horizon: int
    validation: int

    @property
    def boundary(self) -> int:
        """The last step that training may see as a target."""
        return self.steps - self.validation - 1

    @property
    def validation_origins(self) -> np.ndarray:
        """The steps whose forecasts are validated."""
        return np.arange(self.boundary, self.steps - 1)

    def target_steps(self, origins: Array) -> Array:
        """The steps that forecasts made at these steps are about, (..., horizon)."""
        return origins[..., None] + 1 + jnp.arange(self.horizon)

    def window_origins(self, starts: Array) -> Array:
        """Steps that predict in sequence training, (..., lookback - burn_in), burn-in left out."""
        return starts[..., None] + jnp.arange(self.burn_in, self.lookback)

    def _covering_batches(self, first, batch_size: int):
        """How many batches of windows cover a member's training span once, to the nearest."""
        covered = (self.lookback - self.burn_in) * batch_size
        return (2 * (self.boundary - first) + covered) // (2 * covered)

    def random_starts(self, key: Array, first: Array, batch_size: int) -> tuple[Array, Array]:
        """An epoch's random training windows: starts (step, batch), and active steps (step,).

        Stratified: each batch has one start in each of ``batch_size`` equal parts of the member's
        own span. What is drawn does not depend on how long other members' histories are.
        """
        most = self.boundary - self.lookback
        begin = jnp.minimum(first, most)
        steps = jnp.arange(max(1, self._covering_batches(0, batch_size)))
        keys = jax.vmap(lambda step: jax.random.fold_in(key, step))(steps)
        part = jax.vmap(lambda k: jax.random.uniform(k, (batch_size,)))(keys)
        offset = (jnp.arange(batch_size) + part) / batch_size
        starts = begin + (offset * (most - begin + 1)).astype(int)
        return starts, steps < jnp.maximum(1, self._covering_batches(first, batch_size))

    def validation_starts(self) -> Array:
        """Starts of the windows whose predicting steps tile the validation origins."""
        stride = self.lookback - self.burn_in
        count = math.ceil(self.validation / stride)
        return self.steps - 1 - self.lookback - stride * jnp.arange(count)

    def training_origins(self, key: Array, first: Array, batch_size: int):
        """All training forecasts in random order, in batches: origins and weights (step, batch),
        and which batches hold any (step,). The windowed way to train."""
        origins = jnp.arange(self.boundary)
        whole = jnp.minimum(first + self.lookback - 1, self.boundary - 1)
        # Labels count from the end: a longer history of another member shifts nothing.
        return shuffled_batches(key, origins >= whole, batch_size, labels=self.boundary - origins)


def gather(features: Array, first: Array, starts: Array, lookback: int) -> tuple[Array, Array]:
    """Cut windows out of one history.

    ``features`` (step, F); ``first``: the first step that may be an input; ``starts`` (B,), which
    may lie before step 0. Returns inputs (B, lookback, F), zero where there is nothing, and valid
    (B, lookback), 1.0 where there is.
    """
    steps = starts[:, None] + jnp.arange(lookback)  # (B, lookback)
    valid = (steps >= first).astype(features.dtype)
    inputs = features[jnp.clip(steps, 0, features.shape[0] - 1)]
    return inputs * valid[..., None], valid
