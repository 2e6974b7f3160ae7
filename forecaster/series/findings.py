"""Find what a user should know of a panel's series, and say it in one warning of each kind.

A finding is a value, so that parts of a panel can be searched one after another. Latest rows are
judged since forecasts rest on them most: a wrong one moves all. Prices have flags for this
(:mod:`forecaster.ingest.review.quality`).
"""

import contextlib
import dataclasses
import warnings
from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import TypeAlias

import numpy as np
import pandas as pd
from jaxtyping import Float, Shaped

from forecaster.errors import DataError, ForecasterWarning, printable
from forecaster.series.calendar.frequency import infer_frequency, odd_rows, usual_spacing
from forecaster.series.calendar.seasons import find_seasons, usual_seasons
from forecaster.series.calendar.times import show_time
from forecaster.series.combination.counts import are_counts
from forecaster.series.combination.dips import dip_of
from forecaster.series.panel.covariates import Future
from forecaster.series.panel.panel import Panel

Rows: TypeAlias = Float[np.ndarray, " row"]

_GROUPS, _NAMED = 3, 8  # in a sentence: series of which the same is said, and how many of them
_CODES = (-99.0, -999.0, -9999.0, -99999.0, -999999.0)
_FEW_ODD = 0.1  # share of rows that may be on other days than their rule says
_FEW = 0.05  # share of a series' rows that may lack a number of a covariate without a word

_FEWEST_GAPS = 3  # between events, which then tell how often they come
_TOO_LONG = 1.5  # usual gaps without an event, after which a list seems to have ended

# Names of frequencies without the B of business days, also those of older versions of pandas.
_ENDS = ("ME", "M", "QE", "Q", "YE", "A", "SME", "WOM", "LWOM", "months", "W")
_BEGINS = ("MS", "QS", "YS", "AS")
_SHORTEST = pd.Timedelta(days=6)  # between rows of periods
_FIRST_DAYS = 3  # the first weekday of a month is one of these

# Chosen on M1, NN3, NN5, M4 weekly and hourly, random walks, and noise with heavy tails: of each of
# these sets, over twelve cutoffs, at most 0.4 % of the series are named.
_FAR = 6.0  # deviations of the errors before
_BEYOND = 1.25  # of the largest error before
_LEAST_DEVIATION = 0.01  # as a share of the level, for series that hardly ever change
_FEWEST = 12  # rows before, to know what is usual
_MEANS = (3, 8)  # rows of the running means
_ERRORS = 8  # fewest errors that a way of forecasting is judged by
_GAP, _JUMP = 3.0, 20.0  # of the rows on both sides of a jump: between nearest ones, and medians

