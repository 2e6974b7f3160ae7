"""Losses by member and epoch, collected block by block."""

import numpy as np

from forecaster.swarm.training import Losses


class History:
    """Losses of members that may be at different epochs."""

    def __init__(self, members: int):
        self.latest = np.full(members, np.nan)  # each member's latest validation loss
        self._train = np.full((members, 0), np.nan, np.float32)
        self._validation = np.full((members, 0), np.nan, np.float32)

    @staticmethod
    def of(losses: Losses, epochs: np.ndarray) -> "History":
        """Go on from losses (member, epoch) of members that have trained so many epochs."""
        history = History(len(epochs))
        history._train, history._validation = np.array(losses.train), np.array(losses.validation)
        rows = np.flatnonzero(epochs)
        history.latest[rows] = history._validation[rows, epochs[rows] - 1]
        return history

    def with_block(
        self, rows: np.ndarray, losses: Losses, before: np.ndarray, after: np.ndarray
    ) -> "History":
        """A copy with a block's losses, (row, block epoch), in their place."""
        width = int(after.max())
        grown = History(len(self.latest))
        grown.latest = self.latest.copy()
        grown._train = _widened(self._train, width)
        grown._validation = _widened(self._validation, width)
        for place, (row, first, last) in enumerate(zip(rows, before, after, strict=True)):
            grown._train[row, first:last] = losses.train[place, : last - first]
            grown._validation[row, first:last] = losses.validation[place, : last - first]
            grown.latest[row] = grown._validation[row, last - 1]
        return grown

    def losses(self) -> Losses:
        """Both losses, (member, epoch), NaN after a member stopped."""
        return Losses(self._train, self._validation)


def _widened(array: np.ndarray, width: int) -> np.ndarray:
    extra = max(0, width - array.shape[1])
    return np.pad(array, ((0, 0), (0, extra)), constant_values=np.nan)
