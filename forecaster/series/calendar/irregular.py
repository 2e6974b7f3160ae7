"""Series whose rows come at irregular distances, and so lack most of their dates."""

from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Shaped

from forecaster.series.calendar.frequency import infer_frequency

_FEWEST = 6  # gaps that tell whether rows come at regular distances
_ALIKE, _REGULAR = 1.25, 0.5  # gaps are alike up to this ratio; share of them in a regular series


class MissingDates(NamedTuple):
    """The dates that a series has no rows on.

    - ``unit``: what its dates count: ``day``, ``week`` or ``month``
    - ``rows``: the number of its rows
    - ``span``: the number of units from its first row to its latest
    """

    unit: str
    rows: int
    span: int


def missing_dates(times: Shaped[np.ndarray, " row"]) -> MissingDates | None:
    """Return what a series lacks that has rows on less than half of its dates; None for others.

    Its rows then lie at different distances. A series is regular where half of its gaps or more are
    alike, as between weeks or quarters, whatever it might have between them; so is one with times
    of day, of few rows, or with rows on some days of the week.

    ``times``: sorted and unique
    """
    days = times.astype("datetime64[D]") if times.dtype.kind == "M" else times[:0]
    if len(days) <= _FEWEST or (days != times).any():
        return None
    gaps = np.diff(days).astype(np.int64)
    if _usual(gaps) is not None or infer_frequency(times).open:
        return None
    index, whole = pd.DatetimeIndex(days), int(gaps.sum())
    if (index.day == index[0].day).all() or index.is_month_end.all():
        months = days.astype("datetime64[M]").astype(np.int64)
        unit, span = "month", int(months[-1] - months[0]) + 1
    elif not (gaps % 7).any():
        unit, span = "week", whole // 7 + 1
    else:
        unit, span = "day", whole + 1
    return MissingDates(unit, len(days), span) if 2 * len(days) < span else None


def usual_spacing(times: Shaped[np.ndarray, " row"]) -> float | None:
    """Return the spacing of half of a series' rows or more, in seconds, or in whole numbers.

    None where there is none, and where the series has fewer than seven rows.
    """
    gaps = np.diff(times)
    if gaps.dtype.kind == "m":
        gaps = gaps.astype("timedelta64[ns]").astype(np.int64) / 1e9
    return _usual(gaps) if len(gaps) >= _FEWEST else None


def _usual(gaps: Shaped[np.ndarray, " gap"]) -> float | None:
    """Return the median gap; None where less than half of all are like it."""
    usual = float(np.percentile(gaps, 50, method="lower"))
    alike = (gaps > usual / _ALIKE) & (gaps < usual * _ALIKE)
    return usual if alike.mean() >= _REGULAR else None
