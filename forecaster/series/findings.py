"""What a user should know of the series of a panel, found and said in one sentence of each kind.

A finding is a value, so that parts of a panel can be searched one after another. Latest rows are
judged since forecasts rest on them most: a wrong one moves all. Prices have flags for this
(:mod:`forecaster.ingest.review.quality`). Series whose latest rows are missing are found by
:func:`forecaster.series.find_late`.
"""

import dataclasses
import functools
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

import numpy as np
import pandas as pd
from jaxtyping import Float, Shaped

from forecaster.errors import DataError, ForecasterWarning, printable
from forecaster.series.calendar.frequency import Frequency
from forecaster.series.calendar.inferring import next_times, odd_rows, own_frequency
from forecaster.series.calendar.spacing import seasons_of, spacing_of, span_in_words
from forecaster.series.calendar.times import show_time
from forecaster.series.panel.covariates import Future
from forecaster.series.panel.panel import Panel

_GROUPS, _NAMED = 3, 8  # in a sentence: series of which the same is said, and how many of them
_WORDS = {
    "irregular": (
        "the rows of {some} come at no regular times",
        "So each step ahead is a row, and the dates of forecasts are guesses, unless `ingest` or "
        "`fit` reads the rows with --frequency, as named or D for days. If no row means "
        "zero, add them up by hours (h), days (D), weeks (7D) or months (MS) first, in pandas: "
        "wide = frame.pivot_table(index='ds', columns='unique_id', values='y', aggfunc='sum')"
        ".resample('D').sum(min_count=1); filled = wide.fillna(0).where(wide.ffill().notna())",
    ),
    "odd": (
        "the latest row of {some} is at another time than the rows before",
        "Forecasts go on by the rule of the others, which --frequency states for good. If the row "
        "is of a period that is not over, leave it out",
    ),
    "running": (
        "the latest row of {some} is of a period that is not over",
        "It counts as the value of the whole period; if it is not, leave it out",
    ),
    "far": (
        "the latest row of {some} is farther from what was expected than any row before",
        "Forecasts take it as it is: if the value is an error, correct it in the source; if it is "
        "meant, the next rows will confirm it",
    ),
    "resized": (
        "the latest rows of {some} are of another size than all rows before",
        "Forecasts and bands are learned from both sizes. If the unit has changed, multiply the "
        "earlier rows in the source, and read them again",
    ),
    "zeros": (
        "the latest rows of {some} are the first zeros",
        "Forecasts may rise again. Closed? Retire them (`forecaster tickers retire`); if the "
        "zeros mean that nothing is known yet, leave these rows out",
    ),
    "dip": (
        "the past of {some} holds a dip of a season or more",
        "A blend of components counts these rows as missing: season and bands are those of the "
        "others",
    ),
    "unmatched": (
        "future covariates: no number at past rows of {some}",
        "There they count as average, so that little of their effect is learned. Give a number at "
        "every row: fill or interpolate the file (in pandas, "
        "frame.set_index('ds').resample('h').interpolate() for hours). The times must be equal to "
        "those of the series, to the second",
    ),
    "missed": (
        "future covariates: events of {count} series fall on no row, so they count nowhere",
        "Write the time of the row that each of them moves: a session, without a time of day if "
        "rows have none",
    ),
    "stopped": (
        "future covariates: events of {count} series have stopped coming, the latest are",
        "List those to come, too: without them none is expected",
    ),
    "placeholder": (
        "numbers that may stand for missing ones, as no other is below zero: {count} series",
        "They are learned from as they are; leave these cells empty if the numbers are not known",
    ),
    "unconfirmed": ("{count} series jumped at the latest row, which may be an error", ""),
}
# Of stored series, which a command names itself.
_STORED = {
    "retired": ("{count} series {are} retired and not forecast", ""),
    "unadjusted": (
        "prices before a session look unadjusted: {count} series",
        "`forecaster adjust` lists the proposals and applies them; till then bands are wide",
    ),
    "jumped": (
        "{count} series jumped on the latest session, without a split or dividend",
        "If that price is wrong, so is the forecast; the next session will tell",
    ),
    "frozen": (
        "the price of {count} series is the same since the day in brackets",
        "If there is no trade, or the data are no longer brought up to date, bands are too narrow",
    ),
    "late": ("the data of {some} are stale", ""),
    "behind": (
        "{some} {end} before the others, so that forecasts begin with days that are past",
        "`forecaster tickers retire` says that no more rows are to come",
    ),
    "constant": ("{count} series never changed, so that bands have hardly any width", ""),
    "ended": ("{count} series had ended before the fit; each is forecast from its end", ""),
}
# These say more.
_INSTEAD = {"late": ("behind", "ended"), "jumped": ("unadjusted",), "constant": ("frozen",)}


