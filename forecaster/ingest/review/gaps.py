"""Count missing sessions and find rows on closed days, by the exchanges' calendars."""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from forecaster.series import NEW_YORK, Panel, exchange_of, sessions, union_of, usual_spacing

_ALIKE = 1.25  # spacings are alike up to this ratio; the lengths of months differ by a ninth


def count_gaps(panel: Panel, common: np.ndarray | None = None) -> dict[str, int]:
    """Return the number of missing sessions between the first and last row, by series.

    If the exchange is unknown, a session is a time at which at least half of the series that are
    listed then have a row.

    ``common`` (time,): these times; by default inferred from these series
    """
    if common is None:
        common = common_times(panel.mask.sum(0), listed_at(panel))
    days = _days(panel)
    gaps = {}
    for row, name in enumerate(panel.ids):
        observed = panel.mask[row]
        first, last = np.flatnonzero(observed)[[0, -1]]
        open_days = _sessions_of(panel, name) if is_daily(panel) and panel.target != "y" else None
        outside_panel = 0
        if open_days is None:
            expected = common.copy()
        else:
            expected = np.isin(days, open_days)
            inside = open_days[(open_days >= days[first]) & (open_days <= days[last])]
            outside_panel = len(inside) - int(np.isin(inside, days).sum())
        expected[:first] = expected[last + 1 :] = False
        gaps[name] = outside_panel + int((expected & ~observed).sum())
    return gaps


def gaps_in_values(times: Mapping[str, np.ndarray]) -> dict[str, int]:
    """Return the number of missing times by series, for series that are not prices.

    Series are compared with those that are spaced alike: days are no gaps of a weekly series. Among
    series of one spacing the result is that of :func:`count_gaps`, without a panel in memory.

    ``times``: each series' times, sorted; series with the same times may share the array
    """
    gaps: dict[str, int] = {}
    for names in _spaced_alike(times):
        gaps |= _gaps_beside({name: times[name] for name in names})
    return {name: gaps[name] for name in times}


def _spaced_alike(times: Mapping[str, np.ndarray]) -> list[list[str]]:
    """Return groups of series whose usual spacings are alike.

    Series that show no spacing are in the largest group, since they may lack most of their rows.
    """
    shared = {id(own): own for own in times.values()}
    spacings = {key: usual_spacing(own) for key, own in shared.items()}
    found = np.unique([one for one in spacings.values() if one is not None])
    classes = np.cumsum(np.diff(np.log(found), prepend=0.0) > np.log(_ALIKE))
    class_of = {key: None if one is None else int(classes[np.searchsorted(found, one)])
                for key, one in spacings.items()}  # fmt: skip
    groups: dict[int | None, list[str]] = {}
    for name, own in times.items():
        groups.setdefault(class_of[id(own)], []).append(name)
    unknown = groups.pop(None, [])
    largest = max(groups.values(), key=len, default=[])
    others = [names for names in groups.values() if names is not largest]
    return [[*largest, *unknown], *others]


def _gaps_beside(times: Mapping[str, np.ndarray]) -> dict[str, int]:
    """Return the number of times by series that at least half of the listed series have."""
    shared = {id(own): own for own in times.values()}
    axis = union_of(shared.values())
    positions = {key: np.searchsorted(axis, own) for key, own in shared.items()}
    count, listed = np.zeros(len(axis), int), np.zeros(len(axis) + 1, int)
    for own in times.values():
        seen = positions[id(own)]
        count[seen] += 1
        listed[seen[0]] += 1
        listed[seen[-1] + 1] -= 1
    common = count * 2 >= np.maximum(np.cumsum(listed)[:-1], 1)
    up_to = np.concatenate([[0], np.cumsum(common)])

    def missing(seen: np.ndarray) -> int:
        return int(up_to[seen[-1] + 1] - up_to[seen[0]] - common[seen].sum())

    gaps = {key: missing(seen) for key, seen in positions.items()}
    return {name: gaps[id(own)] for name, own in times.items()}


def is_daily(panel: Panel) -> bool:
    """Return whether the panel's times could be days of an exchange."""
    return panel.frequency.alias in ("B", "D")


def _sessions_of(panel: Panel, name: str) -> np.ndarray | None:
    """Return the days in the panel's span on which a symbol's exchange was open; None: unknown."""
    first, last = pd.Timestamp(panel.times[0]), pd.Timestamp(panel.times[-1])
    exchange = exchange_of(name)
    if exchange is None or (exchange == NEW_YORK and not panel.frequency.nyse):
        return None  # the symbol names no exchange, or the panel's days are not New York's
    try:
        return sessions(exchange, first, last)
    except (ValueError, NotImplementedError):
        return None


def is_session(panel: Panel, name: str) -> np.ndarray:
    """Return whether the exchange was open, (time,); True if that is unknown."""
    open_days = _sessions_of(panel, name)
    if open_days is None or not len(open_days):
        return np.ones(len(panel.times), bool)
    days = _days(panel)
    return np.isin(days, open_days) | (days < open_days[0])


def closed_rows(panel: Panel, rows: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Return which daily rows fall on days on which the series' exchange is closed, (row,).

    Unlike in :func:`is_session`, no other row matters: a symbol without the name of an exchange is
    taken to be from New York. The result is False where the calendar is unknown.

    ``rows``, ``positions`` (row,): the series and the positions in time
    """
    closed = np.zeros(len(rows), bool)
    days = _days(panel)[positions]
    for row in np.unique(rows):
        its = rows == row
        first, last = pd.Timestamp(days[its].min()), pd.Timestamp(days[its].max())
        exchange = exchange_of(panel.ids[row])
        try:
            known = exchange is not None and sessions(exchange, first, last)
        except (ValueError, NotImplementedError):
            continue
        if known is not False:
            closed[its] = ~np.isin(days[its], known)
    return closed


def _days(panel: Panel) -> np.ndarray:
    """Return the panel's times without the time of day."""
    return panel.times.astype("datetime64[D]").astype("datetime64[ns]")


def listed_at(panel: Panel) -> np.ndarray:
    """Return the number of series that have begun and not ended at each time, (time,)."""
    first = panel.mask.argmax(1)
    last = panel.mask.shape[1] - 1 - panel.mask[:, ::-1].argmax(1)
    listed = np.zeros(len(panel.times) + 1, int)
    np.add.at(listed, first, 1)
    np.add.at(listed, last + 1, -1)
    return np.cumsum(listed)[:-1]


def common_times(count: np.ndarray, listed: np.ndarray) -> np.ndarray:
    """Return the times at which at least half of the listed series have a row, (time,).

    - ``count`` (time,): number of series with a row
    - ``listed`` (time,): number of listed series
    """
    return count * 2 >= np.maximum(listed, 1)
