"""How far apart the rows of a series are: gaps that are filled, and the steps in its seasons.

Rows that are missing are filled, so that seasons keep their length. Seasons follow from the
frequency, or from the values where times are whole numbers.
"""

import numpy as np
import pandas as pd
from jaxtyping import Float, Int, Shaped

from forecaster.series.calendar.frequency import UNITS, Frequency, open_numbers
from forecaster.series.limits import LONGEST_SEASON

_DAY = 86_400  # seconds
_WEEKDAYS = 0, 1, 2, 3, 4
# Least share of the weekdays with a row. Holidays are 4 to 5 %. Where 10 % of the rows of random
# walks were missing at random, filling them made errors 4 % larger.
_NEARLY_ALL = 0.94
_STEPS = 12  # times of a stated frequency that tell its spacing: a year of months
_MOST = 2  # seasons of missing rows that are filled whole
# A series is filled with at most 100 rows for each that it has, and 10,000 more. Where more are
# missing, its rows do not come at regular times.
_MOST_A_ROW, _MOST_BESIDE = 100, 10_000
_LATEST = 61  # rows that are compared; in fewer, too many gaps might be weekends and holidays
_FEWEST = 3  # gaps that are needed to compare; one or two might be a weekend
_ALIKE = 1.25  # gaps are alike up to this ratio; the lengths of months differ by a ninth
_COMMON = 0.1  # share of gaps of the usual length that makes a series spaced as usual
_WEEKS, _MONTHS = 52, 12  # in a year
_BY_ALIAS = {"B": (5,), "D": (7,), "SMS": (24,), "SME": (24,)}
_OF_A_DAY = ("900s", "1800s", "3600s")
_LEAST_CORRELATION = 0.2  # smallest correlation of changes one season apart
_LARGEST = 1e140  # largest mean change whose square does not overflow
_AS_GOOD = 0.8  # the basic season is the shortest with this share of the largest correlation
_DAYS = (24, 48, 96, 144, 288)  # basic seasons, in steps, that are a day and may have a week
_BETTER = 1.05  # a longer season needs a correlation higher by this factor


def regular_rows(
    times: Shaped[np.ndarray, " row"], frequency: Frequency
) -> tuple[float, tuple[int, ...]]:
    """Return the spacing at which rows are expected, and the slots of the week in which they are.

    The spacing is in seconds, or in whole numbers. It is 0 for the hours of an exchange, and for a
    part of the weekdays, where a longer gap does not mean that rows are missing. There are no slots
    where rows come in all of them, see :class:`Frequency`; else the spacing is theirs. A series
    with rows on nearly all weekdays has these as slots: holidays are missing, of an exchange, too,
    so that each weekday keeps its place. A stated frequency has the spacing of its own times.
    """
    if len(times) < 2:
        return 0.0, ()
    slots = frequency.open
    if frequency.alias == "B":
        first, last = open_numbers(times[[0, -1]], _DAY, _WEEKDAYS).tolist()
        slots = _WEEKDAYS if len(times) >= _NEARLY_ALL * (last - first + 1) else ()
    if slots:
        return float(frequency.seconds), slots
    irregular = frequency.alias == "B" or frequency.hours is not None
    steps = frequency.after(times[-1], _STEPS) if frequency.stated else times
    return 0.0 if irregular else spacing_of(steps), ()


def without_gaps(
    values: Float[np.ndarray, " row"],
    times: Shaped[np.ndarray, " row"],
    spacing: float,
    season: int,
    slots: tuple[int, ...] = (),
) -> tuple[Float[np.ndarray, " step"], Int[np.ndarray, " row"]]:
    """Return the values with missing rows filled, and the steps of the rows that were there.

    A missing row has the value of one season before. A long gap is filled only with the part of a
    season that keeps later rows in season. Later rows never change an earlier step. No gap is
    filled if more than 10,000 rows and 100 times the number of rows are missing.

    - ``values``, ``times``: values and times of a series' rows
    - ``spacing``, ``slots``: from :func:`regular_rows`; no row is missing in other slots
    - ``season``: steps in a season; 1 for none, then nothing is filled
    """
    steps = np.arange(len(values))
    if season <= 1 or not spacing > 0 or len(values) < 2:
        return values, steps
    gaps = np.diff(open_numbers(times, int(spacing), slots)) * spacing if slots else _gaps(times)
    missing = np.maximum(np.round(gaps / spacing), 1) - 1
    missing = np.where(missing > _MOST * season, missing % season, missing)
    if not 0 < missing.sum() <= _MOST_A_ROW * len(values) + _MOST_BESIDE:
        return values, steps
    steps = np.concatenate([[0], np.cumsum(missing.astype(int) + 1)])
    filled = np.full(steps[-1] + 1, np.nan)
    filled[steps] = values
    fill(filled, season)
    return filled, steps


def fill(values: Float[np.ndarray, " step"], season: int) -> None:
    """Fill values that are NaN with those of one season before, or else with the one before.

    In place; the first value is known.
    """
    edges = np.diff(np.isnan(values), prepend=False, append=False)
    for begin, end in np.flatnonzero(edges).reshape(-1, 2):
        seasonal = min(max(begin, season), end)  # first step with a season before it
        values[begin:seasonal] = values[begin - 1]
        values[seasonal:end] = np.resize(values[seasonal - season : seasonal], end - seasonal)


def spacing_of(times: Shaped[np.ndarray, " row"]) -> float:
    """Return the median gap between a series' latest rows, in seconds, or in whole numbers.

    Of an even number of gaps, it is the shorter of the two in the middle. NaN for less than two
    rows.

    ``times``: sorted and unique, dates or whole numbers.
    """
    gaps = _gaps(times[-_LATEST:])
    return float(np.percentile(gaps, 50, method="lower")) if len(gaps) else float("nan")


def spaced_otherwise(
    times: Shaped[np.ndarray, " row"],
    spacing: float,
    others: str = "those that the model was fitted on",
) -> str | None:
    """Say in words how a series' spacing differs from that of other rows; None if it does not.

    Weekends, nights and holidays make no difference where some gaps have the usual length.

    - ``times``: the times of the series, sorted and unique
    - ``spacing``: the usual gap of the others, as :func:`spacing_of` returns it; NaN: not known
    - ``others``: what the other rows are, in words
    """
    gaps, now = _gaps(times[-_LATEST:]), spacing_of(times)
    if len(gaps) < _FEWEST or not np.isfinite(spacing) or 1 / _ALIKE < now / spacing < _ALIKE:
        return None
    as_usual = (gaps > spacing / _ALIKE) & (gaps < spacing * _ALIKE)
    if as_usual.mean() >= _COMMON:
        return None
    now, then = (span_in_words(one, dated=times.dtype.kind == "M") for one in (now, spacing))
    return f"its rows are {now} apart, {others} {then}"


def _gaps(times: Shaped[np.ndarray, " row"]) -> Float[np.ndarray, " gap"]:
    """Return the gaps between rows, in seconds, or in whole numbers."""
    gaps = np.diff(times)
    if gaps.dtype.kind == "m":
        return gaps.astype("timedelta64[ns]").astype(np.int64) / 1e9
    return gaps.astype(float)


def span_in_words(spacing: float, *, dated: bool = True) -> str:
    """Return seconds as "7 days", "1 hour" or the like; ``dated``: False: a whole number."""
    if not dated:
        return f"{spacing:g}"
    unit = next((unit for unit in UNITS if spacing >= unit), 1)
    count = f"{spacing / unit:.3g}"
    return f"{count} {UNITS[unit]}{'' if count == '1' else 's'}"


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
