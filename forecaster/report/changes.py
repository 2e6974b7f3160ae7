"""Compare forecasts with earlier ones from the record."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from forecaster.forecasting import bounds_of
from forecaster.record import COLUMN, earlier
from forecaster.report.packing import as_numbers
from forecaster.series import show_time

LAST, WEEK = "last", "week"
_A_WEEK, _TOO_OLD = np.timedelta64(7, "D"), np.timedelta64(21, "D")


class Compared(NamedTuple):
    """An earlier forecast of each series, at the same steps ahead; NaN if there is none.

    - ``when``: the origin of these forecasts, or the first and the last origin, as text
    - ``origins``: the origin of each series, as numbers; None for a series without one
    - ``width`` (series, step): the width of the band, as a share of the value at that time
    - ``median`` (series, step): the median on the scale of today's prices
    """

    when: str
    origins: list[int | None]
    width: np.ndarray
    median: np.ndarray

    def width_changes(self, width: np.ndarray) -> np.ndarray:
        """Return the relative increase of widths since then, (series, step)."""
        return width / np.where(self.width > 0, self.width, np.nan) - 1

    def median_changes(self, median: np.ndarray, base: np.ndarray) -> np.ndarray:
        """Return the increase of medians since then, as a share of ``base``; (series, step)."""
        return (median - self.median) / base


def compared_with(
    record: pd.DataFrame | None,
    latest: pd.DataFrame,
    known: Mapping[str, pd.Series],
    level: float,
    steps: Sequence[int],
) -> dict[str, Compared]:
    """Return the previous forecasts (``LAST``), and those of a week ago (``WEEK``) if they differ.

    - ``record``: the recorded forecasts of one source
    - ``latest``: ``origin`` and ``base`` of each series' new forecast
    - ``known``: the latest values of each series by time, in the units of the forecast
    - ``level``, ``steps``: the band whose width is compared, and the steps ahead
    """
    low, high = bounds_of(COLUMN, level)
    if (
        record is None
        or low not in record
        or record["ds"].dtype.kind != latest["origin"].dtype.kind
    ):
        return {}
    record = record[record["step"].isin(steps) & record[low].notna()]
    dated = latest["origin"].dtype.kind == "M"
    origins = dict(zip(map(str, latest.index), latest["origin"], strict=True))
    found = {LAST: earlier(record, origins, np.timedelta64(1, "ns") if dated else 1)}
    if dated:
        week = earlier(record, origins, _A_WEEK)
        # Categories that map to times of their own would stay categories, which have no difference.
        age = week["unique_id"].astype(str).map(latest["origin"]) - week["origin"]
        found[WEEK] = week[(age <= _TOO_OLD).to_numpy()]
        if found[WEEK].index.equals(found[LAST].index):
            del found[WEEK]
    return {
        name: _compared(rows.assign(width=rows[high] - rows[low]), latest, known, steps)
        for name, rows in found.items()
        if len(rows)
    }


def _compared(
    rows: pd.DataFrame, latest: pd.DataFrame, known: Mapping[str, pd.Series], steps: Sequence[int]
) -> Compared:
    width, median = (
        rows.pivot_table(
            index="unique_id", columns="step", values=name, dropna=False, observed=True
        )
        .reindex(index=latest.index, columns=list(steps))
        .to_numpy(float)
        for name in ("width", COLUMN)
    )
    each = rows.drop_duplicates("unique_id").set_index("unique_id").reindex(latest.index)
    base, scale = latest["base"].to_numpy(), np.ones(len(latest))
    if (each["target"].dropna() != "y").all():  # prices may have been adjusted since then
        base = each["value"].to_numpy(float)
        now = [known[str(name)].get(time, np.nan) for name, time in each["origin"].items()]
        scale = np.array(now, float) / base
    made = each["origin"].dropna()
    first, last = made.min(), made.max()
    return Compared(
        show_time(last) if first == last else f"{show_time(first)} to {show_time(last)}",
        [None if pd.isna(t) else as_numbers(pd.Index([t]))[0] for t in each["origin"]],
        width / base[:, None],
        median * scale[:, None],
    )
