"""Losses by member and epoch, collected block by block."""

import numpy as np
from jaxtyping import Float, Int

from forecaster.swarm.members import append_members, write_members
from forecaster.swarm.task import AnyArray
from forecaster.swarm.training import Losses


class History:
    """Losses of members that may be at different epochs. A value: nothing changes it."""

    def __init__(
        self,
        losses: Losses,  # each (member, epoch)
        latest: Float[np.ndarray, " member"],  # each member's latest validation loss
    ):
        self.losses, self.latest = losses, latest

    @staticmethod
    def empty(members: int) -> "History":
        """The history of members that have not trained."""
        none = np.full((members, 0), np.nan, np.float32)
        return History(Losses(none, none), np.full(members, np.nan))

    @staticmethod
    def of(losses: Losses, epochs: Int[np.ndarray, " member"]) -> "History":
        """Continue from losses (member, epoch) of members that have trained so many epochs."""
        train, validation = np.array(losses.train), np.array(losses.validation)
        latest = np.full(len(epochs), np.nan)
        rows = np.flatnonzero(epochs)
        latest[rows] = validation[rows, epochs[rows] - 1]
        return History(Losses(train, validation), latest)

    def with_block(
        self,
        rows: Int[np.ndarray, " row"],
        losses: Losses,  # each (row, epoch of the block)
        before: Int[np.ndarray, " row"],
        after: Int[np.ndarray, " row"],
    ) -> "History":
        """A copy with the losses of a block that took ``rows`` from one epoch to another."""
        epochs = int(after.max())
        train, validation = (
            widened(self.losses.train, epochs),
            widened(self.losses.validation, epochs),
        )
        latest = self.latest.copy()
        for position, (row, first, last) in enumerate(zip(rows, before, after, strict=True)):
            train[row, first:last] = losses.train[position, : last - first]
            validation[row, first:last] = losses.validation[position, : last - first]
            latest[row] = validation[row, last - 1]
        return History(Losses(train, validation), latest)


def append_losses(first: Losses, second: Losses) -> Losses:
    """Losses (member, epoch) of two swarms as those of one."""
    epochs = max(first.train.shape[1], second.train.shape[1])
    return append_members(
        Losses(*(widened(losses, epochs) for losses in first)),
        Losses(*(widened(losses, epochs) for losses in second)),
    )


def write_losses(losses: Losses, rows: Int[np.ndarray, " row"], new: Losses) -> Losses:
    """A copy of the losses (member, epoch) with new ones (row, epoch) in some rows."""
    epochs = new.train.shape[1]
    return write_members(Losses(*(widened(each, epochs) for each in losses)), rows, new)


def write_latest(
    losses: Float[AnyArray, "member epoch"],
    epochs: Int[np.ndarray, " member"],
    latest: Float[np.ndarray, " member"] | float,
) -> Float[np.ndarray, "member later_epoch"]:
    """A copy of the losses with those of each member's latest epoch."""
    longer = widened(losses, int(epochs.max()))
    longer[np.arange(len(epochs)), epochs - 1] = latest
    return longer


def widened(
    losses: Float[AnyArray, "member epoch"], epochs: int
) -> Float[np.ndarray, "member later_epoch"]:
    """A copy of the losses, at least so many epochs wide; NaN in those that are added."""
    extra = max(0, epochs - losses.shape[1])
    return np.pad(losses, ((0, 0), (0, extra)), constant_values=np.nan)
