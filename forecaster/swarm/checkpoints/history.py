"""Losses by member and epoch, collected block by block."""

import functools
import operator
from collections.abc import Sequence
from typing import NamedTuple, cast

import jax
import numpy as np
from jaxtyping import Float, Int

from forecaster.swarm.arrays.members import append_members, fill_members
from forecaster.swarm.task import AnyArray
from forecaster.swarm.training.loop import Losses


class _Block(NamedTuple):
    """Losses (row, epoch of the block) of members that trained from ``before`` to ``after``."""

    rows: Int[np.ndarray, " row"]
    before: Int[np.ndarray, " row"]
    after: Int[np.ndarray, " row"]
    losses: Losses


class History:
    """Losses of members that may be at different epochs. Immutable.

    Blocks are joined only when the losses are read, so that adding one copies no others.
    """

    def __init__(
        self,
        first: Losses,  # each (member, epoch)
        latest: Float[np.ndarray, " member"],  # each member's latest validation loss
        blocks: tuple[_Block, ...] = (),
    ):
        self._first, self.latest, self._blocks = first, latest, blocks

    @staticmethod
    def of(
        losses: Losses, epochs: Int[np.ndarray, " member"], metrics: Sequence[str] = ()
    ) -> "History":
        """Return a history to continue losses (member, epoch) after each member's ``epochs``."""
        return History(widened_losses(losses, 0, metrics), latest_of(losses, epochs))

    def with_block(
        self,
        rows: Int[np.ndarray, " row"],
        losses: Losses,  # each (row, epoch of the block)
        before: Int[np.ndarray, " row"],
        after: Int[np.ndarray, " row"],
    ) -> "History":
        """Return the history with the losses of a block, in which ``rows`` trained to ``after``."""
        trained, latest = after - before, self.latest.copy()
        some = trained > 0
        latest[rows[some]] = losses.validation[some, trained[some] - 1]
        width = int(trained.max(initial=0))
        kept = jax.tree.map(operator.itemgetter((slice(None), slice(width))), losses)
        block = _Block(rows, before, after, kept)
        return History(self._first, latest, (*self._blocks, block))

    @functools.cached_property
    def losses(self) -> Losses:
        """Training and validation loss and metrics, each (member, epoch)."""
        epochs = max([0, *(int(block.after.max(initial=0)) for block in self._blocks)])
        whole = widened_losses(self._first, epochs)
        for rows, before, after, losses in self._blocks:
            position, epoch = np.nonzero(
                np.arange(losses.train.shape[1]) < (after - before)[:, None]
            )
            pairs = [(whole.train, losses.train), (whole.validation, losses.validation)]
            pairs += [(whole.metrics[name], losses.metrics[name]) for name in losses.metrics]
            for out, new in cast(list[tuple[np.ndarray, np.ndarray]], pairs):
                out[rows[position], before[position] + epoch] = new[position, epoch]
        return whole


def latest_of(losses: Losses, epochs: Int[np.ndarray, " member"]) -> Float[np.ndarray, " member"]:
    """Return each member's validation loss of its last epoch; NaN before the first."""
    latest, rows = np.full(len(epochs), np.nan), np.flatnonzero(epochs)
    latest[rows] = losses.validation[rows, epochs[rows] - 1]
    return latest


def append_losses(first: Losses, second: Losses) -> Losses:
    """Return the losses (member, epoch) of two swarms as those of one."""
    epochs = max(first.train.shape[1], second.train.shape[1])
    return append_members(
        widened_losses(first, epochs, tuple(second.metrics)),
        widened_losses(second, epochs, tuple(first.metrics)),
    )


def put_together(first: Losses, parts: Sequence[tuple[Int[np.ndarray, " _"], Losses]]) -> Losses:
    """Return losses (member, epoch) in which ``parts`` (row, epoch) replace some members'."""
    epochs = max([first.train.shape[1], *(losses.train.shape[1] for _, losses in parts)])
    names = [
        name for losses in (first, *(losses for _, losses in parts)) for name in losses.metrics
    ]
    whole = widened_losses(first, epochs, names)
    for rows, losses in parts:
        fill_members(whole, rows, widened_losses(losses, epochs, names))
    return whole


def widened(
    losses: Float[AnyArray, "member epoch"], epochs: int
) -> Float[np.ndarray, "member later_epoch"]:
    """Return a copy of the losses, at least ``epochs`` wide, with NaN in the added ones."""
    members, before = losses.shape
    longer = np.full((members, max(before, epochs)), np.nan, losses.dtype)
    longer[:, :before] = losses
    return longer


def widened_losses(losses: Losses, epochs: int, metrics: Sequence[str] = ()) -> Losses:
    """Return a copy of the losses, at least ``epochs`` wide and with these metrics too."""
    none = np.full((len(losses.train), 0), np.nan, np.float32)
    names = sorted({*losses.metrics, *metrics})
    epochs = max(epochs, losses.train.shape[1])
    return Losses(
        widened(losses.train, epochs),
        widened(losses.validation, epochs),
        {name: widened(losses.metrics.get(name, none), epochs) for name in names},
    )
