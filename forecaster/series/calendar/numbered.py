"""Tell whole numbers that are dates, such as 20240328 and 202403, from numbers that count steps."""

import numpy as np
import pandas as pd
from jaxtyping import Int

_MOST_WRONG = 0.5  # if more of the numbers are not dates, they count steps
_YEARS = (1800, 2199)
_LAST_YEARS = (1900, 2100)  # where the year is last
_SERIAL_DAYS = (25569, 73050)  # 1970 to 2099
_LAST_WEEKLY = (36526, 51135)  # 2000 to 2039: the last of days one week apart
_MOST_WEEKS = 48  # of 52 or 53: a few may be missing
_SURE = 8  # numbers of three or four digits that are hardly all months by chance
SERIAL_START = pd.Timestamp("1899-12-30")
"""Day 0 of spreadsheets."""


def dates_of_numbers(numbers: Int[np.ndarray, " row"]) -> pd.Series | None:
    """Return whole numbers as dates, NaT where one is not a date; None if they count steps.

    - eight digits are days (20240328) if at least half of them are valid days
    - six digits are months (202403) if all end in 01 to 12, or most do and they are not a run of
      consecutive numbers; the years are 1800 to 2199. A month becomes its first day
    """
    codes, kinds = pd.factorize(numbers)
    if not len(kinds):
        return None
    if ((kinds >= 10_000_000) & (kinds <= 99_999_999)).all():
        text = pd.Series(kinds.astype(str))
        days = pd.to_datetime(text, format="%Y%m%d", errors="coerce").iloc[codes]
        return None if days.isna().mean() > _MOST_WRONG else days.reset_index(drop=True)
    if _are_months(np.sort(kinds)):
        text = pd.Series(kinds.astype(str))
        months = pd.to_datetime(text, format="%Y%m", errors="coerce")
        return months.iloc[codes].reset_index(drop=True)
    return None