_RECIPE = {"hour": "h", "day": "D", "week": "7D", "month": "MS"}  # how pandas names them
_WORDS = {
    f"missing_{unit}s": (
        f"most {unit}s between the rows of {{some}} are missing",
        f"So each step ahead is a row, not the next {unit}, and dates of forecasts are guesses. If "
        "no row means zero, fill them first, in pandas: wide = frame.pivot_table(index='ds', "
        f"columns='unique_id', values='y', aggfunc='sum').resample('{alias}').sum(min_count=1); "
        "filled = wide.fillna(0).where(wide.ffill().notna())",
    )
    for unit, alias in _RECIPE.items()
} | {
    "irregular": (
        "the dates of {some} follow no rule that nine of ten rows keep",
        "So each step ahead is a row, and the dates of forecasts are guesses",
    ),
    "odd": (
        "the latest row of {some} is on another day than the rows before",
        "Forecasts go on by the rule of the others. If the row is of a period that is not over, "
        "leave it out",
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
}  # fmt: skip
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


class FindingWarning(ForecasterWarning):
    """A warning of what was found in series."""


def findings_of(panel: Panel, *, forecasting: bool = False) -> list[Finding]:
    """Return what a user should know of a panel's series.

    ``forecasting``: whether they are only forecast from; what matters to a fit is then left out
    """
    found = [*missing(panel), *irregular(panel), *running(panel), *latest(panel), *events(panel)]
    if forecasting:
        return [*found, *jumped(panel)]
    return [*found, *dips(panel), *unmatched(panel), *placeholders(panel)]


def say_findings(found: Sequence[Finding], count: int) -> None:
    """Warn once of each kind of finding; ``count``: the number of all series.

    Raises DataError where covariates have no number at any row of any series.
    """
    nowhere = [one for one in found if one.kind == "nowhere"]
    if nowhere and len(nowhere) == count:
        raise DataError(
            f"future covariates: no row of the series has a number of {nowhere[0].said}. "
            "A network learns from past rows: give the covariate at them too, at exactly the same "
            "times, to the second (in pandas, round both columns: ds.dt.round('h'))"
        )
    for sentence in findings_in_words([one for one in found if not one.of_stored], count).values():
        # From here, so that a fit and the forecasts after it say it once.
        warnings.warn(sentence, FindingWarning, stacklevel=1)


def findings_in_words(found: Sequence[Finding], count: int) -> dict[str, str]:
    """Return a sentence for each kind of finding; ``count``: the number of all series."""
    names: dict[str, set[str]] = {}
    for one in found:
        names.setdefault(one.kind, set()).add(one.name)
    sentences: dict[str, str] = {}
    for kind, (before, after) in (_WORDS | _STORED).items():
        said = set[str]().union(*(names.get(other, ()) for other in _INSTEAD.get(kind, ())))
        if ones := [one for one in found if one.kind == kind and one.name not in said]:
            some = f"{len(ones)} of {count} series"
            one = len(ones) == 1
            text = before.format(
                some=some, count=len(ones), are="is" if one else "are", end="ends" if one else "end"
            )
            sentences[kind] = f"{text}: {_in_short(ones)}" + (f". {after}" if after else "")
    return sentences


@contextlib.contextmanager
def findings_said() -> Generator[None]:
    """Say no finding in the block, as all are said elsewhere, for all series together."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=FindingWarning)
        yield


def _in_short(ones: Iterable[Finding]) -> str:
    """Return some series with what is said of them, and how many more there are."""
    alike: dict[str, list[str]] = {}
    for one in ones:
        alike.setdefault(one.said, []).append(_short(one.name))
    groups = [
        _first(names, _NAMED) + (f" ({said})" if said else "") for said, names in alike.items()
    ]
    return _first(groups, _GROUPS, sum(map(len, list(alike.values())[_GROUPS:])))


def _first(texts: Sequence[str], most: int, more: int | None = None) -> str:
    """Return the first texts, and how many ``more`` there are, by default those left out."""
    more = len(texts) - most if more is None else more
    return ", ".join([*texts[:most], *([f"and {more:,} more"] if more > 0 else [])])


def _short(name: str) -> str:
    text = printable(name, lines=False)
    return text if len(text) <= 40 else f"{text[:37]}..."


def jumped(panel: Panel) -> Iterator[Finding]:
    """Yield the series that jumped at their latest row, which is forecast from all the same."""
    unconfirmed = panel.flagged() & ~panel.flagged(forecasting=True)
    for row in np.flatnonzero(unconfirmed.any(1)):
        yield Finding("unconfirmed", panel.ids[row])


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


def missing(panel: Panel) -> Iterator[Finding]:
    """Yield the series of values that lack most of their dates, as sales on days with sales."""
    if panel.target == "y":
        for name, its in zip(panel.ids, panel.of_times(missing_dates), strict=True):
            if its is not None:
                unit, rows, span = its
                yield Finding(f"missing_{unit}s", name, f"{rows:,} rows in {span:,} {unit}s", rows)


def missing_dates(times: Shaped[np.ndarray, " row"]) -> tuple[str, int, int] | None:
    """Return the unit of dates of which there are rows for less than half, the rows, and the span.

    None where there are more, and where half of the gaps or more are alike, as between weeks or
    quarters, whatever else there might be between them; for minutes, few rows, and rows on some
    days of the week, too.

    ``times``: sorted and unique
    """
    days = times.astype("datetime64[D]") if times.dtype.kind == "M" else times[:0]
    if len(days) < 7 or usual_spacing(times) is not None:
        return None
    if (days != times).any():
        hours = times.astype("datetime64[h]")
        span = int((hours[-1] - hours[0]).astype(int)) + 1
        sparse = (hours == times).all() and 2 * len(hours) < span
        return ("hour", len(hours), span) if sparse else None
    if infer_frequency(times).open:
        return None
    index, whole = pd.DatetimeIndex(days), int((days[-1] - days[0]).astype(int))
    if (index.day == index[0].day).all() or index.is_month_end.all():
        unit, span = "month", int(np.diff(days[[0, -1]].astype("datetime64[M]"))[0].astype(int)) + 1
    elif not (np.diff(days).astype(int) % 7).any():
        unit, span = "week", whole // 7 + 1
    else:
        unit, span = "day", whole + 1
    return (unit, len(days), span) if 2 * len(days) < span else None


def irregular(panel: Panel) -> Iterator[Finding]:
    """Yield the series whose dates follow no rule, or whose latest row does not follow theirs."""
    for name, found in zip(panel.ids, panel.of_times(off_rule), strict=True):
        if found is not None:
            yield Finding(found[0], name, found[1], 1)


def off_rule(times: Shaped[np.ndarray, " row"]) -> tuple[str, str] | None:
    """Return the kind of finding where dates follow no rule, and what is said; None where they do.

    ``times``: sorted and unique
    """
    odd = odd_rows(times)
    if not odd.any() or missing_dates(times):
        return None
    if odd.mean() > _FEW_ODD:
        return "irregular", ""
    if not odd[-1]:
        return None
    after = infer_frequency(times).after(times[-1], 1)[0]
    return "odd", f"{show_time(times[-1])}; next {show_time(after)}"


def unmatched(panel: Panel) -> Iterator[Finding]:
    """Yield the series at whose past rows a covariate known ahead has no number.

    A list of events has numbers everywhere. Rows before the first or after the last number of a
    covariate do not count. Where no covariate has any number, the kind is ``nowhere``.
    """
    future = panel.future
    if future is None or future.otherwise == 0:
        return
    shared = None  # where all series have the same covariates, they are looked up once
    if not any(name in future.rows for name in panel.ids):
        shared = np.isfinite(future.at(panel.ids[0], panel.times))
    for name, seen in zip(panel.ids, panel.mask, strict=True):
        own = panel.times[seen]
        known = np.isfinite(future.at(name, own)) if shared is None else shared[seen]
        times, values = future.rows_of(name)
        said: list[str] = []
        for at in np.flatnonzero(~known.all(0)):
            column, its = future.columns[at], times[np.isfinite(values[:, at])]
            some = len(its) > 0 and its.dtype.kind == own.dtype.kind
            inside = (own >= its[0]) & (own <= its[-1]) if some else np.zeros(len(own), bool)
            lacking = inside & ~known[:, at]
            time = own[lacking.argmax()]
            nearest = show_time(its[np.abs(its - time).argmin()]) if some else "none"
            if lacking.sum() > _FEW * inside.sum():
                said.append(
                    f"{column!r} at {lacking.sum() / inside.sum():.0%}, such as {show_time(time)}; "
                    f"the nearest number is of {nearest}"
                )
            if not known.any() and at == 0:
                where = (
                    f"{column!r}: {name} has a row at {show_time(time)}, and the nearest time of "
                    f"the covariate is {nearest}"
                )
                yield Finding("nowhere", name, where)
        if said:
            yield Finding("unmatched", name, "; ".join(said))


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
            said = _first([*map(show_time, missed)], _GROUPS)
            yield Finding("missed", name, said, len(missed))


def running(panel: Panel, now: pd.Timestamp | None = None) -> Iterator[Finding]:
    """Yield the series of values whose latest row is of a period that is not over yet.

    A row on the first day of a month, or on the first weekday of one in a series of these, is that
    of the month, quarter or year that begins there, and one on a Monday that of its week. Any other
    row is taken to be named by the end of its period, which is not over if that lies in the future.

    ``now``: the present time; None: by the clock
    """
    if panel.target != "y" or panel.times.dtype.kind != "M":
        return
    moment = pd.Timestamp.now() if now is None else now
    found = panel.of_times(lambda times: _running(pd.DatetimeIndex(times), moment))
    for name, until in zip(panel.ids, found, strict=True):
        if until is not None:
            yield Finding("running", name, until, 1)


def _running(times: pd.DatetimeIndex, now: pd.Timestamp) -> str | None:
    """Return what is said of a period that is not over; None where it is."""
    if len(times) < 2 or times[-2] > now:  # rows of the future are invented
        return None
    gap = times[-1] - times[-2]
    if gap < _SHORTEST or now - times[-1] > 2 * gap:  # fast path: no period can be running
        return None
    last, frequency = times[-1], infer_frequency(times.to_numpy())
    kind = frequency.base[1].removeprefix("B")
    first_days = kind == "months" and bool((times.day <= _FIRST_DAYS).all())
    if frequency.alias == "W-MON" or kind in _BEGINS or first_days:
        until = pd.Timestamp(frequency.after(last, 1)[0]).normalize()
        until = until if kind == "W" else until.replace(day=1)
    else:
        until = last.normalize() if kind in _ENDS else now
    if now >= until:
        return None
    return (
        f"dated {show_time(last)}, not over before {show_time(until)}; --end "
        f"{(last - pd.Timedelta(days=1)).date()} leaves it out"
    )


def latest(panel: Panel) -> Iterator[Finding]:
    """Yield series of values whose latest rows may be errors, or in another unit, or all zeros.

    Counts, series of few rows and those that are mostly zero are left out: they are often zero or
    far off.
    """
    if panel.target != "y":
        return
    seasons = panel.of_times(_seasons)
    for name, (values, times), known in zip(panel.ids, panel.rows(), seasons, strict=True):
        if len(values) <= _FEWEST or (values == 0).mean() > 0.5 or are_counts(values):
            continue
        ending = len(values) - 1 - int(np.flatnonzero(values)[-1])
        if ending > 1:
            if (values[:-ending] > 0).all():
                yield Finding("zeros", name, f"{ending} since {show_time(times[-ending])}", ending)
        elif (expected := _expected_if_far(values, known)) is not None:
            value = f"{_number(values[-1])}, expected about {_number(expected)}"
            yield Finding("far", name, f"{show_time(times[-1])}: {value}", 1)
        elif (row := _jumped_at(values)) is not None:
            ratio = float(np.median(values[row:]) / np.median(values[:row]))
            times_ = f"{_number(ratio)} times" if ratio >= 1 else f"1/{_number(1 / ratio)}"
            said = f"since {show_time(times[row])} about {times_} of before"
            yield Finding("resized", name, said, len(values) - row)


def dips(panel: Panel) -> Iterator[Finding]:
    """Yield series of values that hold a dip, see :func:`dip_of`."""
    if panel.target != "y":
        return
    seasons = panel.of_times(_seasons)
    for name, (values, times), known in zip(panel.ids, panel.rows(), seasons, strict=True):
        if not len(values) or (values == 0).mean() > 0.5 or are_counts(values):
            continue
        rows = dip_of(values, find_seasons(values) if known is None else known)
        if rows is not None:
            said = f"{show_time(times[rows[0]])} to {show_time(times[rows[-1]])}"
            yield Finding("dip", name, said, len(rows))


def _seasons(times: np.ndarray) -> tuple[int, ...] | None:
    """Return the steps of the usual seasons at some times; None where only values can tell."""
    frequency = infer_frequency(times)
    return None if frequency.alias == "step" else usual_seasons(frequency, times)


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


def _expected_if_far(values: Rows, seasons: tuple[int, ...] | None) -> float | None:
    """Return what was expected in place of the latest value if it is far from that; else None.

    It is expected as the simple forecast says whose errors one step ahead were smallest before. It
    is far if the error is many deviations of those before, and clearly larger than any of them.

    ``seasons``: None: to be found from the values
    """
    logarithmic = bool((values > 0).all())
    z = np.log(values) if logarithmic else values
    least = _LEAST_DEVIATION * (1.0 if logarithmic else float(np.median(np.abs(z[:-1]))))
    with np.errstate(over="ignore", invalid="ignore"):  # of numbers near the largest
        ways = _errors(z, find_seasons(z[:-1]) if seasons is None else seasons)
        errors = min(ways, key=lambda errors: float(np.abs(errors[:-1]).mean()))
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
