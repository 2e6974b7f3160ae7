"""The interface of a source of series, and sources that are read as a whole.

A series that lacks stored rows may have been cut, or may hold the latest day only. One with rows
that are dated in the future, as by a wrong year, is refused.
"""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple, Protocol, TypeAlias

import numpy as np
import pandas as pd

from forecaster.errors import DataError, Kind, hint_of_zeros, listed, spelled, spellings, warn
from forecaster.ingest.tables.file_reader import join
from forecaster.ingest.tables.roles import TARGETS
from forecaster.series import Date, repeated_at, show_time, spaced_otherwise, spacing_of

Lost: TypeAlias = Literal["suspect", "keep", "replace"]
"""What becomes of a series that lacks stored rows: the stored series is kept and the source's
rejected; the source's rows are added to the stored ones; or they take the place of all stored."""
VANISHED = (
    "no longer in the source. If no more rows are to come, `forecaster tickers retire` says so"
)
"""The reason of a series that the source held before."""
TOO_SHORT = "the folder lacks stored rows of it, and holds a file that cannot be read"
"""The reason of a series that may lack the rows of a damaged file."""
_VALUES = ("close", "y")  # without a number here a row says nothing

_MANY = 20  # fewest rows in the future that are meant to be there, as in invented data
_TIMEZONES = pd.Timedelta(days=1)
_FUTURE = "holds rows in the future"


class Fetched(NamedTuple):
    """One series, or the reason why there is none.

    - ``frame``: ``unique_id, ds, channels...``, sorted by ``ds``; None: see the next three fields
    - ``reason``: why the series could not be fetched
    - ``unchanged``: the stored series is up to date
    - ``suspect``: the source contradicts the stored series, which is kept
    - ``kept``: the times of the frame's rows that come from the store; None: of none
    """

    unique_id: str
    frame: pd.DataFrame | None
    reason: str | None = None
    unchanged: bool = False
    suspect: bool = False
    kept: pd.Series | None = None


class Stored(NamedTuple):
    """A stored series.

    ``asked_from``: the earliest date that was requested so far; None: all history.
    """

    frame: pd.DataFrame
    asked_from: str | None


Known: TypeAlias = Callable[[str], Stored | None]
"""Returns the stored series of a ticker, or None."""


class Source(Protocol):
    """A source of series, each as a long frame of its own."""

    name: str

    def tickers(self) -> list[str]:
        """Return all series the source holds. Raises UsageError if it has no list of them."""
        ...

    def fetch(
        self, tickers: Sequence[str], start: Date | None = None, known: Known | None = None
    ) -> Iterator[Fetched]:
        """Yield each series once, in order of arrival: all of it, or its rows from ``start`` on.

        ``known(ticker)``: the stored series, for sources that fetch only missing rows. A series
        that cannot be fetched is yielded with the reason. Raises an error only if the source as a
        whole does not work.
        """
        ...

    def fingerprint(self) -> str | None:
        """Return a hash that changes with the source's content; None if only fetching shows it."""
        ...


class Whole:
    """A source of which each series is fetched as a whole, and compared with the stored one.

    - ``where``: its name in the reasons of series that it lacks
    - ``lost``: what becomes of a series that lacks stored rows; None: the source is not compared
    - ``frequency``: the step of rows as the caller states it; None: it shows in the rows
    - ``unreadable``: whether a part of it could not be read; stored rows never give way then
    """

    name: str
    where: object
    lost: Lost | None
    frequency: str | None = None
    unreadable: bool = False
    coming: int = 0  # rows in the future without a value

    def read(self) -> tuple[Mapping[str, pd.DataFrame], Mapping[str, str]]:
        """Read all series by name, and why others cannot be used; it is called once."""
        raise NotImplementedError

    @functools.cached_property
    def series(self) -> tuple[Mapping[str, pd.DataFrame], Mapping[str, str]]:
        """What was read."""
        return self.read()

    def tickers(self) -> list[str]:
        """Return all series the source holds, also those that cannot be used."""
        frames, failed = self.series
        return [*frames, *failed]

    def fingerprint(self) -> str:
        """Return a hash that changes with the source's content."""
        raise NotImplementedError

    def rows(self, tickers: Sequence[str]) -> Iterator[Fetched]:
        """Yield each series as the source has it, in any spelling of its name."""
        frames, failed = self.series
        names = spellings([*frames, *failed])  # the files may spell ``BRK-B`` ``brk.b``
        for name in tickers:
            if (series := spelled(names, name)) is None:
                yield Fetched(name, None, f"not in {self.where}{hint_of_zeros(names, [name])}")
            elif why := failed.get(series) or repeated_time(frames[series]):
                yield Fetched(name, None, why)
            else:
                frame = frames[series]
                same = frame["unique_id"].iloc[0] == name
                yield Fetched(name, frame if same else frame.assign(unique_id=name))

    def fetch(
        self, tickers: Sequence[str], start: Date | None = None, known: Known | None = None
    ) -> Iterator[Fetched]:
        """Yield each series as a whole; ``start`` is ignored. See :class:`Source`."""
        self.coming = 0
        for item in self.rows(tickers):
            yield self.compared(item, known)
        if self.coming:
            warn(f"{self.where}: {self.coming} rows of coming days without a value are left out")

    def compared(self, item: Fetched, known: Known | None) -> Fetched:
        """Return a series of the source, unless it lacks stored rows that it should not lack.

        One with rows in the future is refused, unless they have no value: those are left out.
        """
        name, frame = item.unique_id, item.frame
        if frame is None or self.lost is None:
            return item
        if (later := _in_future(frame["ds"].to_numpy())).any():
            if not later.all():
                frame = frame[~later | _with_value(frame)]
                self.coming += len(later) - len(frame)
                item = item._replace(frame=frame)
            if why := why_future(frame["ds"].to_numpy()):
                return Fetched(name, None, why, suspect=True)
        keeps_nothing = self.lost == "replace" and not self.unreadable
        stored = None if known is None or keeps_nothing else known(name)
        if stored is None or (rows := _lost_from(stored.frame, frame)).empty:
            return item
        if self.lost == "keep":
            try:
                joined = join([rows, frame[~frame["ds"].isin(rows["ds"])]])
            except DataError as error:
                why = (
                    f"it cannot be added to the stored rows: {error}. `ingest --refresh` with the "
                    "whole history, written alike, replaces them"
                )
                return Fetched(name, None, why, suspect=True)
            if why := _why_apart(frame, stored.frame):
                return Fetched(name, None, why, suspect=True)
            return Fetched(name, joined, kept=rows["ds"])
        why = TOO_SHORT if self.unreadable else _why_suspect(rows, stored.frame)
        return Fetched(name, None, why, suspect=True)


