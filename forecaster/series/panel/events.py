"""Lists of events: times of each series at which something is known to happen, such as earnings."""

import warnings
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from forecaster.errors import DataError, ForecasterWarning, listed
from forecaster.series.calendar.times import show_time

_EVENT = "event"  # the column that names kinds of events
_FEWEST_GAPS = 3  # between events, which then tell how often they come
_TOO_LONG = 1.5  # usual gaps without an event, after which a list seems to have ended


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


def warn_of_odd_events(events: Mapping[str, np.ndarray], rows: Mapping[str, np.ndarray]) -> None:
    """Warn of events at times without a row, and of a list that seems to have ended.

    - ``events``: the sorted times of the events of each series
    - ``rows``: the times of each series' rows
    """
    between: list[str] = []
    ended: list[str] = []
    for name, times in events.items():
        own = rows[name]
        if not len(own) or times.dtype.kind != own.dtype.kind:
            continue
        inside = times[(times > own[0]) & (times < own[-1])]
        between += [f"{name} {show_time(time)}" for time in inside[~np.isin(inside, own)]]
        gaps = np.diff(times)
        if len(gaps) >= _FEWEST_GAPS and own[-1] - times[-1] > _TOO_LONG * np.median(gaps):
            ended.append(f"{name} {show_time(times[-1])}")
    _warn_of_missed(between, "between rows")
    if ended:
        warnings.warn(
            "future covariates: events have stopped coming, the latest are: "
            f"{listed(ended)}. List those to come, too: without them none is expected",
            ForecasterWarning,
            stacklevel=4,
        )


def warn_of_missed_events(
    events: Mapping[str, np.ndarray], ahead: Mapping[str, np.ndarray]
) -> None:
    """Warn of events to come that fall on none of the times that are forecast, but between them.

    - ``events``: the sorted times of the events of each series
    - ``ahead``: the times that each series is forecast for, behind the time of its latest row
    """
    missed: list[str] = []
    for name, times in events.items():
        own = ahead[name]
        inside = times[(times > own[0]) & (times < own[-1])]
        missed += [f"{name} {show_time(time)}" for time in inside[~np.isin(inside, own)]]
    _warn_of_missed(missed, "between the times that are forecast")


def _warn_of_missed(missed: Sequence[str], where: str) -> None:
    if missed:
        warnings.warn(
            f"future covariates: events {where} count nowhere: {listed(missed)}. Write the time of "
            "the row that each of them moves: a session, without a time of day if rows have none",
            ForecasterWarning,
            stacklevel=5,
        )
