"""Compare a series that a source gives as a whole with the stored one."""

from typing import Literal, TypeAlias

import numpy as np
import pandas as pd

from forecaster.errors import listed
from forecaster.ingest.sources.future import without_future
from forecaster.ingest.sources.lost import TOO_SHORT, lost_from, why_suspect, with_lost
from forecaster.ingest.sources.source import Fetched, Known
from forecaster.ingest.store.series_file import UNITS
from forecaster.ingest.tables.roles import TARGETS, canonical
from forecaster.series import repeated_at, spaced_otherwise, spacing_of

Lost: TypeAlias = Literal["suspect", "keep", "replace"]
"""What becomes of a series that lacks stored rows: the stored series is kept and the source's
rejected; the source's rows are added to the stored ones; or they take the place of all stored."""


def compared(
    name: str, frame: pd.DataFrame, known: Known | None, lost: Lost, *, unreadable: bool = False
) -> Fetched:
    """Return a series of a source, unless it lacks stored rows that it should not lack.

    Rows in the future are left out, with a reason beside the frame.

    ``unreadable``: whether a part of the source could not be read; stored rows never give way then
    """
    frame = frame if frame["unique_id"].iloc[0] == name else frame.assign(unique_id=name)
    keeps_nothing = lost == "replace" and not unreadable
    stored = None if known is None or keeps_nothing else known(name)
    frame, left_out = without_future(frame, None if stored is None else stored.frame)
    if stored is None or (rows := lost_from(stored.frame, frame)).empty:
        return Fetched(name, frame, left_out)
    if lost == "keep":
        if why := _why_apart(frame, stored.frame):
            return Fetched(name, None, why, suspect=True)
        joined = with_lost(rows, frame)
        joined.attrs[UNITS] = {**stored.frame.attrs.get(UNITS, {}), **frame.attrs.get(UNITS, {})}
        return Fetched(name, joined, left_out, kept=rows["ds"])
    if unreadable:
        return Fetched(name, None, TOO_SHORT, suspect=True)
    return Fetched(name, None, why_suspect(rows, stored.frame), suspect=True)


def _why_apart(frame: pd.DataFrame, stored: pd.DataFrame) -> str | None:
    """Say why rows cannot be added to the stored ones of their series; None if they can."""
    kinds = [table["ds"].dtype.kind for table in (frame, stored)]
    if kinds[0] != kinds[1]:
        new, old = ("dates" if kind == "M" else "whole numbers" for kind in kinds)
        return f"its times are {new}, those of the stored rows {old}; write both alike"
    targets = [[name for name in TARGETS if name in table] for table in (frame, stored)]
    if not set(targets[0]) & set(targets[1]):
        new, old = (listed(map(repr, names)) for names in targets)
        return f"it holds {new}, the stored rows {old}; name the target alike"
    before = {_kind_of(name): unit for name, unit in stored.attrs.get(UNITS, {}).items()}
    for column, unit in frame.attrs.get(UNITS, {}).items():
        if (there := before.get(_kind_of(column), unit)) != unit:
            return (
                f"column {column!r} holds {unit}, that of the stored rows {there}; convert the "
                "numbers, or `ingest --refresh` with the whole history in one unit"
            )
    times, known = frame["ds"].to_numpy(), stored["ds"].to_numpy()
    if len(times) and times[0] > known[-1]:
        times = np.concatenate([known[-1:], times])  # the gap between both counts, too
    if why := spaced_otherwise(times, spacing_of(known), "the stored ones"):
        return f"{why}; give them a series of their own, or `ingest --refresh` replaces all rows"
    return None


def _kind_of(column: str) -> str:
    """Return whether a column states the unit of numbers, or their currency."""
    return "unit" if canonical(column) in ("unit", "units", "uom") else "currency"


def repeated_time(frame: pd.DataFrame) -> str | None:
    """Say which time a series, sorted by time, has twice; None for none."""
    times = frame["ds"].to_numpy()
    if not (repeated := times[1:] == times[:-1]).any():
        return None
    why = str(repeated_at(times[1:][repeated][0]))
    if frame.duplicated().sum() == repeated.sum():
        return f"{why}; its rows are equal, so keep one (in pandas .drop_duplicates())"
    return why