def other_meaning(numbers: Int[np.ndarray, " row"]) -> str | None:
    """Say what else numbers that seem to count steps may mean, and how to write it; else None.

    Months among days (202401, 20240215) are suspected always, and these patterns where there are
    three different numbers or more:

    - spreadsheets' serial days: all on the first or the last day of a month, or, where there are
      ten different days or more, none on a weekend, or all on one weekday, two of them one week
      apart and the last in 2000 to 2039
    - weeks (202152, 202201) and quarters (20214, 20221) over the end of a year; the weeks of a
      whole year (202401 to 202452), unless the year ends in 00, as a counter's first numbers do
    - days of the year (2024001)
    - days, months, weeks and days of the year with the year last (31122024, 122024)
    - days with a year of two digits over the end of a month (241231, 250101), and months and weeks
      with one over the end of a year (2412, 2501)
    """
    ordered = np.sort(pd.unique(numbers))
    if _mix_months_and_days(ordered):
        return "months and days; if they are, write all of them alike"
    if len(ordered) < 3:
        return None
    if _parts_of_years(ordered, 1000, 366):
        return "days of the year; if they are, say --date-format %Y%j"
    over_years = len(np.unique(ordered // 100)) > 1
    if (over_years or _are_all_weeks(ordered)) and _parts_of_years(ordered, 100, 53):
        return f"weeks of a year; if they are, write them as {_written(ordered[0], 100, '-W')}"
    over_years = len(np.unique(ordered // 10)) > 1
    if over_years and _parts_of_years(ordered, 10, 4):
        return f"quarters of a year; if they are, write them as {_written(ordered[0], 10, 'Q')}"
    if kind := _year_last(ordered) or _short_year(ordered):
        return f"{kind}; if they are, write them as 2024-03-28, 2024-03 or 2024-W05"
    if _are_serial_days(ordered):
        day = SERIAL_START + pd.Timedelta(days=int(ordered[0]))
        return f"days of a spreadsheet ({day:%Y-%m-%d}); if they are, say --date-format excel"
    return None


def _written(number: int, base: int, letter: str) -> str:
    year, part = divmod(int(number), base)
    return f"{year}{letter}{part:0{len(str(base)) - 1}d}"


def _parts_of_years(ordered: Int[np.ndarray, " kind"], base: int, most: int) -> bool:
    """Return whether all numbers are a year and a number from 1 to ``most``, which is not always 1.

    Numbers that end alike, such as 20001, 20011, 20021, rather count steps.
    """
    years, parts = np.divmod(ordered, base)
    plausible = (years >= _YEARS[0]) & (years <= _YEARS[1])
    possible = (plausible & (parts >= 1) & (parts <= most)).all()
    return bool(possible) and len(np.unique(parts)) > 1


def _are_all_weeks(ordered: Int[np.ndarray, " kind"]) -> bool:
    """Return whether these are the weeks of one year: 202401, 202402, ..., 202452 or 202453.

    A few weeks may be missing. The year does not end in 00: 200001 rather begins a counter.
    """
    years, parts = np.divmod(ordered, 100)
    if years[0] != years[-1] or years[0] % 100 == 0 or parts[0] != 1:
        return False
    return bool(parts[-1] in (52, 53)) and len(parts) >= _MOST_WEEKS


def _year_last(ordered: Int[np.ndarray, " kind"]) -> str | None:
    """Say what numbers that have the year last may be; None if nothing.

    Numbers at equal distances count steps, unless these lie between dates of one year (10,000 or a
    multiple), which counters hardly begin with. Only of 12000, 22000, ... they may.
    """
    rest, year = np.divmod(ordered, 10_000)  # a leading zero is lost in numbers
    plausible = ((year >= _LAST_YEARS[0]) & (year <= _LAST_YEARS[1])).all()
    if not plausible or len(np.unique(rest)) == 1:
        return None
    if _are_equally_spaced(ordered):
        round_steps = ordered[1] - ordered[0] == 10_000 and year[0] % 1000 == 0
        if round_steps or len(np.unique(year)) > 1:
            return None
    for first, second, order in ((31, 12, "day, month"), (12, 31, "month, day")):
        one, other = np.divmod(rest, 100)
        if _between(one, first) and _between(other, second):
            return f"days written as {order} and year"
    for most, kind in ((12, "months"), (53, "weeks"), (366, "days of the year")):
        if _between(rest, most):
            return f"{kind} with the year last"
    return None


def _short_year(ordered: Int[np.ndarray, " kind"]) -> str | None:
    """Say what numbers that have a year of two digits may be; None if nothing.

    Numbers at equal distances count steps, and so do months and weeks of a single year: a counter
    passes 2401 to 2412, too.
    """
    if _are_equally_spaced(ordered):
        return None
    months, days = np.divmod(ordered % 10_000, 100)
    dated = ordered[0] >= 10_101 and ordered[-1] <= 991_231
    if dated and _between(months, 12) and _between(days, 31) and len(np.unique(months)) > 1:
        return "days with a year of two digits"
    first, last = ordered[0], ordered[-1]
    over_years = first >= 101 and last <= 9953 and first // 100 < last // 100
    if over_years and len(ordered) >= _SURE and _between(ordered % 100, 12):
        return "months with a year of two digits"
    if over_years and len(ordered) >= _MOST_WEEKS and _between(ordered % 100, 53):
        return "weeks with a year of two digits"
    return None


def _are_equally_spaced(ordered: Int[np.ndarray, " kind"]) -> bool:
    return len(np.unique(np.diff(ordered))) == 1


def _between(numbers: Int[np.ndarray, " kind"], most: int) -> bool:
    """Return whether all numbers lie from 1 to ``most``."""
    return bool(((numbers >= 1) & (numbers <= most)).all())


def _mix_months_and_days(ordered: Int[np.ndarray, " kind"]) -> bool:
    six, eight = ordered[ordered < 1_000_000], ordered[ordered >= 1_000_000]
    if not (len(six) and len(eight) and _are_months(six)):
        return False
    days = dates_of_numbers(eight)
    return days is not None and bool(days.notna().all())


def _are_months(ordered: Int[np.ndarray, " kind"]) -> bool:
    years = ordered // 100
    if years[0] < _YEARS[0] or years[-1] > _YEARS[1]:
        return False
    wrong = ~np.isin(ordered % 100, np.arange(1, 13))
    a_run = ordered[-1] - ordered[0] == len(ordered) - 1
    return not wrong.any() or (not a_run and bool(wrong.mean() < _MOST_WRONG))


def _are_serial_days(ordered: Int[np.ndarray, " kind"]) -> bool:
    if ordered[0] < _SERIAL_DAYS[0] or ordered[-1] > _SERIAL_DAYS[1]:
        return False
    days = pd.DatetimeIndex(SERIAL_START + pd.to_timedelta(ordered, unit="D"))
    weekdays = np.unique(days.day_of_week)
    if days.is_month_start.all() or days.is_month_end.all():
        return True
    steps = np.diff(ordered)
    # Counters that go on in sevens mostly end before these days or after them.
    recent = _LAST_WEEKLY[0] <= ordered[-1] <= _LAST_WEEKLY[1]
    weekly = recent and (steps % 7 == 0).all() and (steps == 7).any()
    return len(ordered) >= 10 and bool(weekly or weekdays.tolist() == [0, 1, 2, 3, 4])
