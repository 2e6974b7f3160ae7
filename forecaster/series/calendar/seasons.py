"""The steps in the seasons of a series, from its frequency, or from its values without dates."""

import numpy as np
import pandas as pd
from jaxtyping import Float

from forecaster.series.calendar.frequency import Frequency
from forecaster.series.limits import LONGEST_SEASON

_DAY = 86_400  # seconds
_WEEKS, _MONTHS = 52, 12  # in a year
_BY_ALIAS = {"B": (5,), "D": (7,), "SMS": (24,), "SME": (24,)}
_OF_A_DAY = ("900s", "1800s", "3600s")
_LEAST_CORRELATION = 0.2  # smallest correlation of changes one season apart
_LARGEST = 1e140  # largest mean change whose square does not overflow
_AS_GOOD = 0.8  # the basic season is the shortest with this share of the largest correlation
_DAYS = (24, 48, 96, 144, 288)  # basic seasons, in steps, that are a day and may have a week
_BETTER = 1.05  # a longer season needs a correlation higher by this factor


def seasons_of(frequency: Frequency, values: Float[np.ndarray, " row"]) -> tuple[int, ...]:
    """Return the steps in each season of one series, shortest first; empty where it has none.

    Dates have the usual seasons of their frequency: hourly rows have a day and a week. Where times
    are whole numbers the seasons are estimated from the values.
    """
    return find_seasons(values) if frequency.alias == "step" else usual_seasons(frequency)


def usual_seasons(frequency: Frequency) -> tuple[int, ...]:
    """Return the steps in the usual seasons of a frequency, shortest first.

    A day has as many steps as rows come in one, and so has a week.
    """
    if frequency.open:
        days = np.asarray(frequency.open) * frequency.seconds // _DAY
        a_day = int(np.median(np.unique(days, return_counts=True)[1]))
        return tuple(sorted({steps for steps in (a_day, len(frequency.open)) if steps > 1}))
    count, base = frequency.base
    if (months := frequency.months) or base == "W":
        each, year = (months, _MONTHS) if months else (count, _WEEKS)
        return (year // each,) if year % each == 0 and year > each else ()
    if base in _BY_ALIAS:
        return _BY_ALIAS[base] if count == 1 else ()
    seconds, days = frequency.seconds, 7
    per_day = _DAY // seconds if seconds and _DAY % seconds == 0 else 1
    if frequency.hours is not None:  # those of a regular day
        times = frequency.hours.between(pd.Timestamp("2024-02-05"), pd.Timestamp("2024-02-29"))
        _, numbers = np.unique(times.astype("datetime64[D]"), return_counts=True)
        per_day, days = int(np.median(numbers)), 5
    return (per_day, days * per_day) if per_day > 1 else ()


def default_season(frequency: Frequency) -> int:
    """Return the steps in the shortest usual season of a frequency; 1 where there is none.

    Weekly series have none, as in the M competitions: a year is too long a season for the seasonal
    naive forecast. An intraday series has one if it keeps to the hours of an exchange, or if its
    step is 15, 30 or 60 minutes; it is then taken to run day and night, unless it has open slots.
    """
    regular = frequency.hours is not None or frequency.open or frequency.alias in _OF_A_DAY
    if frequency.base == (1, "W") or (frequency.alias[:-1].isdigit() and not regular):
        return 1
    return next(iter(usual_seasons(frequency)), 1)


def find_seasons(values: Float[np.ndarray, " row"]) -> tuple[int, ...]:
    """Estimate the seasons of a series, at most three, by the autocorrelation of its changes.

    A season has three cycles or more in the data, and a correlation above that of the neighbouring
    lags and above chance. Longer seasons are multiples of the shortest.
    """
    changes = np.diff(values)
    spread = np.abs(changes).mean() if len(changes) else 0.0
    if len(changes) < 12 or not 0 < spread <= _LARGEST:
        return ()
    changes = np.clip(changes - changes.mean(), -5 * spread, 5 * spread)  # outliers count in part
    size = 1 << (2 * len(changes) - 1).bit_length()
    power = np.abs(np.fft.rfft(changes, size)) ** 2
    longest = min(len(values) // 3, LONGEST_SEASON)
    shared = len(changes) - np.arange(longest + 1)
    correlation = np.fft.irfft(power, size)[: longest + 1] / shared
    correlation /= correlation[0]
    least = max(_LEAST_CORRELATION, 3 / np.sqrt(len(changes)))
    inner = correlation[2:-1] if len(correlation) > 3 else correlation[:0]
    peaks = 2 + np.flatnonzero(
        (inner > least) & (inner >= correlation[1:-2]) & (inner >= correlation[3:])
    )
    peaks = peaks[peaks > 2]
    if not len(peaks):
        return ()
    short = int(peaks[correlation[peaks] >= _AS_GOOD * correlation[peaks].max()][0])
    longer = peaks[(peaks % short == 0) & (peaks > short)]
    better = longer[correlation[longer] > _BETTER * correlation[short]]
    seasons = {short}
    if len(better):
        seasons.add(int(better[correlation[better] >= 0.95 * correlation[better].max()][0]))
    if short in _DAYS and 7 * short <= longest and correlation[7 * short] > least:
        seasons.add(7 * short)
    return tuple(sorted(seasons))
