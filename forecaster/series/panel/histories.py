"""Histories of series, aligned at their end, and samples of rows and of series.

Series that end at different times can also be shifted so that all end at the last one.
"""

import dataclasses
import hashlib
from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import pandas as pd
from jaxtyping import Float, Int, Shaped

from forecaster.errors import UsageError, check_type, wrong_argument
from forecaster.series.calendar.times import show_time
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
    def from_panel(panel: Panel, steps: int | None = None) -> "Histories":
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


def sampled_names(ids: Sequence[str], most: int) -> Int[np.ndarray, " sampled"]:
    """Return the positions of the series with the smallest hashes of names, in order.

    ``most``: the size of the sample; all positions if there are not more series
    """
    if len(ids) <= most:
        return np.arange(len(ids))
    encoded = [name.encode("utf-8", "surrogateescape") for name in ids]
    hashes = [hashlib.blake2b(name, digest_size=8).digest() for name in encoded]
    return np.sort(np.argsort(np.array(hashes, "S8"), kind="stable")[:most])


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
