"""Find rows that are dated in the future, as by a wrong year, and leave them out."""

import numpy as np
import pandas as pd

from forecaster.series import show_time, spacing_of

_REGULAR = 20  # rows in the future that follow each other regularly are meant, as in invented data
_GAP = 10  # usual gaps between rows; a longer one before them is not regular
_TIMEZONES = pd.Timedelta(days=1)
_LEFT_OUT = "rows in the future are left out"


def without_future(
    frame: pd.DataFrame, stored: pd.DataFrame | None = None
) -> tuple[pd.DataFrame, str | None]:
    """Return a series without the rows that cannot be meant, and say which; None for none.

    A row is in the future if it is later than tomorrow, and by more than one step, since the last
    step may be named by its end. Twenty or more such rows are meant if they follow those before
    them without a long gap, and so are those of a series that has no others. Rows that follow
    without a long gap and are ``stored`` already are meant, too: the clock was set back.
    """
    times = frame["ds"].to_numpy()
    if times.dtype.kind != "M" or len(times) < 2:
        return frame, None
    now = pd.Timestamp.now()
    if times[-1] <= (now + _TIMEZONES).to_datetime64():  # as nearly always
        return frame, None
    step = pd.Timedelta(seconds=spacing_of(times))
    latest = (now + max(_TIMEZONES, step)).to_datetime64()
    if times[-1] <= latest:
        return frame, None
    first = int(np.searchsorted(times, latest, side="right"))
    if first == 0:
        return frame, None
    if np.diff(times[first - 1 :]).max() <= _GAP * step.to_timedelta64():
        if len(times) - first >= _REGULAR:
            return frame, None
        if stored is not None and len(stored) and stored["ds"].dtype.kind == "M":
            first = max(
                first, int(np.searchsorted(times, stored["ds"].to_numpy()[-1], side="right"))
            )
        if first == len(times):
            return frame, None
    span = show_time(times[first])
    span += f" to {show_time(times[-1])}" if len(times) - first > 1 else ""
    return frame.iloc[:first], (
        f"{_LEFT_OUT} ({span}), the others are stored. Correct them in the source"
    )


def is_of_future(reason: str) -> bool:
    """Return whether rows of a series were left out since they were dated in the future."""
    return reason.startswith(_LEFT_OUT)
