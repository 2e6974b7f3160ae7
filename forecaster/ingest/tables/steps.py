"""The step of rows as a caller states it, and the rows that do not fit it."""

import dataclasses
import warnings

import numpy as np
import pandas as pd

from forecaster.errors import DataError, UsageError, warn
from forecaster.ingest.tables.location import TableLocation
from forecaster.series import Frequency, Panel, common_frequency, in_words, show_time

_DAY = 86_400  # seconds
_FEW = 0.1  # share of rows that may be later on a day that has one


def stated_frequency(name: str) -> Frequency:
    """Return the frequency of a name of pandas' offsets: W-MON, MS, QE-DEC, B, D, h, 15min.

    Raises UsageError for another text, and for a frequency that does not lead on.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # names that pandas gives up
            offset = Frequency(name).offset
        alias = offset.freqstr
        if isinstance(offset, pd.offsets.Tick) and not (seconds := offset.nanos / 1e9) % 1:
            days = seconds / 86_400
            alias = f"{seconds:.0f}s" if days % 1 else f"{days:.0f}D"
        frequency = Frequency("D" if alias == "1D" else alias, stated=True)
        frequency.after(pd.Timestamp("2024-01-01"), 1)[0]
    except (ValueError, TypeError, IndexError, ZeroDivisionError, Warning, DataError) as error:
        raise UsageError(
            f"frequency {name!r:.80}: expected a name of pandas' offsets: D (days), B (weekdays), "
            "W-MON (weeks, by a day of theirs), 2W-FRI, MS or ME (first or last day of months), "
            "QE-DEC, YS, h, 15min"
        ) from error
    return frequency


def with_frequency(panel: Panel, name: str | None) -> Panel:
    """Return a panel with the frequency that is stated for its dates, if one is."""
    if name is None or panel.times.dtype.kind != "M":
        return panel
    return dataclasses.replace(panel, frequency=stated_frequency(name))


def tell_odd_rows(times: pd.Series, ids: pd.Series, name: str, where: TableLocation) -> None:
    """Warn of the rows that are at none of the times of a stated frequency.

    ``times``, ``ids``: of each row of a table, in any order

    Raises DataError for times that count steps, for steps of hours where all rows have one time of
    day, and for steps of days or longer where rows have several on one day.
    """
    if not pd.api.types.is_datetime64_dtype(times):
        raise DataError(
            f"{where}: --frequency {name} (in Python frequency=) is of dates, and column "
            f"{where.column('ds')!r} counts in whole numbers; leave it out"
        )
    frequency, ordered = stated_frequency(name), times.sort_values()
    _refuse_other_kind(frequency, times, ids, name, where)
    fits = ordered.groupby(ids.cat.codes).transform(lambda its: frequency.fits(its.to_numpy()))
    odd = ~fits.astype(bool).reindex(times.index)
    if odd.any():
        warn(
            f"{where.cell(odd, 'ds')}: {show_time(times[odd].iloc[0])} is at no time of "
            f"--frequency {name} ({in_words(frequency)}), which {odd.sum():,} of {len(odd):,} rows "
            "do not fit. They are kept, and forecasts go on from the latest row that fits; correct "
            "them, leave them out, or state another frequency"
        )


def _refuse_other_kind(
    frequency: Frequency, times: pd.Series, ids: pd.Series, name: str, where: TableLocation
) -> None:
    """Raise DataError for a step within days where rows are of days, and the other way around."""
    rows = pd.DataFrame({"id": ids.cat.codes, "time": times, "day": times.dt.normalize()})
    on_one_day = rows.duplicated(["id", "day"]) & ~rows.duplicated(["id", "time"])
    is_tick = isinstance(frequency.offset, pd.offsets.Tick)
    within_days = is_tick and frequency.base[1] != "D" and frequency.seconds % _DAY != 0
    one_clock = times.nunique() > 2 and (times - rows["day"]).nunique() == 1
    if not (one_clock if within_days else on_one_day.mean() > _FEW):
        return
    each = (np.unique(part) for _, part in rows.groupby("id")["time"])
    shown = common_frequency(each)
    found = "one time of day in all rows" if within_days else "several rows on one day"
    bad = times.notna() if within_days else on_one_day
    option = f"Say {shown.option}, or leave" if shown.option else "Leave"
    raise DataError(
        f"{where.cell(bad, 'ds')}: {found}, but --frequency {name} (in Python frequency=) means "
        f"{in_words(frequency)}; the rows show {in_words(shown)}. {option} it out"
    )
