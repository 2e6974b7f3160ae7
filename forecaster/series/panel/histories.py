"""The histories of a panel's series without gaps, aligned at the end."""

import dataclasses
from typing import TypeVar

import numpy as np
from jaxtyping import Float, Int

from forecaster.series.panel.panel import Panel

Rows = TypeVar("Rows", int, np.ndarray)  # of one series, or of each


def held_back_rows(rows: Rows, horizon: int) -> Rows:
    """Return how many latest rows hold the origins on which forecasts are judged."""
    most = np.maximum(2 * horizon, np.minimum(6 * horizon, rows // 4))
    return np.minimum(most, rows // 2)  # pyright: ignore[reportReturnType]


@dataclasses.dataclass(frozen=True)
class Histories:
    """The observed rows of each series without gaps, aligned at the end.

    The last step of every series is its latest row, and "the last 252" are the same steps for all.
    Steps before a series' first row are padding.

    - ``values``: NaN in the padding
    - ``first``: the step of each series' first row
    - ``positions``: positions of the rows on the panel's time axis; -1 in the padding
    - ``channels``: the columns
    """

    values: Float[np.ndarray, "series step channel"]
    first: Int[np.ndarray, " series"]
    positions: Int[np.ndarray, "series step"]
    channels: tuple[str, ...]

    @staticmethod
    def of(panel: Panel, steps: int | None = None) -> "Histories":
        """Return a panel's histories with ``steps`` steps, by default as many as the longest."""
        lengths = panel.mask.sum(1)
        steps = steps or int(lengths.max())
        rows, observed = np.nonzero(panel.mask)
        first = steps - lengths
        rank = np.arange(len(observed)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        step = rank + first[rows]
        values = np.full((len(panel.ids), steps, len(panel.channels)), np.nan)
        values[rows, step] = panel.values[rows, observed]
        positions = np.full((len(panel.ids), steps), -1)
        positions[rows, step] = observed
        return Histories(values, first, positions, panel.channels)

    def channel(self, name: str) -> Float[np.ndarray, "series step"]:
        """Return the values of one channel; NaN where there is none of this name."""
        if name not in self.channels:
            return np.full(self.positions.shape, np.nan)
        return self.values[:, :, self.channels.index(name)]
