"""Find rows that are dated in the future, as by a wrong year, and leave them out."""

import numpy as np
import pandas as pd

from forecaster.series import show_time, spacing_of

_REGULAR = 20  # rows in the future that follow each other regularly are meant, as in invented data
_GAP = 10  # usual gaps between rows; a longer one before them is not regular
_TIMEZONES = pd.Timedelta(days=1)


def without_future(frame: pd.DataFrame) -> tuple[pd.DataFrame, str | None]:
    """Return a series without the rows that cannot be meant, and say which; None for none.

    A row is in the future if it is later than tomorrow, and by more than one step, since the last
    step may be named by its end. Twenty or more such rows are meant if they follow those before
    them without a long gap, and so are those of a series that has no others.
    """
    times = frame["ds"].to_numpy()
    if times.dtype.kind != "M" or len(times) < 2:
        return frame, None
    step = pd.Timedelta(seconds=spacing_of(times))
    latest = (pd.Timestamp.now() + max(_TIMEZONES, step)).to_datetime64()
    if times[-1] <= latest:
        return frame, None
    first = int(np.searchsorted(times, latest, side="right"))
    ahead = times[max(first - 1, 0) :]
    regular = (
        len(times) - first >= _REGULAR and np.diff(ahead).max() <= _GAP * step.to_timedelta64()
    )
    if first == 0 or regular:
        return frame, None
    span = show_time(times[first])
    span += f" to {show_time(times[-1])}" if len(times) - first > 1 else ""
    return frame.iloc[:first], (
        f"rows in the future are left out ({span}), the others are stored. Correct them in the "
        "source"
    )