def _why_apart(frame: pd.DataFrame, stored: pd.DataFrame) -> str | None:
    """Say why rows cannot be added to the stored ones of their series; None if they can."""
    targets = [[name for name in TARGETS if name in table] for table in (frame, stored)]
    if not set(targets[0]) & set(targets[1]):
        new, old = (listed(map(repr, names)) for names in targets)
        return f"it holds {new}, the stored rows {old}; name the target alike"
    times, known = frame["ds"].to_numpy(), stored["ds"].to_numpy()
    if len(times) and times[0] > known[-1]:
        times = np.concatenate([known[-1:], times])  # the gap between both counts, too
    if why := spaced_otherwise(times, spacing_of(known), "the stored ones"):
        return f"{why}; give them a series of their own, or `ingest --refresh` replaces all rows"
    return None


def repeated_time(frame: pd.DataFrame) -> str | None:
    """Say which time a series, sorted by time, has twice; None for none."""
    times = frame["ds"].to_numpy()
    if not (repeated := times[1:] == times[:-1]).any():
        return None
    found = repeated_at(times[1:][repeated][0])
    why = str(found)
    if frame.duplicated().sum() == repeated.sum():
        why += "; its rows are equal in what is read of them"
    elif found.kind is Kind.REPEATED_HOUR:
        return why
    elif repeated.sum() > 1:
        why += f", and {repeated.sum() - 1:,} more such rows"
    return (
        f"{why}: keep one, or name the columns that tell series apart, such as --columns "
        "id=store+item (in Python id_col=), or the hours, as time=day+hour (time_col=)"
    )


def _lost_from(stored: pd.DataFrame, latest: pd.DataFrame) -> pd.DataFrame:
    """Return the stored rows with a value that the source has no value for any more."""
    if stored.empty:
        return stored
    stored = stored[_with_value(stored)]
    return stored[~stored["ds"].isin(latest["ds"][_with_value(latest)])]


def _why_suspect(lost: pd.DataFrame, stored: pd.DataFrame) -> str:
    """Say what a series of files lacks, and what to do if that is meant."""
    first, last = show_time(lost["ds"].iloc[0]), show_time(lost["ds"].iloc[-1])
    span = first if first == last else f"{first} to {last}"
    return (
        f"lacks {len(lost):,} of the {len(stored):,} stored rows ({span}). If that is meant, "
        "`ingest --append` adds its rows to the stored ones, `ingest --refresh` replaces them"
    )


def is_shrunk(reason: str) -> bool:
    """Return whether a series was not updated because the source lacks stored rows of it."""
    return reason == TOO_SHORT or (reason.startswith("lacks ") and " stored rows (" in reason)


def is_vanished(reason: str) -> bool:
    """Return whether a series was not updated because the source no longer has it."""
    return reason == VANISHED or reason.startswith("not in ")


def _with_value(frame: pd.DataFrame) -> pd.Series:
    column = next((name for name in _VALUES if name in frame), "ds")
    return frame[column].notna()


def why_future(times: np.ndarray) -> str | None:
    """Say which times of a series are in the future, as by a wrong year; None for none.

    Twenty or more are meant, and so is a series that has no others.
    """
    later = times[_in_future(times)]
    if not 0 < len(later) < min(_MANY, len(times)):
        return None
    last = f" to {show_time(later[-1])}" if len(later) > 1 else ""
    return f"{_FUTURE} ({show_time(later[0])}{last}); correct them in the source, or leave them out"


def _in_future(times: np.ndarray) -> np.ndarray:
    """Return which times of a series are in the future, (row,).

    A time is if it is later than tomorrow, and by more than one step, since the last step may be
    named by its end.
    """
    if times.dtype.kind != "M" or len(times) < 2:
        return np.zeros(len(times), bool)
    ahead = max(_TIMEZONES, pd.Timedelta(seconds=spacing_of(times)))
    return times > (pd.Timestamp.now() + ahead).to_datetime64()


def is_of_future(reason: str) -> bool:
    """Return whether a series was refused since it holds rows that are dated in the future."""
    return reason.startswith(_FUTURE)