@dataclasses.dataclass(frozen=True)
class Finding:
    """What was found in a series.

    - ``kind``: a word for all findings that are said together
    - ``name``: the series
    - ``said``: what is said of this series, in few words
    - ``rows``: the number of its rows that this is about
    """

    kind: str
    name: str
    said: str = ""
    rows: int = 0

    @property
    def of_latest(self) -> bool:
        """Whether it says that the latest rows may be wrong, which matters to forecasts alone."""
        return self.kind in ("far", "resized", "zeros")

    @property
    def of_stored(self) -> bool:
        """Whether it is about a series of the store, and not about the rows of a panel."""
        return self.kind in _STORED


def say_findings(found: Sequence[Finding], count: int) -> None:
    """Warn once of each kind of finding; ``count``: the number of all series."""
    for sentence in findings_in_words([one for one in found if not one.of_stored], count).values():
        # From here, so that a fit and the forecasts after it say it once.
        warnings.warn(sentence, ForecasterWarning, stacklevel=1)


def findings_in_words(found: Sequence[Finding], count: int) -> dict[str, str]:
    """Return a sentence for each kind of finding; ``count``: the number of all series."""
    sentences: dict[str, str] = {}
    for kind, (before, after) in (_WORDS | _STORED).items():
        said = {one.name for one in found if one.kind in _INSTEAD.get(kind, ())}
        if ones := [one for one in found if one.kind == kind and one.name not in said]:
            are, end = ("is", "ends") if len(ones) == 1 else ("are", "end")
            some = f"{len(ones)} of {count} series"
            text = before.format(some=some, count=len(ones), are=are, end=end)
            sentences[kind] = f"{text}: {_in_short(ones)}" + (f". {after}" if after else "")
    return sentences


def _in_short(ones: Iterable[Finding]) -> str:
    """Return some series with what is said of them, and how many more there are."""
    alike: dict[str, list[str]] = {}
    for one in ones:
        alike.setdefault(one.said, []).append(printable(one.name, lines=False))
    groups = [
        first(names, _NAMED) + (f" ({said})" if said else "") for said, names in alike.items()
    ]
    return first(groups, _GROUPS, sum(map(len, list(alike.values())[_GROUPS:])))


def first(texts: Sequence[str], most: int = _GROUPS, more: int | None = None) -> str:
    """Return the first texts, and how many ``more`` there are, by default those left out."""
    more = len(texts) - most if more is None else more
    return ", ".join([*texts[:most], *([f"and {more:,} more"] if more > 0 else [])])


Rows: TypeAlias = Float[np.ndarray, " row"]

_FEW_ODD = 0.1  # share of rows that may be at other times than their frequency says
_BEGINS = ("MS", "QS", "YS", "BMS", "BQS", "BYS")  # aliases of first days of periods
_SHORTEST = pd.Timedelta(days=6)  # between rows of periods
_FIRST_DAYS = 3  # the first weekday of a month is one of these

_CODES = (-99.0, -999.0, -9999.0, -99999.0, -999999.0)
_FEW = 0.05  # share of a series' rows that may lack a number of a covariate without a word

_FEWEST_GAPS = 3  # between events, which then tell how often they come
_TOO_LONG = 1.5  # usual gaps without an event, after which a list seems to have ended

# Chosen on M1, NN3, NN5, M4 weekly and hourly, random walks, and noise with heavy tails: of each of
# these sets, over twelve cutoffs, at most 0.4 % of the series are named.
_FAR = 6.0  # deviations of the errors before
_BEYOND = 1.25  # of the largest error before
_LEAST_DEVIATION = 0.01  # as a share of the level, for series that hardly ever change
_FEWEST = 12  # rows before, to know what is usual
_MEANS = (3, 8)  # rows of the running means
_ERRORS = 8  # fewest errors that a way of forecasting is judged by
_GAP, _JUMP = 3.0, 20.0  # of the rows on both sides of a jump: between nearest ones, and medians


