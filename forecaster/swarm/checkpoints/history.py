"""Losses by member and epoch, collected block by block."""

from collections.abc import Sequence
from typing import cast

import jax
import numpy as np
from jaxtyping import Float, Int

from forecaster.swarm.arrays.members import append_members
from forecaster.swarm.task import AnyArray
from forecaster.swarm.training.loop import Losses


class History:
    """Losses of members that may be at different epochs, written in place.

    There is room for later epochs, doubled where it is used up, so that a block copies only itself.
    """

    def __init__(self, losses: Losses, metrics: Sequence[str] = ()):  # each (member, epoch)
        self._losses, self._epochs = widened_losses(losses, 0, metrics), losses.train.shape[1]

    def add(
        self,
        rows: Int[np.ndarray, " row"],
        losses: Losses,  # each (row, epoch since ``before``)
        before: Int[np.ndarray, " row"],
        after: Int[np.ndarray, " row"],
    ) -> None:
        """Write the losses of the epochs in which ``rows`` trained from ``before`` to ``after``."""
        self._epochs = max(self._epochs, int(after.max(initial=0)))
        if self._epochs > self._losses.train.shape[1]:
            self._losses = widened_losses(self._losses, 2 * self._epochs)
        trained = after - before
        position, epoch = np.nonzero(np.arange(losses.train.shape[1]) < trained[:, None])
        pairs = [(self._losses.train, losses.train), (self._losses.validation, losses.validation)]
        pairs += [(self._losses.metrics[name], losses.metrics[name]) for name in losses.metrics]
        for out, new in cast(list[tuple[np.ndarray, np.ndarray]], pairs):
            out[rows[position], before[position] + epoch] = new[position, epoch]

    def latest(self, epochs: Int[np.ndarray, " member"]) -> Float[np.ndarray, " member"]:
        """Return the validation losses of these epochs, counted from 1; NaN for epoch 0."""
        latest, rows = np.full(len(epochs), np.nan), np.flatnonzero(epochs)
        latest[rows] = self._losses.validation[rows, epochs[rows] - 1]
        return latest

    @property
    def losses(self) -> Losses:
        """A copy of training and validation loss and metrics, each (member, epoch)."""

        def known(leaf: np.ndarray) -> np.ndarray:
            return np.array(leaf[:, : self._epochs])

        return jax.tree.map(known, self._losses)


def append_losses(first: Losses, second: Losses) -> Losses:
    """Return the losses (member, epoch) of two swarms as those of one."""
    epochs = max(first.train.shape[1], second.train.shape[1])
    return append_members(
        widened_losses(first, epochs, tuple(second.metrics)),
        widened_losses(second, epochs, tuple(first.metrics)),
    )


def widened_losses(losses: Losses, epochs: int, metrics: Sequence[str] = ()) -> Losses:
    """Return a copy of the losses, at least ``epochs`` wide and with these metrics too."""
    members, before = losses.train.shape

    def widened(known: AnyArray | None) -> np.ndarray:
        wide = np.full((members, max(epochs, before)), np.nan, losses.train.dtype)
        if known is not None:
            wide[:, :before] = known
        return wide

    names = sorted({*losses.metrics, *metrics})
    by_name = {name: widened(losses.metrics.get(name)) for name in names}
    return Losses(widened(losses.train), widened(losses.validation), by_name)
