"""Count missing sessions and find rows on closed days, by the exchanges' calendars."""

import numpy as np
import pandas as pd

from forecaster.series import NEW_YORK, Frequency, Panel, exchange_of, sessions


def count_gaps(times: np.ndarray, frequency: Frequency, symbol: str | None = None) -> int:
    """Return how many times a series lacks between its first row and its last one.

    - ``times``: of the rows, sorted
    - ``frequency``: of the series
    - ``symbol``: of daily prices, whose gaps are counted by the sessions of their exchange
    """
    if frequency.alias == "step":
        return max(0, int(times[-1] - times[0]) // max(1, frequency.step) + 1 - len(times))
    if symbol is not None and keeps_calendar(frequency, symbol):
        known = _sessions(symbol, times)
        if known is not None:
            return len(np.setdiff1d(known, _days(times)))
    return max(0, frequency.elapsed(times[0], times[-1]) + 1 - len(times))


def closed_days(panel: Panel, row: int) -> np.ndarray:
    """Return which times of daily rows are days on which a series' exchange is closed, (time,).

    A symbol without the name of an exchange is taken to be from New York. All times are open where
    the calendar is unknown, or had not begun.
    """
    known = _sessions(panel.ids[row], panel.times[panel.mask[row]])
    if known is None or not len(known):
        return np.zeros(len(panel.times), bool)
    days = _days(panel.times)
    return ~np.isin(days, known) & (days >= known[0])


def keeps_calendar(frequency: Frequency, symbol: str) -> bool:
    """Return whether times of a frequency may be the days of a symbol's exchange."""
    daily = frequency.alias in ("B", "D")
    return daily and (frequency.nyse or exchange_of(symbol) != NEW_YORK)


def _sessions(name: str, times: np.ndarray) -> np.ndarray | None:
    """Return the days from the first time to the last on which a symbol's exchange was open.

    None where they are unknown.
    """
    exchange = exchange_of(name)
    if exchange is None:
        return None
    try:
        return sessions(exchange, pd.Timestamp(times[0]), pd.Timestamp(times[-1]))
    except (ValueError, NotImplementedError):
        return None


def _days(times: np.ndarray) -> np.ndarray:
    """Return times without the time of day."""
    return times.astype("datetime64[D]").astype("datetime64[ns]")
