"""Compare a series that a source gives as a whole with the stored one."""

from typing import Literal, TypeAlias

import pandas as pd

from forecaster.ingest.sources.future import without_future
from forecaster.ingest.sources.lost import TOO_SHORT, lost_from, why_suspect, with_lost
from forecaster.ingest.sources.source import Fetched, Known
from forecaster.series import repeated_at

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
    if lost == "keep" and stored.frame["ds"].dtype.kind == frame["ds"].dtype.kind:
        return Fetched(name, with_lost(rows, frame), left_out)
    if unreadable:
        return Fetched(name, None, TOO_SHORT, suspect=True)
    return Fetched(name, None, why_suspect(rows, stored.frame), suspect=True)


def repeated_time(frame: pd.DataFrame) -> str | None:
    """Say which time a series, sorted by time, has twice; None for none."""
    times = frame["ds"].to_numpy()
    if not (repeated := times[1:] == times[:-1]).any():
        return None
    why = str(repeated_at(times[1:][repeated][0]))
    if frame.duplicated().sum() == repeated.sum():
        return f"{why}; its rows are equal, so keep one (in pandas .drop_duplicates())"
    return why