def findings_of(panel: Panel, *, forecasting: bool = False) -> list[Finding]:
    """Return what a user should know of a panel's series.

    ``forecasting``: whether they are only forecast from; what matters to a fit is then left out.
    Raises DataError where covariates have no number at any row of a fit.
    """
    of_values = panel.target == "y"
    of_panel = functools.partial(of_dates, usual=panel.frequency, of_values=of_values)
    dated = panel.of_times(of_panel)
    found = [Finding(kind, name, said, 1) for name, its in zip(panel.ids, dated, strict=True)
             for kind, said in its.items()]  # fmt: skip
    found += events(panel)
    if of_values:
        found += latest(panel, forecasting=forecasting)
    if not forecasting:
        return [*found, *unmatched(panel), *placeholders(panel)]
    # A series that jumped at its latest row is forecast from that all the same.
    unconfirmed = panel.flagged() & ~panel.flagged(forecasting=True)
    jumped = np.flatnonzero(unconfirmed.any(1))
    return [*found, *(Finding("unconfirmed", panel.ids[row]) for row in jumped)]


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
        step = span_in_words(spacing_of(times))
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


def placeholders(panel: Panel) -> Iterator[Finding]:
    """Yield the series that hold -99, -999 or the like, and no other number below zero."""
    values = panel.channel(panel.target)
    seen = panel.mask & np.isfinite(values)
    least = np.where(seen, values, np.inf).min(1, initial=np.inf)
    for row in np.flatnonzero(np.isin(least, _CODES)):
        own = values[row][seen[row]]
        has_it = own == least[row]
        if (own[~has_it] >= 0).all() and not has_it.all():
            rows = int(has_it.sum())
            yield Finding("placeholder", panel.ids[row], f"{least[row]:g}: {rows}", rows)


def unmatched(panel: Panel) -> Iterator[Finding]:
    """Yield the series at whose past rows a covariate known ahead has no number.

    A list of events has numbers everywhere. Rows before the first or after the last number of a
    covariate do not count. Raises DataError where no covariate has a number at any row.
    """
    future = panel.future
    if future is None or future.otherwise == 0:
        return
    matched = False
    for name, own in panel.times_of_rows().items():
        known, said = np.isfinite(future.at(name, own)), list[str]()
        times, values = future.rows_of(name)
        for column, has, numbers in zip(future.columns, known.T, values.T, strict=True):
            if not len(its := times[np.isfinite(numbers)]):
                continue
            inside = (own >= its[0]) & (own <= its[-1])
            lacking = inside & ~has
            if lacking.sum() > _FEW * inside.sum():
                time, share = show_time(own[lacking.argmax()]), lacking.sum() / inside.sum()
                said.append(f"{column!r} at {share:.0%}, such as {time}")
        if said:
            yield Finding("unmatched", name, "; ".join(said))
        matched |= bool(known.any())
    if not matched:
        name, own = next(iter(panel.times_of_rows().items()))
        times, _ = future.rows_of(name)
        nearest = show_time(times[np.abs(times - own[0]).argmin()])
        raise DataError(
            f"future covariates: no row of the series has a number of {future.columns[0]!r}: "
            f"{name} has a row at {show_time(own[0])}, and the nearest time of the covariate is "
            f"{nearest}. "
            "A network learns from past rows: give the covariate at them too, at exactly the same "
            "times, to the second (in pandas, round both columns: ds.dt.round('h'))"
        )


def events(panel: Panel) -> Iterator[Finding]:
    """Yield the series of which listed events fall between rows, or have stopped coming."""
    if panel.future is None or panel.future.otherwise != 0:
        return
    for name, own in panel.times_of_rows().items():
        yield from missed_events(panel.future, name, own)
        times, _ = panel.future.rows_of(name)
        gaps = np.diff(times)
        if len(gaps) >= _FEWEST_GAPS and own[-1] - times[-1] > _TOO_LONG * np.median(gaps):
            yield Finding("stopped", name, show_time(times[-1]))


def missed_events(future: Future, name: str, rows: Shaped[np.ndarray, " row"]) -> Iterator[Finding]:
    """Yield a finding if listed events of a series fall between the times of some rows."""
    times, _ = future.rows_of(name)
    if future.otherwise == 0 and len(times):
        inside = times[(times > rows[0]) & (times < rows[-1])]
        if len(missed := inside[~np.isin(inside, rows)]):
            said = first([*map(show_time, missed)])
            yield Finding("missed", name, said, len(missed))


