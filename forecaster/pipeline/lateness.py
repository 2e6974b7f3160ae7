"""Count the sessions that series lack: until now, and beside the others."""

import dataclasses
from collections.abc import Iterator

import numpy as np
import pandas as pd

from forecaster.series import (
    Date,
    Frequency,
    Panel,
    end_of_day,
    exchange_of,
    infer_frequency,
    last_closed,
    show_time,
)

_UNKNOWN = 2  # sessions in a row that may be holidays of an exchange whose calendar is unknown
_NEW_YORK = "America/New_York"


def sessions_late(panel: Panel, end: Date | None = None) -> dict[str, int]:
    """Return by series the number of sessions that are over, but that it has no row of.

    Forecasts of a late series begin with days that are past. A session is over half an hour after
    the close of New York's exchange, or, for series that do not keep its holidays, when the next
    one begins; of these, up to two count as holidays. Series that count steps are never late.

    - ``end``: the last day that is over; None: until now
    """
    behind = sessions_behind(panel)
    return {
        name: max(_missed(infer_frequency(times), times[-1], end), behind.get(name, 0))
        for name, times in _times_of(panel)
    }


def sessions_behind(panel: Panel) -> dict[str, int]:
    """Return the series that lack sessions which most of the others have, with their number.

    Only series of one exchange and frequency are compared, since others may close later.
    """
    groups: dict[tuple[Frequency, str | None], dict[str, np.datetime64]] = {}
    for name, times in _times_of(panel):
        if times.dtype.kind == "M":
            group = dataclasses.replace(infer_frequency(times), day=0), exchange_of(name)
            groups.setdefault(group, {})[name] = times[-1]
    behind: dict[str, int] = {}
    for (frequency, _), ends in groups.items():
        usual = sorted(ends.values())[len(ends) // 2]
        counts = {name: frequency.elapsed(last, usual) for name, last in ends.items()}
        behind |= {name: count for name, count in counts.items() if count}
    return behind


def ends_of(panel: Panel) -> dict[str, str]:
    """Return by series the time of its latest row, to show."""
    return {name: show_time(times[-1]) for name, times in _times_of(panel)}


def _times_of(panel: Panel) -> Iterator[tuple[str, np.ndarray]]:
    """Yield each series with the times of its rows."""
    for name, observed in zip(panel.ids, panel.mask, strict=True):
        yield name, panel.times[observed]


def _missed(frequency: Frequency, last: np.datetime64, end: Date | None) -> int:
    """Count the sessions after ``last`` that are over."""
    if end is not None:
        return frequency.elapsed(last, end_of_day(end))
    if frequency.nyse and frequency.hours is None:
        return frequency.elapsed(last, last_closed(None, pd.Timestamp.now("UTC"), _NEW_YORK))
    missed = frequency.elapsed(last, pd.Timestamp.now()) - 1
    return missed if missed > _UNKNOWN else 0
