"""Series that end at different times, set side by side by their ends."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import pandas as pd
from jaxtyping import Int, Shaped

from forecaster.errors import UsageError
from forecaster.series.calendar.times import show_time
from forecaster.series.panel.panel import Panel


@dataclasses.dataclass(frozen=True)
class OwnEnds:
    """How far each series was moved so that all end at the last time of the axis.

    - ``ids``: the series
    - ``moved``: by how many places of the axis each was moved towards its end
    - ``times``: the axis, which only the series that was not moved really has
    """

    ids: tuple[str, ...]
    moved: Int[np.ndarray, " series"]
    times: Shaped[np.ndarray, " time"]

    @staticmethod
    def align(panel: Panel) -> tuple[Panel, "OwnEnds"]:
        """A panel whose series all end at the last time, and how to find their own times again.

        Raises UsageError for prices: their dates are of one market, and their flags too.
        """
        if panel.target != "y":
            raise UsageError(
                f"prices are compared at common dates; these end at {show_time(panel.times[-1])}, "
                "and a series that ends before is left out. Only series `y` can each be evaluated "
                "at its own end"
            )
        if panel.market is not None:
            raise UsageError("a market is seen at common dates; leave out ends = own, or market")
        count = len(panel.times)
        last = count - 1 - panel.mask[:, ::-1].argmax(1)
        moved = count - 1 - last
        values, mask = np.full_like(panel.values, np.nan), np.zeros_like(panel.mask)
        for row, places in enumerate(moved):
            values[row, places:] = panel.values[row, : count - places]
            mask[row, places:] = panel.mask[row, : count - places]
        future = panel.future
        if future is not None:
            places = dict(zip(panel.ids, moved.tolist(), strict=True))
            future = future.moved(places, panel.times)
        aligned = dataclasses.replace(panel, values=values, mask=mask, future=future)
        return aligned, OwnEnds(panel.ids, moved, panel.times)

    def restored(self, frame: pd.DataFrame) -> pd.DataFrame:
        """A long frame of forecasts with each series' own times in ``ds`` and ``cutoff``."""
        places = dict(zip(self.ids, self.moved.tolist(), strict=True))
        moved = np.array([places[name] for name in frame["unique_id"]], int)

        def own(name: str) -> Shaped[np.ndarray, " row"]:
            at = np.searchsorted(self.times, frame[name].to_numpy(self.times.dtype))
            return self.times[at - moved]

        return frame.assign(ds=own("ds"), cutoff=own("cutoff"))


def counts_from_one(panel: Panel) -> bool:
    """Whether times only count the rows of each series, so that equal ones mean nothing.

    Whole numbers, of series that all start at the same one and end at different ones.
    """
    if panel.times.dtype.kind == "M":
        return False
    first, last = panel.mask.argmax(1), panel.mask[:, ::-1].argmax(1)
    return bool((first == first[0]).all() and (last != last[0]).any())


def aligned_if(ends: str, panel: Panel) -> tuple[Panel, OwnEnds | None]:
    """The panel to evaluate, and what gives back its series' own times where they were aligned.

    ``ends``: ``own``, ``common``, or ``auto``: own where times only count rows. Raises UsageError
    for any other.
    """
    if ends not in ENDS:
        raise UsageError(f"ends: expected one of {', '.join(ENDS)}; got {ends!r}")
    if ends == "own" or (ends == "auto" and panel.target == "y" and counts_from_one(panel)):
        return OwnEnds.align(panel)
    return panel, None


ENDS: Sequence[str] = ("auto", "common", "own")
"""At which ends series may be evaluated."""
