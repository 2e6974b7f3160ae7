"""A panel of some series on the time axis of all."""

import dataclasses
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Shaped

if TYPE_CHECKING:
    from forecaster.series.panel import Panel


def on_axis(panel: "Panel", times: Shaped[np.ndarray, " time"]) -> "Panel":
    """The same series on a longer time axis, which has all times of the panel's own."""
    if len(times) == len(panel.times):
        return panel
    at = np.searchsorted(times, panel.times)
    values = np.full((len(panel.ids), len(times), len(panel.channels)), np.nan)
    mask = np.zeros((len(panel.ids), len(times)), bool)
    values[:, at], mask[:, at] = panel.values, panel.mask
    return dataclasses.replace(panel, values=values, mask=mask, times=times)
