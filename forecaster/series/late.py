"""Series whose latest rows are missing: beside the calendar, or beside the other series."""

import dataclasses
import functools
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import pandas as pd

from forecaster.series.calendar.exchanges import exchange_of, last_closed
from forecaster.series.calendar.frequency import Frequency
from forecaster.series.calendar.inferring import own_frequency
from forecaster.series.calendar.times import Date, end_of_day, show_time
from forecaster.series.findings import Finding
from forecaster.series.panel.panel import Panel

# Maximum sessions in a row that may be holidays of an exchange with an unknown calendar.
_UNKNOWN = 2
_NEW_YORK = "America/New_York"


@dataclasses.dataclass(frozen=True)
class Ends:
    """The latest times of many series, beside which those of a panel are late or not.

    ``of``: the latest time of each series
    """

    of: Mapping[str, np.datetime64] = dataclasses.field(default_factory=dict[str, np.datetime64])

    @staticmethod
    def at_fit(until: Mapping[str, np.generic], fit: np.datetime64 | None = None) -> "Ends":
        """Return the ends at the first fit of the series that have dates.

        - ``until``: the time of the last row that each series learned from
        - ``fit``: the latest time of any series at the first fit, if the model was updated since
        """
        then = {name: time for name, time in until.items() if isinstance(time, np.datetime64)}
        return Ends(then if fit is None else {name: min(time, fit) for name, time in then.items()})

    @functools.cached_property
    def counts(self) -> Mapping[str | None, Counter[np.datetime64]]:
        """The number of series by end, for each exchange; counted once for all parts of a panel."""
        counts: dict[str | None, Counter[np.datetime64]] = {}
        for name, last in self.of.items():
            counts.setdefault(exchange_of(name), Counter())[last] += 1
        return counts


def find_late(
    panel: Panel,
    end: Date | None = None,
    stored: Ends = Ends(),
    fitted: Callable[[], Ends] = Ends,
) -> Iterator[Finding]:
    """Yield the series that lack sessions; ``rows`` of a finding is their number.

    - ``late``: sessions that are over, so that its forecasts begin with days that are past, or that
      most other series have. A session is over half an hour after the close of New York's exchange.
      For series that do not keep its holidays it is over when the next session begins, and up to
      two missing sessions count as holidays. Series that count steps are never late
    - ``behind``: most other series of the same exchange and frequency have them
    - ``ended``: it was behind at the fit already and has had no row since, so its end was known
      when the model was trained. Never for prices, since a forecast needs today's price

    - ``end``: the last day that is over; None: until now
    - ``stored``: the ends of all stored series; one of the panel that is not there is retired
    - ``fitted``: returns the ends of all series at the fit; called only if they are needed
    """
    ends = {name: times[-1] for name, times in panel.times_of_rows().items()}
    # Whichever day of the month their rows are on.
    own = panel.of_times(functools.partial(own_frequency, usual=panel.frequency))
    found = [dataclasses.replace(one, day=0) for one in own]
    kinds = dict(zip(panel.ids, found, strict=True))
    unit = "session" if panel.frequency.nyse else "step"
    behind = _behind(ends, kinds, stored)
    missed = functools.cache(_missed)  # most calls repeat an earlier one
    ended: set[str] = set()
    if behind and panel.target == "y":  # of all series of the fit, whichever are asked for
        fit = fitted()
        then = {name: fit.of[name] for name in ends if name in fit.of}
        ended = {name for name in _behind(then, kinds, fit) if ends[name] <= then[name]}
    for name, last in ends.items():
        since = behind.get(name, 0)
        count = max(missed(kinds[name], last, end), since)
        late, lacks = (f"{n:,} {unit}{'' if n == 1 else 's'} behind" for n in (count, since))
        if count:
            yield Finding("late", name, f"ends {show_time(last)}, {late}", count)
        if since and name in ended:
            yield Finding("ended", name)
        elif since and (name in stored.of or not stored.of):
            yield Finding("behind", name, f"{lacks}, since {show_time(last)}", since)


def _missed(frequency: Frequency, last: np.datetime64, end: Date | None) -> int:
    """Count the sessions after ``last`` that are over."""
    if end is not None:
        return frequency.elapsed(last, end_of_day(end))
    if frequency.nyse and frequency.hours is None:
        return frequency.elapsed(last, last_closed(None, pd.Timestamp.now("UTC"), _NEW_YORK))
    missed = frequency.elapsed(last, pd.Timestamp.now()) - 1
    return missed if missed > _UNKNOWN else 0


def _behind(
    ends: Mapping[str, np.datetime64], frequencies: Mapping[str, Frequency], others: Ends
) -> dict[str, int]:
    """Return the number of sessions by which series end before most others of their kind.

    Series of one kind have the same exchange and frequency; those that are not behind are left out.

    ``others``: the ends of further series, of any frequency; any ends there of the series in
    ``ends`` are not used
    """
    kinds: dict[tuple[Frequency, str | None], dict[str, np.datetime64]] = {}
    for name, last in ends.items():
        kinds.setdefault((frequencies[name], exchange_of(name)), {})[name] = last
    own = [name for name in ends if name in others.of]
    behind: dict[str, int] = {}
    for (frequency, exchange), its in kinds.items():
        every = Counter(its.values())
        every.update(others.counts.get(exchange, {}))
        every.subtract(others.of[name] for name in own if exchange_of(name) == exchange)
        usual = statistics.median_high(every.elements())
        counts = {last: frequency.elapsed(last, usual) for last in set(its.values())}
        behind |= {name: counts[last] for name, last in its.items() if counts[last]}
    return behind
