"""Series that end at different times, shifted so that all end at the last one."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import pandas as pd
from jaxtyping import Int, Shaped

from forecaster.errors import UsageError, check_type, wrong_argument
from forecaster.series.calendar.times import show_time
from forecaster.series.panel.panel import Panel


@dataclasses.dataclass(frozen=True)
class OwnEnds:
    """The shifts of series that were aligned at the last time of the axis.

    - ``ids``: the series
    - ``shifts``: the number of positions that each was shifted towards the end of the axis
    - ``times``: the axis, which holds the true times of series that were not shifted
    """

    ids: tuple[str, ...]
    shifts: Int[np.ndarray, " series"]
    times: Shaped[np.ndarray, " time"]

    @staticmethod
    def align(panel: Panel) -> tuple[Panel, "OwnEnds"]:
        """Shift all series of a panel to end at the last time; also return the shifts.

        Raises UsageError for prices, and for a panel with a market: their dates are common ones.
        """
        if panel.target != "y":
            raise UsageError(
                "ends = own is for series `y`; prices are compared at common dates, up to "
                f"{show_time(panel.times[-1])}, and one that ends before is left out. Take ends = "
                "common"
            )
        if panel.market is not None:
            raise UsageError("a market needs common dates; leave out ends = own, or the market")
        count, shifts = len(panel.times), panel.mask[:, ::-1].argmax(1)
        values, mask = np.full_like(panel.values, np.nan), np.zeros_like(panel.mask)
        for row, by in enumerate(shifts):
            values[row, by:] = panel.values[row, : count - by]
            mask[row, by:] = panel.mask[row, : count - by]
        future = panel.future
        if future is not None:
            future = future.shifted(dict(zip(panel.ids, shifts.tolist(), strict=True)), panel.times)
        aligned = dataclasses.replace(panel, values=values, mask=mask, future=future)
        return aligned, OwnEnds(panel.ids, shifts, panel.times)

    def restored(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Return a long frame of forecasts with each series' own times in ``ds`` and ``cutoff``."""
        shifts = frame["unique_id"].map(dict(zip(self.ids, self.shifts, strict=True))).to_numpy(int)
        ds, cutoff = (
            self.times[np.searchsorted(self.times, frame[name].to_numpy(self.times.dtype)) - shifts]
            for name in ("ds", "cutoff")
        )
        return frame.assign(ds=ds, cutoff=cutoff)


def aligned_if(ends: str, panel: Panel) -> tuple[Panel, OwnEnds | None]:
    """Return the panel to evaluate, and the shifts of its series where they were aligned.

    ``ends``: ``own``, ``common``, or ``auto``: own where times only number rows, so that equal ones
    mean nothing. That is assumed if they are whole numbers, and all series start at the same one
    but end at different ones. Raises UsageError for any other.
    """
    check_type("ends", ends, str, expected := f"one of {', '.join(ENDS)}")
    if ends not in ENDS:
        raise wrong_argument("ends", ends, expected)
    first, last = panel.mask.argmax(1), panel.mask[:, ::-1].argmax(1)
    numbered = panel.target == "y" and panel.times.dtype.kind != "M"
    numbered = numbered and (first == first[0]).all() and (last != last[0]).any()
    if ends == "own" or (ends == "auto" and numbered):
        return OwnEnds.align(panel)
    return panel, None


ENDS: Sequence[str] = ("auto", "common", "own")
"""The choices for the time at which series are evaluated: their common end, or their own ends."""


def on_axis(panel: Panel, times: Shaped[np.ndarray, " time"]) -> Panel:
    """Return a panel on a longer time axis, which holds all times of its own."""
    if len(times) == len(panel.times):
        return panel
    at = np.searchsorted(times, panel.times)
    values = np.full((len(panel.ids), len(times), len(panel.channels)), np.nan)
    mask = np.zeros((len(panel.ids), len(times)), bool)
    values[:, at], mask[:, at] = panel.values, panel.mask
    return dataclasses.replace(panel, values=values, mask=mask, times=times)
