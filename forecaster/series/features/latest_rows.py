"""Warn of latest rows that may be errors or in another unit, and of series that may be closed.

Forecasts start from the latest row, so a wrong one moves all of them. Prices have flags for this
(:mod:`forecaster.ingest.review.quality`); this is for other series.
"""

import contextlib
import dataclasses
import warnings
from collections.abc import Generator, Iterable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Float

from forecaster.errors import ForecasterWarning, printable
from forecaster.series.calendar.frequency import infer_frequency
from forecaster.series.calendar.seasons import find_seasons, usual_seasons
from forecaster.series.calendar.times import Time, show_time
from forecaster.series.combination.counts import are_counts
from forecaster.series.panel.panel import Panel

Rows: TypeAlias = Float[np.ndarray, " row"]

# Chosen on M1, NN3, NN5, M4 weekly and hourly, random walks, and noise with heavy tails: of each of
# these sets, over twelve cutoffs, at most 0.4 % of the series are named.
_FAR = 6.0  # deviations of the errors before
_BEYOND = 1.25  # of the largest error before
_LEAST_DEVIATION = 0.01  # as a share of the level, for series that hardly ever change
_FEWEST = 12  # rows before, to know what is usual
_MEANS = (3, 8)  # rows of the running means
_ERRORS = 8  # fewest errors that a way of forecasting is judged by

_FEWEST_JUMPED = 2  # rows since a jump; the first one is a row far from all before
_GAP, _JUMP = 3.0, 20.0  # of the rows on both sides of a jump: between nearest ones, and medians
_FEWEST_ZEROS = 2
_NAMED = 3  # series in a warning
_FAR_WORDS, _ZERO_WORDS = "farther from what was expected than", "never had a zero before"
_JUMP_WORDS = "are of another size than all rows before"


class FarRow(NamedTuple):
    """A latest row that is far from all that came before: its time, its value, the one expected."""

    time: Time
    value: float
    expected: float


class LatestZeros(NamedTuple):
    """The zeros at the end of a series that had none before: their number, and the first's time."""

    rows: int
    since: Time


class Jump(NamedTuple):
    """Since when a series is of another size, and how many times larger it is now than before."""

    since: Time
    ratio: float


@dataclasses.dataclass(frozen=True)
class LatestRows:
    """What the latest rows of series call for.

    - ``far``: by series, the latest row that is far from all that came before
    - ``zeros``: by series, the zeros at the end
    - ``jumps``: by series, the jump of all its latest rows, such as by a change of unit
    - ``count``: the number of all series
    """

    far: Mapping[str, FarRow] = dataclasses.field(default_factory=dict[str, FarRow])
    zeros: Mapping[str, LatestZeros] = dataclasses.field(default_factory=dict[str, LatestZeros])
    jumps: Mapping[str, Jump] = dataclasses.field(default_factory=dict[str, Jump])
    count: int = 0

    @staticmethod
    def of(panel: Panel) -> "LatestRows":
        """Find them in a panel of values; prices, counts and sparse series are left out."""
        if panel.target != "y":
            return LatestRows(count=len(panel.ids))
        seasons = panel.of_times(_seasons)
        far: dict[str, FarRow] = {}
        zeros: dict[str, LatestZeros] = {}
        jumps: dict[str, Jump] = {}
        for name, (values, times), known in zip(panel.ids, panel.rows(), seasons, strict=True):
            if _too_few(values):
                continue
            if (ending := _zeros_at_end(values)) >= _FEWEST_ZEROS:
                if (values[:-ending] > 0).all():
                    zeros[name] = LatestZeros(ending, times[-ending])
            elif (expected := _expected_if_far(values, known)) is not None:
                far[name] = FarRow(times[-1], float(values[-1]), expected)
            elif (row := _jumped_at(values)) is not None:
                ratio = float(np.median(values[row:]) / np.median(values[:row]))
                jumps[name] = Jump(times[row], ratio)
        return LatestRows(far, zeros, jumps, len(panel.ids))

    @staticmethod
    def joined(parts: Iterable["LatestRows"]) -> "LatestRows":
        """Join what was found in parts of a panel."""
        parts = list(parts)
        return LatestRows(
            {name: row for part in parts for name, row in part.far.items()},
            {name: row for part in parts for name, row in part.zeros.items()},
            {name: row for part in parts for name, row in part.jumps.items()},
            sum(part.count for part in parts),
        )