def latest(panel: Panel, *, forecasting: bool = True) -> Iterator[Finding]:
    """Yield series of values whose latest rows may be errors, or in another unit, or all zeros.

    Counts, series of few rows and those that are mostly zero are left out: they are often zero or
    far off.

    ``forecasting``: False: also those that hold a dip, see :func:`dip_of`
    """
    # Here, so that prices do without classical models.
    from forecaster.series.combination.counts import are_counts
    from forecaster.series.combination.nature import dip_of

    for name, (values, times) in zip(panel.ids, panel.rows(), strict=True):
        if not len(values) or (values == 0).mean() > 0.5 or are_counts(values):
            continue
        seasons = seasons_of(own_frequency(times, panel.frequency), values)
        if len(values) > _FEWEST:
            yield from _latest(name, values, times, seasons)
        if not forecasting and (rows := dip_of(values, seasons)) is not None:
            said = f"{show_time(times[rows[0]])} to {show_time(times[rows[-1]])}"
            yield Finding("dip", name, said, len(rows))


def _latest(
    name: str, values: Rows, times: Shaped[np.ndarray, " row"], seasons: tuple[int, ...]
) -> Iterator[Finding]:
    """Yield what is found in the latest rows of a series, see :func:`latest`."""
    ending = len(values) - 1 - int(np.flatnonzero(values)[-1])
    if ending > 1:
        if (values[:-ending] > 0).all():
            yield Finding("zeros", name, f"{ending} since {show_time(times[-ending])}", ending)
    elif (expected := _expected_if_far(values, seasons)) is not None:
        value = f"{_number(values[-1])}, expected about {_number(expected)}"
        yield Finding("far", name, f"{show_time(times[-1])}: {value}", 1)
    elif (row := _jumped_at(values)) is not None:
        ratio = float(np.median(values[row:]) / np.median(values[:row]))
        times_ = f"{_number(ratio)} times" if ratio >= 1 else f"1/{_number(1 / ratio)}"
        said = f"since {show_time(times[row])} about {times_} of before"
        yield Finding("resized", name, said, len(values) - row)


def _jumped_at(values: Rows) -> int | None:
    """Return the row since which all values are of another size than those before; else None.

    There are two rows or more since then, and fewer than before.
    """
    if not (values > 0).all():
        return None
    z = np.log(values)
    largest, smallest = np.maximum.accumulate(z)[:-1], np.minimum.accumulate(z)[:-1]
    largest_since = np.maximum.accumulate(z[::-1])[::-1][1:]
    smallest_since = np.minimum.accumulate(z[::-1])[::-1][1:]
    gap = np.maximum(smallest_since - largest, smallest - largest_since)
    before = np.arange(1, len(z))
    since = len(z) - before
    gap[(before < _FEWEST) | (since < 2) | (since >= before)] = 0.0
    row = 1 + int(np.argmax(gap))
    jump = abs(float(np.median(z[row:]) - np.median(z[:row])))
    return row if gap[row - 1] > np.log(_GAP) and jump > np.log(_JUMP) else None


def _expected_if_far(values: Rows, seasons: tuple[int, ...]) -> float | None:
    """Return what was expected in place of the latest value if it is far from that; else None.

    It is expected as the simple forecast says whose errors one step ahead were smallest before. It
    is far if the error is many deviations of those before, and clearly larger than any of them.
    """
    logarithmic = bool((values > 0).all())
    z = np.log(values) if logarithmic else values
    least = _LEAST_DEVIATION * (1.0 if logarithmic else float(np.median(np.abs(z[:-1]))))
    with np.errstate(over="ignore", invalid="ignore"):  # of numbers near the largest
        errors = min(_errors(z, seasons), key=lambda errors: float(np.abs(errors[:-1]).mean()))
        before, latest = np.abs(errors[:-1]), abs(float(errors[-1]))
        deviation = max(float(before.mean()) * np.sqrt(np.pi / 2), least)  # as of a normal
        if not (latest > _FAR * deviation and latest > _BEYOND * before.max()):
            return None
        expected = float(z[-1] - errors[-1])
        return float(np.exp(expected)) if logarithmic else expected


def _errors(z: Rows, seasons: tuple[int, ...]) -> Iterator[Rows]:
    """Yield the errors, one step ahead, of simple forecasts; the last is that of the latest row."""
    yield np.diff(z)
    for rows in _MEANS:
        if len(z) > rows + _ERRORS:
            means = np.lib.stride_tricks.sliding_window_view(z[:-1], rows).mean(-1)
            yield z[rows:] - means
    for season in seasons:
        if len(z) > 2 * season + _ERRORS:
            change = z[season:] - z[:-season]
            yield change
            yield np.diff(change)


def _number(value: float) -> str:
    return f"{value:,.0f}" if 1e3 <= abs(value) < 1e12 else f"{value:.4g}"
