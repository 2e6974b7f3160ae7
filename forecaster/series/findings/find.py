"""Find what a user should know of a panel's series.

A finding is a value, so that parts of a panel can be searched one after another. Latest rows are
judged since forecasts rest on them most: a wrong one moves all. Prices have flags for this
(:mod:`forecaster.ingest.review.quality`).
"""

import functools
from collections.abc import Iterator
from typing import TypeAlias

import numpy as np
from jaxtyping import Float, Shaped

from forecaster.errors import DataError
from forecaster.series.calendar.inferring import own_frequency
from forecaster.series.calendar.seasons import seasons_of
from forecaster.series.calendar.times import show_time
from forecaster.series.findings.finding import Finding, first
from forecaster.series.findings.latest import of_dates
from forecaster.series.panel.covariates import Future
from forecaster.series.panel.panel import Panel

Rows: TypeAlias = Float[np.ndarray, " row"]

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