def warn_of_latest_rows(found: LatestRows) -> None:
    """Warn of series whose latest row may be an error, of jumped ones, and of those maybe closed.

    There is one warning of each kind, for all series together.
    """
    if found.far:
        rows = (
            f"{_short(name)} ({show_time(row.time)}: {_number(row.value)}, expected about "
            f"{_number(row.expected)})"
            for name, row in found.far.items()
        )
        _warn(
            f"the latest row of {len(found.far)} of {found.count} series is {_FAR_WORDS} any row "
            f"before: {_first(rows, len(found.far))}. Forecasts start from it: if the value is an "
            "error, correct it in the source; if it is meant, the next rows will confirm it"
        )
    if found.jumps:
        sizes = (
            f"{_short(name)} (since {show_time(its.since)} {_times(its.ratio)} of before)"
            for name, its in found.jumps.items()
        )
        _warn(
            f"the latest rows of {len(found.jumps)} of {found.count} series {_JUMP_WORDS}: "
            f"{_first(sizes, len(found.jumps))}. Forecasts and bands are learned from both sizes. "
            "If the unit has changed, multiply the earlier rows in the source, and read them again"
        )
    if found.zeros:
        ends = (
            f"{_short(name)} ({its.rows} since {show_time(its.since)})"
            for name, its in found.zeros.items()
        )
        _warn(
            f"the latest rows of {len(found.zeros)} of {found.count} series are zeros, and they "
            f"{_ZERO_WORDS}: {_first(ends, len(found.zeros))}. Their forecasts may rise again. "
            "Closed? Retire them (`forecaster tickers retire`); if the zeros mean that nothing is "
            "known yet, leave these rows out"
        )


@contextlib.contextmanager
def latest_rows_said() -> Generator[None]:
    """Give no warning of latest rows in the block, as it is given for all series elsewhere."""
    with warnings.catch_warnings():
        for words in (_FAR_WORDS, _ZERO_WORDS, _JUMP_WORDS):
            warnings.filterwarnings("ignore", rf"the latest rows? of .*{words}", ForecasterWarning)
        yield


def _seasons(times: np.ndarray) -> tuple[int, ...] | None:
    """Return the steps of the usual seasons at some times; None where only values can tell."""
    frequency = infer_frequency(times)
    return None if frequency.alias == "step" else usual_seasons(frequency, times)


def _too_few(values: Rows) -> bool:
    """Return whether values are few, mostly zeros, or counts, which are often zero or far off."""
    sparse = bool((values == 0).mean() > 0.5)
    return len(values) <= _FEWEST or sparse or are_counts(values)


def _zeros_at_end(values: Rows) -> int:
    others = np.flatnonzero(values)
    return len(values) - 1 - int(others[-1]) if len(others) else len(values)


def _jumped_at(values: Rows) -> int | None:
    """Return the row since which all values are of another size than those before; else None.

    The rows since then are fewer than those before.
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
    gap[(before < _FEWEST) | (since < _FEWEST_JUMPED) | (since >= before)] = 0.0
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


def _first(texts: Iterable[str], count: int) -> str:
    """Return the first few of some texts in a line, and how many more there are."""
    shown = [text for text, _ in zip(texts, range(_NAMED), strict=False)]
    more = [f"and {count - len(shown):,} more"] if count > len(shown) else []
    return ", ".join([*shown, *more])


def _times(ratio: float) -> str:
    """Return the size after a jump: 1,000 times, or 1/1,000."""
    return f"about {_number(ratio)} times" if ratio >= 1 else f"about 1/{_number(1 / ratio)}"


def _short(name: str) -> str:
    text = printable(name, lines=False)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _number(value: float) -> str:
    return f"{value:,.0f}" if 1e3 <= abs(value) < 1e12 else f"{value:.4g}"


def _warn(message: str) -> None:
    # From here, so that a fit and the forecasts after it say it once.
    warnings.warn(message, ForecasterWarning, stacklevel=1)
