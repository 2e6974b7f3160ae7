"""Lists of events: times of each series at which something is known to happen, such as earnings."""

from collections.abc import Sequence

import pandas as pd

from forecaster.errors import DataError

_EVENT = "event"  # the column that names kinds of events


def lists_events(frame: pd.DataFrame, columns: Sequence[str]) -> bool:
    """Return whether a frame of future covariates lists events.

    ``columns``: those beside ``unique_id`` and ``ds``; there are none, or one that names kinds
    """
    named = list(columns) == [_EVENT] and not pd.api.types.is_numeric_dtype(frame[_EVENT])
    return not columns or named


def with_kinds(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a list of events with a column of 0 and 1 for each kind, in alphabetical order.

    Without kinds the column is called ``event``. Raises DataError for a row without a kind where
    others have one, and for a kind of the name of another column.
    """
    if _EVENT not in frame:
        return frame.assign(**{_EVENT: 1.0})
    kinds = frame[_EVENT].astype(object).where(frame[_EVENT].notna(), "").astype(str).str.strip()
    if (blank := (kinds == "").to_numpy(bool)).any():
        raise DataError(
            f"future covariates: row {int(blank.argmax()) + 1}, column {_EVENT!r}: names no kind "
            "of event; expected one in every row. Leave out the column where there is only one"
        )
    if taken := sorted({"unique_id", "ds"} & set(kinds)):
        raise DataError(f"future covariates: {taken[0]!r} is no name for a kind of event")
    flags = {kind: (kinds == kind).astype(float) for kind in sorted(kinds.unique())}
    return frame.drop(columns=_EVENT).assign(**flags)
