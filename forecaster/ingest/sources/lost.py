"""Compare a source's rows of a series with the stored ones, and find those that are lost."""

import pandas as pd

from forecaster.series import show_time

VANISHED = (
    "no longer in the source. If no more rows are to come, `forecaster tickers retire` says so"
)
"""The reason of a series that the source held before."""
TOO_SHORT = "the folder lacks stored rows of it, and holds a file that cannot be read"
"""The reason of a series that may lack the rows of a damaged file."""
_VALUES = ("close", "y")  # without a number here a row says nothing


def lost_from(stored: pd.DataFrame, latest: pd.DataFrame) -> pd.DataFrame:
    """Return the stored rows with a value that the source has no value for any more."""
    if stored.empty:
        return stored
    stored = stored[_with_value(stored)]
    return stored[~stored["ds"].isin(latest["ds"][_with_value(latest)])]


def with_lost(lost: pd.DataFrame, latest: pd.DataFrame) -> pd.DataFrame:
    """Return the source's rows and the lost ones, these as they were stored."""
    latest = latest[~latest["ds"].isin(lost["ds"])]
    both = pd.concat([lost, latest], ignore_index=True)
    return both.sort_values("ds", kind="stable", ignore_index=True)


def why_suspect(lost: pd.DataFrame, stored: pd.DataFrame) -> str:
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
