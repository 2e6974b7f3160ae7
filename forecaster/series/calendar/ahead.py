"""The times that come after each row of a series, by what was known at that row."""

import functools

import numpy as np
from jaxtyping import Shaped

from forecaster.series.calendar.frequency import Frequency, frequency_beside, infer_frequency

_FIRST, _MOST = 16, 512  # times that are made at once: more as long as rows come as expected


def times_after_rows(
    times: Shaped[np.ndarray, " row"], horizon: int, usual: Frequency | None = None
) -> Shaped[np.ndarray, "row horizon"]:
    """Return the next ``horizon`` times after each row, by the calendar.

    The frequency of a row is inferred from the rows up to it, and anew at each row that came at
    another time than expected. Later rows change nothing.

    - ``times``: the times of the rows, sorted and unique, dates or whole numbers
    - ``usual``: the frequency of the panel, where the rows up to one do not tell their own; None:
      that of the rows all the same
    """
    return _after(times.dtype.str, times.tobytes(), horizon, usual)


@functools.lru_cache(maxsize=64)
def _after(
    dtype: str, raw: bytes, horizon: int, usual: Frequency | None
) -> Shaped[np.ndarray, "row horizon"]:
    # Cached, as most series of a panel have the same times.
    times = np.frombuffer(raw, dtype)
    ahead = np.empty((len(times), horizon), dtype)
    row, count = 0, _FIRST
    frequency = _known_from(times[:1], usual)
    while row < len(times):
        expected = frequency.after(times[row], count + horizon).astype(dtype)
        came = times[row + 1 : row + 1 + count]
        as_expected = came == expected[: len(came)]
        same = len(came) if as_expected.all() else int(np.argmin(as_expected))
        windows = np.lib.stride_tricks.sliding_window_view(expected, horizon)
        ahead[row : row + 1 + same] = windows[: 1 + same]
        row += same + 1
        if same < len(came):
            frequency, count = _known_from(times[: row + 1], usual), _FIRST
        else:
            row -= row < len(times)  # go on from the latest row that was expected
            count = min(2 * count, _MOST)
    ahead.setflags(write=False)
    return ahead


def _known_from(times: Shaped[np.ndarray, " row"], usual: Frequency | None) -> Frequency:
    return infer_frequency(times) if usual is None else frequency_beside(times, usual)
