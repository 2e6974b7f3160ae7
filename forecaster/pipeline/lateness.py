"""Count the sessions that series lack, compared with the clock and with other series."""

import dataclasses
import functools
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from types import MappingProxyType

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


class Ends:
    """The latest times of many series, counted by exchange once, for all parts of a prediction.

    ``of``: the latest time of each series
    """

    def __init__(self, of: Mapping[str, np.datetime64] = MappingProxyType({})):
        self.of = of

    @staticmethod
    def at_fit(until: Mapping[str, np.generic], fit: np.datetime64 | None = None) -> "Ends":
        """Return the ends at the first fit of the series that have dates.

        - ``until``: the time of the last row that each series learned from
        - ``fit``: the latest time of any series at the first fit, if the model was updated since
        """
        then = {name: time for name, time in until.items() if isinstance(time, np.datetime64)}
        return Ends(then if fit is None else {name: min(time, fit) for name, time in then.items()})

    @functools.cached_property
    def counts(self) -> Mapping[str | None, Mapping[np.datetime64, int]]:
        """The number of series by end, for each exchange."""
        counts: dict[str | None, Counter[np.datetime64]] = defaultdict(Counter)
        for name, last in self.of.items():
            counts[exchange_of(name)][last] += 1
        return counts


def sessions_late(
    panel: Panel, end: Date | None = None, others: Ends | None = None
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
    frequencies = panel.of_times(infer_frequency)
    return {
        name: max(missed(frequency, times[-1]), behind.get(name, 0))
        for (name, times), frequency in zip(_times_of(panel), frequencies, strict=True)
    }


def sessions_behind(panel: Panel, others: Ends | None = None) -> dict[str, int]:
    """Return the number of sessions that a series lacks and most others have, for series behind.

    Only series of the same exchange and frequency are compared, since others may close later.

    ``others``: the ends of further series; their frequency is not compared
    """
    if panel.times.dtype.kind != "M":
        return {}
    frequencies = dict(zip(panel.ids, panel.of_times(_without_day), strict=True))
    its = {name: times[-1] for name, times in _times_of(panel)}
    return _behind(its, frequencies, others or Ends())


def ended_before(panel: Panel, then: Ends) -> list[str]:
    """Return the series without a row since the fit that were already behind others at the fit.

    Such series ended on purpose: their end was known when the model was trained. Prices are never
    returned, since a forecast needs today's price.

    ``then``: the ends at the fit, of all its series
    """
    if panel.target != "y" or panel.times.dtype.kind != "M":
        return []
    last = {name: times[-1] for name, times in _times_of(panel)}
    frequencies = dict(zip(panel.ids, panel.of_times(_without_day), strict=True))
    its = {name: then.of[name] for name in last if name in then.of}
    return [name for name in _behind(its, frequencies, then) if last[name] <= its[name]]


def _without_day(times: np.ndarray) -> Frequency:
    frequency = infer_frequency(times)
    return dataclasses.replace(frequency, day=0) if frequency.alias == "months" else frequency


def _behind(
    ends: Mapping[str, np.datetime64],
    frequencies: Mapping[str, Frequency],
    others: Ends,
) -> dict[str, int]:
    """Return the number of sessions by which series end before most others of their kind.

    Series of one kind have the same exchange and frequency. Series that are not behind are left
    out.

    ``others``: the ends of further series, of any frequency; any ends there of the series in
    ``ends`` are not used
    """
    groups: dict[tuple[Frequency, str | None], dict[str, np.datetime64]] = {}
    for name, last in ends.items():
        groups.setdefault((frequencies[name], exchange_of(name)), {})[name] = last
    own: dict[str | None, Counter[np.datetime64]] = defaultdict(Counter)
    for name in ends:
        if name in others.of:
            own[exchange_of(name)][others.of[name]] += 1
    behind: dict[str, int] = {}
    for (frequency, exchange), its in groups.items():
        every = Counter(its.values())
        every.update(others.counts.get(exchange, {}))
        every.subtract(own[exchange])
        usual = _middle(every)
        counts = {last: frequency.elapsed(last, usual) for last in set(its.values())}
        behind |= {name: counts[last] for name, last in its.items() if counts[last]}
    return behind


def _middle(counts: Mapping[np.datetime64, int]) -> np.datetime64:
    """Return the median of times, of two the later one; ``counts``: how often each occurs."""
    times = sorted(counts)
    upto = np.cumsum([counts[time] for time in times])
    return times[int(np.searchsorted(upto, upto[-1] // 2, side="right"))]


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
