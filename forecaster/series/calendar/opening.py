"""The days of the week, or the hours, on which rows come, as where a shop is closed on Sundays.

The week is divided into slots as long as a series' step, from the midnight that begins a Monday:
seven days, or 168 hours. A slot in which a row hardly ever came lately is closed.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Int, Shaped

_DAY, _WEEK = 86_400, 7 * 86_400  # seconds
_SHORTEST = 900  # seconds of a slot; of minutes, a week has ten thousand
_MONDAY = 4 * _DAY  # seconds from the epoch, a Thursday, to the first Monday
_WEEKS, _FEWEST = 10, 3  # latest weeks that are compared, and weeks that are needed
_RARELY = 0.25  # a slot is closed where rows came in a smaller share of the weeks
_MOSTLY = 0.7  # least share of the times in open slots that have a row


def infer_open(times: Shaped[np.ndarray, " row"], seconds: int) -> tuple[int, ...]:
    """Return the open slots of the week; empty where all are open, or where they are not regular.

    - ``times``: sorted and unique dates
    - ``seconds``: the step; a day, or a part of one of fifteen minutes or more
    """
    if not _SHORTEST <= seconds <= _DAY or _DAY % seconds:
        return ()
    lately = times[times > times[-1] - np.timedelta64(_WEEKS * _WEEK, "s")]
    weeks = (lately[-1] - lately[0]) / np.timedelta64(_WEEK, "s")
    if weeks < _FEWEST:
        return ()
    counts = np.bincount(_slots(lately, seconds), minlength=_WEEK // seconds)
    is_open = counts >= max(1.0, _RARELY * weeks)
    slots = tuple(np.flatnonzero(is_open).tolist())
    regular = counts[is_open].sum() >= _MOSTLY * len(slots) * weeks
    return slots if regular and 0 < len(slots) < len(counts) else ()


def in_slots(
    times: Shaped[np.ndarray, " time"], seconds: int, slots: Sequence[int]
) -> Bool[np.ndarray, " time"]:
    """Return which dates lie in some slots of the week, each ``seconds`` long."""
    return np.isin(_slots(times, seconds), np.asarray(slots))


def open_numbers(
    times: Shaped[np.ndarray, " time"], seconds: int, slots: Sequence[int]
) -> Int[np.ndarray, " time"]:
    """Return the number of open slots up to each date, counted from some week.

    A date in a closed slot has the number of the open one before.
    """
    since = times.astype("datetime64[s]").astype(np.int64) - _MONDAY
    within = np.searchsorted(np.asarray(slots), since % _WEEK // seconds, side="right")
    return since // _WEEK * len(slots) + within


def _slots(times: Shaped[np.ndarray, " time"], seconds: int) -> Int[np.ndarray, " time"]:
    since = times.astype("datetime64[s]").astype(np.int64) - _MONDAY
    return since % _WEEK // seconds
