"""How active a stock was at the same time of earlier quarters, as companies report by a calendar.

A day of earnings, with its volume and its jump, recurs 13, 26, 39 and 52 weeks later, mostly on the
same weekday. The market knows the day in advance; a network learns it from past prices.
"""

import functools
from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Int

from forecaster.series.causal import Rows

WEEKS = (13, 26, 39, 52)
_FARTHEST = 20  # rows ahead, at most
_AT_ONCE = 64  # series whose values fit into the cache of a core


def active_days(
    activity: Rows, times: np.ndarray, positions: Int[np.ndarray, "series step"], horizon: int
) -> list[Rows]:
    """Return the activity on the anniversaries of the rows ahead, averaged over :data:`WEEKS`.

    - ``activity``: how much happened at each step, such as the surprise in its volume; NaN where
      unknown
    - ``times``: the time axis; whole numbers have no anniversaries
    - ``positions``: positions of the steps on the time axis; -1 in the padding
    - ``horizon``: the number of rows ahead

    The first feature is the activity of the next row, averaged with its neighbours at half the
    weight. Where the horizon is longer than one row, the second is the highest activity of the
    later rows. NaN where no anniversary is known.
    """
    offsets = range(max(3, min(horizon, _FARTHEST) + 1))
    if times.dtype.kind != "M":
        nothing = np.full(activity.shape, np.nan)
        return [nothing] * min(2, horizon)
    features = [np.full(activity.shape, np.nan) for _ in range(min(2, horizon))]
    alike: dict[bytes, list[int]] = {}  # series that have the same days
    for series, own in enumerate(positions):
        alike.setdefault(own.tobytes(), []).append(series)
    for rows in alike.values():
        begin = int((positions[rows[0]] < 0).sum())
        sources = _anniversaries(times[positions[rows[0], begin:]], offsets)
        for low in range(0, len(rows), _AT_ONCE):
            some = rows[low : low + _AT_ONCE]
            means = _means_at(activity[some, begin:], sources)
            before, at, after = (next(means) for _ in range(3))
            features[0][some, begin:] = before / 2 + at + after / 2
            if horizon > 1:
                features[1][some, begin:] = functools.reduce(np.fmax, means, after)
    return features


def _anniversaries(
    times: np.ndarray, offsets: Sequence[int]
) -> Int[np.ndarray, "offset week step"]:
    """Return the row that lies ``offset`` rows after the latest one at least ``week`` weeks old.

    Where there is none, or it is later than the step, the number of rows stands for it.
    """
    last = len(times)
    rows = np.full((len(offsets), len(WEEKS), last), last)
    for number, weeks in enumerate(WEEKS):
        before = times - np.timedelta64(weeks, "W")
        latest = np.searchsorted(times, before, side="right") - 1
        for offset in offsets:
            row = latest + offset
            rows[offset, number] = np.where((latest >= 0) & (row <= np.arange(last)), row, last)
    return rows


def _means_at(activity: Rows, sources: Int[np.ndarray, "offset week step"]) -> Iterator[Rows]:
    """Yield, for each offset, the mean of the values in the rows of all weeks.

    NaN where none is known.
    """
    by_day = activity.T
    unknown = np.isnan(by_day)
    nothing = np.zeros((1, by_day.shape[1]))
    # In this order a day's values of all series lie together.
    values = np.concatenate([np.where(unknown, 0.0, by_day), nothing])
    known = np.concatenate([~unknown, nothing.astype(bool)])
    for weeks in sources:
        total, count = np.zeros(by_day.shape), np.zeros(by_day.shape)
        with np.errstate(invalid="ignore"):
            for rows in weeks:
                total += values[rows]
                count += known[rows]
            total /= count
        yield total.T
