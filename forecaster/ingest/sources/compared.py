"""Sources that are read as a whole, and what becomes of stored rows that they lack.

A series that lacks stored rows may have been cut, or may hold the latest day only. Rows that are
dated in the future, as by a wrong year, are left out.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, TypeAlias

import numpy as np
import pandas as pd

from forecaster.errors import DataError, hint_of_zeros, listed, spelled, spellings
from forecaster.ingest.sources.source import Date, Fetched, Known
from forecaster.ingest.tables.file_reader import join
from forecaster.ingest.tables.roles import TARGETS
from forecaster.series import repeated_at, show_time, spaced_otherwise, spacing_of

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

_REGULAR = 20  # rows in the future that follow each other regularly are meant, as in invented data
_GAP = 10  # usual gaps between rows; a longer one before them is not regular
_TIMEZONES = pd.Timedelta(days=1)
_LEFT_OUT = "rows in the future are left out"


class Whole(ABC):
    """A source of which each series is fetched as a whole, and compared with the stored one.

    - ``lost``: what becomes of a series that lacks stored rows; None: the source is not compared
    - ``unreadable``: whether a part of it could not be read; stored rows never give way then
    """

    name: str
    lost: Lost | None
    unreadable: bool = False

    @abstractmethod
    def tickers(self) -> list[str]:
        """Return all series the source holds."""

    @abstractmethod
    def fingerprint(self) -> str:
        """Return a hash that changes with the source's content."""

    @abstractmethod
    def rows(self, tickers: Sequence[str]) -> Iterator[Fetched]:
        """Yield each series as the source has it."""

    def fetch(
        self, tickers: Sequence[str], start: Date | None = None, known: Known | None = None
    ) -> Iterator[Fetched]:
        """Yield each series as a whole; ``start`` is ignored. See :class:`Source`."""
        for item in self.rows(tickers):
            yield self.compared(item, known)

    def compared(self, item: Fetched, known: Known | None) -> Fetched:
        """Return a series of the source, unless it lacks stored rows that it should not lack.

        Rows in the future are left out, with a reason beside the frame.
        """
        name, frame = item.unique_id, item.frame
        if frame is None or self.lost is None:
            return item
        keeps_nothing = self.lost == "replace" and not self.unreadable
        stored = None if known is None or keeps_nothing else known(name)
        frame, left_out = without_future(frame, None if stored is None else stored.frame)
        if stored is None or (rows := _lost_from(stored.frame, frame)).empty:
            return Fetched(name, frame, left_out)
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
            return Fetched(name, joined, left_out, kept=rows["ds"])
        why = TOO_SHORT if self.unreadable else _why_suspect(rows, stored.frame)
        return Fetched(name, None, why, suspect=True)


def series_of(
    tickers: Sequence[str],
    frames: Mapping[str, pd.DataFrame],
    failed: Mapping[str, str],
    where: object,
) -> Iterator[Fetched]:
    """Yield the series of a source that has been read, in any spelling of their names.

    - ``failed``: why others cannot be used
    - ``where``: the source, for the reason of a series that is not in it
    """
    names = spellings([*frames, *failed])  # the files may spell ``BRK-B`` ``brk.b``
    for name in tickers:
        if (series := spelled(names, name)) is None:
            yield Fetched(name, None, f"not in {where}{hint_of_zeros(names, [name])}")
        elif why := failed.get(series) or _repeated_time(frames[series]):
            yield Fetched(name, None, why)
        else:
            frame = frames[series]
            same = frame["unique_id"].iloc[0] == name
            yield Fetched(name, frame if same else frame.assign(unique_id=name))


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


def _repeated_time(frame: pd.DataFrame) -> str | None:
    """Say which time a series, sorted by time, has twice; None for none."""
    times = frame["ds"].to_numpy()
    if not (repeated := times[1:] == times[:-1]).any():
        return None
    why = str(repeated_at(times[1:][repeated][0]))
    if frame.duplicated().sum() == repeated.sum():
        return (
            f"{why}; its rows are equal in what is read of them: keep one, or name the columns "
            "that tell series apart, such as --columns id=store+item (in Python id_col=)"
        )
    return why


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


def without_future(
    frame: pd.DataFrame, stored: pd.DataFrame | None = None
) -> tuple[pd.DataFrame, str | None]:
    """Return a series without the rows that cannot be meant, and say which; None for none.

    A row is in the future if it is later than tomorrow, and by more than one step, since the last
    step may be named by its end. Twenty or more such rows are meant if they follow those before
    them without a long gap, and so are those of a series that has no others. Rows that follow
    without a long gap and are ``stored`` already are meant, too: the clock was set back.
    """
    times = frame["ds"].to_numpy()
    if times.dtype.kind != "M" or len(times) < 2:
        return frame, None
    step = pd.Timedelta(seconds=spacing_of(times))
    latest = (pd.Timestamp.now() + max(_TIMEZONES, step)).to_datetime64()
    first = int(np.searchsorted(times, latest, side="right"))
    if first in (0, len(times)):
        return frame, None
    if np.diff(times[first - 1 :]).max() <= _GAP * step.to_timedelta64():
        if len(times) - first >= _REGULAR:
            return frame, None
        if stored is not None and len(stored) and stored["ds"].dtype.kind == "M":
            known = np.searchsorted(times, stored["ds"].to_numpy()[-1], side="right")
            first = max(first, int(known))
        if first == len(times):
            return frame, None
    span = show_time(times[first])
    span += f" to {show_time(times[-1])}" if len(times) - first > 1 else ""
    return frame.iloc[:first], (
        f"{_LEFT_OUT} ({span}), the others are stored. Correct them in the source"
    )


def is_of_future(reason: str) -> bool:
    """Return whether rows of a series were left out since they were dated in the future."""
    return reason.startswith(_LEFT_OUT)
