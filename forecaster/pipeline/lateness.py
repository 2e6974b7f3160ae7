"""Count the sessions that series lack, compared with the clock and with other series."""

import dataclasses
import functools
from collections.abc import Iterator, Mapping

import numpy as np
import pandas as pd

from forecaster.series import (
    Date,
    Frequency,
    Panel,
    end_of_day,
    exchange_of,
    infer_frequency,
    last_closed,
    show_time,
)

# Maximum sessions in a row that may be holidays of an exchange with an unknown calendar.
_UNKNOWN = 2
_NEW_YORK = "America/New_York"


def sessions_late(
    panel: Panel, end: Date | None = None, others: Mapping[str, np.datetime64] | None = None
) -> dict[str, int]:
    """Return the number of sessions that are over and that a series has no row for, by series.

    Forecasts of a late series begin with days that are past. A session is over half an hour after
    the close of New York's exchange. For series that do not keep its holidays it is over when the
    next session begins, and up to two missing sessions count as holidays. Series that count steps
    are never late.

    - ``end``: the last day that is over; None: until now
    - ``others``: see :func:`sessions_behind`
    """
    behind = sessions_behind(panel, others)
    missed = functools.cache(
        lambda frequency, last: _missed(frequency, last, end)
    )  # most calls repeat an earlier one
    return {
        name: max(missed(infer_frequency(times), times[-1]), behind.get(name, 0))
        for name, times in _times_of(panel)
    }


def sessions_behind(
    panel: Panel, others: Mapping[str, np.datetime64] | None = None
) -> dict[str, int]:
    """Return the number of sessions that a series lacks and most others have, for series behind.

    Only series of the same exchange and frequency are compared, since others may close later.

    ``others``: the latest times of further series; their frequency is not compared
    """
    rows = {name: times for name, times in _times_of(panel) if times.dtype.kind == "M"}
    frequencies = {name: _without_day(times) for name, times in rows.items()}
    return _behind({name: times[-1] for name, times in rows.items()}, frequencies, others or {})


def ended_before(
    panel: Panel, until: Mapping[str, np.generic], fit: np.datetime64 | None = None
) -> list[str]:
    """Return the series without a row since the fit that were already behind others at the fit.

    Such series ended on purpose: their end was known when the model was trained. Prices are never
    returned, since a forecast needs today's price.

    - ``until``: the time of the last row at the fit, of all series of the fit
    - ``fit``: the latest time of any series at the first fit, if the model was updated since
    """
    if panel.target != "y":
        return []
    rows = {name: times for name, times in _times_of(panel) if times.dtype.kind == "M"}
    then = {name: time for name, time in until.items() if isinstance(time, np.datetime64)}
    if fit is not None:
        then = {name: min(time, fit) for name, time in then.items()}
    its = {name: then[name] for name in rows if name in then}
    behind = _behind(its, {name: _without_day(rows[name]) for name in its}, then)
    return [name for name in behind if rows[name][-1] <= its[name]]


def _without_day(times: np.ndarray) -> Frequency:
    frequency = infer_frequency(times)
    return dataclasses.replace(frequency, day=0) if frequency.alias == "months" else frequency


def _behind(
    ends: Mapping[str, np.datetime64],
    frequencies: Mapping[str, Frequency],
    others: Mapping[str, np.datetime64],
) -> dict[str, int]:
    """Return the number of sessions by which series end before most others of their kind.

    Series of one kind have the same exchange and frequency. Series that are not behind are left
    out. ``others``: further ends, of any frequency
    """
    groups: dict[tuple[Frequency, str | None], dict[str, np.datetime64]] = {}
    for name, last in ends.items():
        groups.setdefault((frequencies[name], exchange_of(name)), {})[name] = last
    further: dict[str | None, list[np.datetime64]] = {}
    for name in others.keys() - ends.keys():
        further.setdefault(exchange_of(name), []).append(others[name])
    behind: dict[str, int] = {}
    for (frequency, exchange), its in groups.items():
        every = sorted([*its.values(), *further.get(exchange, [])])
        usual = every[len(every) // 2]
        counts = {last: frequency.elapsed(last, usual) for last in set(its.values())}
        behind |= {name: counts[last] for name, last in its.items() if counts[last]}
    return behind


def ends_of(panel: Panel) -> dict[str, str]:
    """Return the time of the latest row as text, by series."""
    return {name: show_time(times[-1]) for name, times in _times_of(panel)}


def _times_of(panel: Panel) -> Iterator[tuple[str, np.ndarray]]:
    """Yield each series with the times of its rows."""
    for name, observed in zip(panel.ids, panel.mask, strict=True):
        yield name, panel.times[observed]


def _missed(frequency: Frequency, last: np.datetime64, end: Date | None) -> int:
    """Count the sessions after ``last`` that are over."""
    if end is not None:
        return frequency.elapsed(last, end_of_day(end))
    if frequency.nyse and frequency.hours is None:
        return frequency.elapsed(last, last_closed(None, pd.Timestamp.now("UTC"), _NEW_YORK))
    missed = frequency.elapsed(last, pd.Timestamp.now()) - 1
    return missed if missed > _UNKNOWN else 0
