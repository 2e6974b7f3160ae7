"""Find series whose dates are not regular, whose latest row is odd, or that have no latest row."""

import dataclasses
import functools
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import pandas as pd
from jaxtyping import Shaped

from forecaster.series.calendar.exchanges import exchange_of, last_closed
from forecaster.series.calendar.frequency import Frequency
from forecaster.series.calendar.gaps import in_words, spacing_of
from forecaster.series.calendar.inferring import next_times, odd_rows, own_frequency
from forecaster.series.calendar.times import Date, end_of_day, show_time
from forecaster.series.findings.finding import Finding
from forecaster.series.panel.panel import Panel

_FEW_ODD = 0.1  # share of rows that may be at other times than their frequency says
_BEGINS = ("MS", "QS", "YS", "BMS", "BQS", "BYS")  # aliases of first days of periods
_SHORTEST = pd.Timedelta(days=6)  # between rows of periods
_FIRST_DAYS = 3  # the first weekday of a month is one of these

# Maximum sessions in a row that may be holidays of an exchange with an unknown calendar.
_UNKNOWN = 2
_NEW_YORK = "America/New_York"


def of_dates(
    times: Shaped[np.ndarray, " row"], usual: Frequency, *, of_values: bool
) -> dict[str, str]:
    """Return what is to be said of the times of a series, by the kind of finding.

    - ``times``: sorted and unique
    - ``usual``: the frequency of the panel. Where it is stated, odd rows were named when they were
      read
    - ``of_values``: whether the series is of values, not of prices: it then may also end with a
      period that is not over
    """
    frequency, found = own_frequency(times, usual), dict[str, str]()
    odd = np.zeros(len(times), bool) if frequency.stated else odd_rows(times)
    if odd.sum() > _FEW_ODD * len(odd):
        step = in_words(spacing_of(times))
        said = f"{1 - odd.mean():.0%} of its rows fit steps of {step}"
        found["irregular"] = "; ".join(filter(None, (said, frequency.option)))
    elif odd[-1:].any():
        said = f"{show_time(times[-1])}; next {show_time(next_times(times, 1)[0])}"
        found["odd"] = "; ".join(filter(None, (said, frequency.option)))
    if of_values and (until := running(times, frequency)) is not None:
        found["running"] = until
    return found


def running(times: Shaped[np.ndarray, " row"], frequency: Frequency) -> str | None:
    """Return what is said of a latest row whose period is not over yet; None where it is.

    A row on the first day of a month, or on the first weekday of one in a series of these, is that
    of the month, quarter or year that begins there, and one on a Monday that of its week. Any other
    row is taken to be named by the end of its period, which is not over if that lies in the future.
    """
    if times.dtype.kind != "M" or len(times) < 2:
        return None
    now, (before, last) = pd.Timestamp.now(), map(pd.Timestamp, times[-2:])
    # Rows of the future are invented.
    if before > now or last - before < _SHORTEST or now - last > 2 * (last - before):
        return None
    until, kind = last.normalize(), frequency.base[1]
    first_days = kind == "months" and (pd.DatetimeIndex(times).day <= _FIRST_DAYS).all()
    if frequency.alias == "W-MON" or kind in _BEGINS or first_days:
        until = pd.Timestamp(frequency.after(last, 1)[0]).normalize()
        until = until if kind == "W" else until.replace(day=1)
    if now >= until:
        return None
    return (
        f"dated {show_time(last)}, not over before {show_time(until)}; --end "
        f"{(last - pd.Timedelta(days=1)).date()} leaves it out"
    )


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
