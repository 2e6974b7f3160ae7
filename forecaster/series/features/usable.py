"""Find the rows of a panel that a transform cannot compute with, each from the rows before it."""

import numpy as np
from jaxtyping import Bool

from forecaster.series.calendar.times import show_time
from forecaster.series.panel.panel import Panel
from forecaster.skipped import Kind, Skipped

_LARGEST = 1e150  # largest value; its square does not overflow
_FARTHEST = 80  # orders of magnitude between two values whose logarithms are compared


def without_logarithm(
    panel: Panel, logarithmic: Bool[np.ndarray, " series"]
) -> Bool[np.ndarray, "series time"]:
    """Return the rows of zero or below of the series whose logarithm is forecast."""
    return panel.mask & ~(panel.channel(panel.target) > 0) & logarithmic[:, None]


def far_from_earlier(
    panel: Panel, logarithmic: Bool[np.ndarray, " series"]
) -> Bool[np.ndarray, "series time"]:
    """Return the rows from which on errors would overflow.

    Their value is too large, or too many orders of magnitude from an earlier one of a series whose
    logarithm is forecast.
    """
    values = np.where(panel.mask, panel.channel(panel.target), np.nan)
    far = np.abs(values) > _LARGEST
    if logarithmic.any():
        positive = np.where(values[logarithmic] > 0, values[logarithmic], np.nan)
        logs = np.log10(positive)
        range_so_far = np.fmax.accumulate(logs, axis=1) - np.fmin.accumulate(logs, axis=1)
        far[logarithmic] = range_so_far > _FARTHEST
    return far


def skipped_at(panel: Panel, row: int, position: int, kind: Kind) -> Skipped:
    """Return the reason to skip a series for its value at a position of the time axis."""
    value = float(panel.channel(panel.target)[row, position])
    first = show_time(panel.times[position])
    return Skipped(kind, column=panel.target, value=value, first=first)
