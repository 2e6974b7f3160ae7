"""The steps in the seasons of a series, from its frequency, or from its values without dates."""

import numpy as np
from jaxtyping import Float, Shaped

from forecaster.series.calendar.frequency import Frequency, infer_frequency
from forecaster.series.calendar.opening import slots_a_day
from forecaster.series.limits import LONGEST_SEASON

_DAY = 86_400  # seconds
_WEEKS, _MONTHS = 52, 12  # in a year
_BY_ALIAS = {"B": (5,), "D": (7,), "SMS": (24,), "SME": (24,)}
_A_DAY = {"900s": 96, "1800s": 48, "3600s": 24}
_LEAST_CORRELATION = 0.2  # smallest correlation of changes one season apart
_LARGEST = 1e140  # largest mean change whose square does not overflow
_AS_GOOD = 0.8  # the basic season is the shortest with this share of the largest correlation
_DAYS = (24, 48, 96, 144, 288)  # basic seasons, in steps, that are a day and may have a week
_BETTER = 1.05  # a longer season needs a correlation higher by this factor


def seasons_of(
    times: Shaped[np.ndarray, " row"], values: Float[np.ndarray, " row"]
) -> tuple[int, ...]:
    """Return the steps in each season of one series, shortest first; empty where it has none.

    Dates have the usual seasons of their frequency: hourly rows have a day and a week. Where times
    are whole numbers the seasons are estimated from the values.
    """
    frequency = infer_frequency(times)
    if frequency.alias == "step":
        return find_seasons(values)
    return usual_seasons(frequency, times)


def usual_seasons(
    frequency: Frequency, times: Shaped[np.ndarray, " row"] | None = None
) -> tuple[int, ...]:
    """Return the steps in the usual seasons of a frequency, shortest first.

    A week has as many steps as rows come in one.

    ``times``: the series' own. Where they are given, a day of intraday rows has as many steps as
    the median day has rows, and a week without rows on weekends has five days.
    """
    alias = frequency.alias
    if frequency.open:
        week = len(frequency.open)
        a_day = slots_a_day(frequency.open, frequency.seconds)
        return tuple(sorted({steps for steps in (a_day, week) if steps > 1}))
    if alias.endswith("s") and alias[:-1].isdigit():
        seconds = int(alias[:-1])
        per_day = _rows_a_day(times, seconds)
        always = times is None or _has_no_gap(times, seconds) or _trades_on_weekends(times)
        open_days = 7 if always else 5
        return (per_day, open_days * per_day) if per_day > 1 else ()
    count, base = frequency.base
    if months := frequency.months:
        return _a_year(months, _MONTHS)
    if base == "W":
        return _a_year(count, _WEEKS)
    return _BY_ALIAS.get(base, ()) if count == 1 else ()


def _a_year(each: int, whole: int) -> tuple[int, ...]:
    """Return the steps in a year of ``whole`` parts, ``each`` of them a step; empty for none."""
    return (whole // each,) if whole % each == 0 and whole > each else ()


def default_season(frequency: Frequency) -> int:
    """Return the steps in the shortest usual season of a frequency; 1 where there is none.

    Weekly series have none, as in the M competitions: a year is too long a season for the seasonal
    naive forecast. An intraday series has one if it keeps to the hours of an exchange, or if its
    step is 15, 30 or 60 minutes; it is then taken to run day and night, unless it has open slots.
    """
    if frequency.hours is not None:
        return frequency.hours.usual_number
    if frequency.open:
        return next(iter(usual_seasons(frequency)), 1)
    if (steps := _A_DAY.get(frequency.alias)) is not None:
        return steps
    if frequency.base == (1, "W") or frequency.alias[:-1].isdigit():
        return 1
    return next(iter(usual_seasons(frequency)), 1)


def _rows_a_day(times: Shaped[np.ndarray, " row"] | None, seconds: int) -> int:
    full = _DAY // seconds if _DAY % seconds == 0 else 0
    if times is None or len(times) < 2:
        return full
    days, counts = np.unique(times.astype("datetime64[D]"), return_counts=True)
    if full and len(days) > 1 and (_has_no_gap(times, seconds) or _at_all_hours(times, full)):
        return full
    # The first and the last day may be parts of whole days.
    inner = np.arange(len(days)) % (len(days) - 1) > 0 if len(days) > 2 else counts > 0
    whole = counts[inner | (counts >= np.median(counts))]
    return min(full, int(np.median(whole))) if full else int(np.median(whole))


def _has_no_gap(times: Shaped[np.ndarray, " row"], seconds: int) -> bool:
    """Return whether rows follow each other day and night, as far as they reach."""
    return (
        len(times) > 1 and len(times) == (times[-1] - times[0]) // np.timedelta64(seconds, "s") + 1
    )


def _at_all_hours(times: Shaped[np.ndarray, " row"], full: int) -> bool:
    """Return whether there is a row at each step of a day, of which there are ``full``."""
    return len(np.unique(times - times.astype("datetime64[D]"))) == full


def _trades_on_weekends(times: Shaped[np.ndarray, " row"]) -> bool:
    weekday = (times.astype("datetime64[D]").astype(int) + 3) % 7  # 1970-01-01 was a Thursday
    return bool((weekday >= 5).mean() > 0.1)


def find_seasons(values: Float[np.ndarray, " row"]) -> tuple[int, ...]:
    """Estimate the seasons of a series, at most three, by the autocorrelation of its changes.

    A season has three cycles or more in the data, and a correlation above that of the neighbouring
    lags and above chance. Longer seasons are multiples of the shortest.
    """
    changes = np.diff(values)
    spread = np.abs(changes).mean() if len(changes) else 0.0
    if len(changes) < 12 or not 0 < spread < np.inf:
        return ()
    if spread > _LARGEST:
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
