"""The step of rows as a caller states it, and the rows that do not fit it."""

import dataclasses
import warnings

import pandas as pd

from forecaster.errors import DataError, UsageError, warn
from forecaster.ingest.tables.location import TableLocation
from forecaster.series import Frequency, Panel, in_words, show_time


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
        frequency = Frequency(alias, stated=True)
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

    Raises DataError for times that count steps.
    """
    if not pd.api.types.is_datetime64_dtype(times):
        raise DataError(
            f"{where}: --frequency {name} (in Python frequency=) is of dates, and column "
            f"{where.column('ds')!r} counts in whole numbers; leave it out"
        )
    frequency, ordered = stated_frequency(name), times.sort_values()
    fits = ordered.groupby(ids.cat.codes).transform(lambda its: frequency.fits(its.to_numpy()))
    odd = ~fits.astype(bool).reindex(times.index)
    if odd.any():
        warn(
            f"{where.cell(odd, 'ds')}: {show_time(times[odd].iloc[0])} is at no time of "
            f"--frequency {name} ({in_words(frequency)}), which {odd.sum():,} of {len(odd):,} rows "
            "do not fit. They are kept, and forecasts go on from the latest row that fits; correct "
            "them, leave them out, or state another frequency"
        )
