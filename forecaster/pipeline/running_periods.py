"""Warn of series whose latest row is of a week, month, quarter or year that is still running."""

import warnings
from collections.abc import Mapping
from typing import NamedTuple

import pandas as pd

from forecaster.errors import ForecasterWarning, listed
from forecaster.series import Panel, infer_frequency, show_time

# Aliases without the letter of business days, also those of older versions of pandas.
_ENDS = ("ME", "M", "QE", "Q", "YE", "A", "SME", "WOM", "LWOM", "4-4-5")
_BEGINS = ("MS", "QS", "YS", "AS")

_FIRST_DAYS = 3  # the first weekday of a month is one of these


class RunningPeriod(NamedTuple):
    """A period that is not over: the stamp of its row, and when it is over."""

    stamp: pd.Timestamp
    until: pd.Timestamp


def running_periods(panel: Panel, now: pd.Timestamp | None = None) -> dict[str, RunningPeriod]:
    """Return the series of a panel of values whose latest row's period is not over yet.

    A row on the first day of a month, or on the first weekday of one in a series of these, is that
    of the month, quarter or year that begins there, and one on a Monday that of its week. Any other
    row is taken to be named by the end of its period, which is not over if that lies in the future.

    ``now``: the present time; None: by the clock
    """
    if panel.target != "y" or panel.times.dtype.kind != "M":
        return {}
    moment = pd.Timestamp.now() if now is None else now
    found = panel.of_times(lambda times: _running(pd.DatetimeIndex(times), moment))
    return {name: one for name, one in zip(panel.ids, found, strict=True) if one is not None}


def _running(times: pd.DatetimeIndex, now: pd.Timestamp) -> RunningPeriod | None:
    if len(times) < 2 or times[-2] > now:  # rows of the future are invented
        return None
    last, frequency = times[-1], infer_frequency(times.to_numpy())
    kind = frequency.base[1].removeprefix("B")
    first_days = kind == "months" and bool((times.day <= _FIRST_DAYS).all())
    if frequency.alias == "W-MON" or kind in _BEGINS or first_days:
        until = pd.Timestamp(frequency.after(last, 1)[0]).normalize()
        until = until if kind == "W" else until.replace(day=1)
    elif kind in (*_ENDS, "months", "W"):
        until = last.normalize()
    else:
        return None
    return RunningPeriod(last, until) if now < until else None


def warn_of_running_periods(running: Mapping[str, RunningPeriod], count: int) -> None:
    """Warn once of all series whose latest row's period is not over.

    - ``running``: from :func:`running_periods`
    - ``count``: the number of all series
    """
    if not running:
        return
    one = min(running.values())
    later = " or later" if any(each.stamp != one.stamp for each in running.values()) else ""
    before = (one.stamp - pd.Timedelta(days=1)).date()
    warnings.warn(
        f"the latest row of {len(running)} of {count} series, dated {show_time(one.stamp)}{later}, "
        f"is of a period that is not over before {show_time(one.until)}: {listed(list(running))}. "
        "It counts as the value of the whole period; if it is not, leave it out: --end "
        f"{before}",
        ForecasterWarning,
        stacklevel=1,  # from here, so that shards with the same warning say it once
    )
