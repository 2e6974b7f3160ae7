"""Moves of today's prices: a next session that has not come, and past sessions once more.

The moves of some series are given. All others are expected to move by their betas to them, by
least squares on the latest rows (conditional stress tests: Kupiec 1998, Journal of Derivatives 6).
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Shaped

from forecaster.errors import UsageError, listed, wrong_argument
from forecaster.series import Panel, next_times, show_time

ROWS = 250
"""The latest rows that betas, ranges and volumes are taken from."""
_ALIKE = 21  # rows with moves of about this size, whose median volume is taken
_RANGES = {"high": np.maximum, "low": np.minimum}


def after_moves(panel: Panel, moves: Mapping[str, float]) -> tuple[Panel, dict[str, float]]:
    """Return a panel with one more session, and the simple move of each series on it.

    The session opens at the close before. Its range goes beyond open and close as far as usual,
    and its volume is the median of those 21 of the latest 250 rows whose moves had about this size.
    Series that lack the panel's latest session get no row.

    ``moves``: the simple moves of some series of the panel, its market or its peers
    """
    beside = [other for other in (panel.market, panel.peers) if other is not None]
    now, known = panel.times[-1], dict[str, Float[np.ndarray, " row"]]()
    times = panel.times[-ROWS - 1 :]
    for other in (*beside[::-1], panel):
        known |= dict(zip(other.ids, _changes(other, times), strict=True))
    if unknown := [name for name in moves if name not in known]:
        raise UsageError(f"a move of {listed(unknown)}: none of the series, {listed(panel.ids)}")
    given = np.log1p([*moves.values()])
    causes = np.stack([known[name] for name in moves], axis=1)  # (row, cause)
    latest = panel.mask[:, -1]
    (then,) = next_times(panel.times[panel.mask[latest][0]], 1, panel.frequency)

    def expected(name: str) -> float:
        if name in moves:
            return float(np.log1p(moves[name]))
        both = np.isfinite(known[name]) & np.isfinite(causes).all(axis=1)
        x, y = (part[both] - part[both].mean(0) for part in (causes, known[name]))
        return float(given @ np.linalg.lstsq(x, y)[0]) if both.sum() > len(moves) else 0.0

    moved = {name: expected(name) for name in known}
    made = [_with_row(other, now, then, moved) for other in (panel, *beside)]
    parts = dict(zip([id(other) for other in beside], made[1:], strict=True))
    changed = dataclasses.replace(
        made[0], market=parts.get(id(panel.market)), peers=parts.get(id(panel.peers))
    )
    on_it = {name: float(np.expm1(moved[name])) for name in np.array(panel.ids, object)[latest]}
    return changed, on_it


def moves_between(panel: Panel, span: str) -> dict[str, float]:
    """Return the simple move of each series from the last close before a span to its last one.

    - ``span``: a day, or the first and the last one: ``2008-10-01:2008-10-31``
    - series without a row in the span, or without one before it, are left out

    Raises UsageError for anything else, and where no series has one.
    """
    start, _, end = span.partition(":")
    try:
        first, last = (np.datetime64(pd.Timestamp(day), "ns") for day in (start, end or start))
    except ValueError as error:
        expected = "a day such as 2008-10-15, or two: 2008-10-01:2008-10-31"
        raise wrong_argument("stress", span, expected) from error
    moves: dict[str, float] = {}
    for name, (values, times) in zip(panel.ids, panel.rows(), strict=True):
        before = np.searchsorted(times, first)
        until = np.searchsorted(times, last + np.timedelta64(1, "D"))
        if 0 < before < until:
            moves[name] = float(values[until - 1] / values[before - 1] - 1)
    if not moves:
        raise UsageError(
            f"stress {span}: no stock has a session then and one before; there are rows from "
            f"{show_time(panel.times[0])} to {show_time(panel.times[-1])}"
        )
    return moves


def _changes(panel: Panel, times: Shaped[np.ndarray, " row"]) -> Float[np.ndarray, "series change"]:
    """Return the changes of logarithms between these times; NaN where one of two is unknown."""
    at = np.searchsorted(panel.times, times)
    there = (at < len(panel.times)) & (panel.times[np.minimum(at, len(panel.times) - 1)] == times)
    values = np.full((len(panel.ids), len(times)), np.nan)
    values[:, there] = np.log(panel.channel(panel.target)[:, at[there]])
    return np.diff(values, axis=1)


def _with_row(panel: Panel, now: Any, then: Any, moved: Mapping[str, float]) -> Panel:
    """Return a panel with a row at a time for each series that has one at the time before."""
    if panel.times[-1] != now:
        return panel
    row = np.full((len(panel.ids), 1, len(panel.channels)), np.nan)
    latest: Bool[np.ndarray, " series"] = np.asarray(panel.mask[:, -1])
    for number in np.flatnonzero(latest):
        past = panel.values[number, panel.mask[number]][-ROWS - 1 :]
        bars = dict(zip(panel.channels, past.T, strict=True))
        row[number, 0] = [*_bar(bars, panel.target, moved[panel.ids[number]]).values()]
    return dataclasses.replace(
        panel,
        values=np.concatenate([panel.values, row], axis=1),
        mask=np.concatenate([panel.mask, latest[:, None]], axis=1),
        times=np.append(panel.times, then),
    )


def _bar(
    bars: Mapping[str, Float[np.ndarray, " row"]], target: str, move: float
) -> dict[str, float]:
    """Return the values of a session by channel; ``move``: of the logarithm of the price."""
    made = {name: float(values[-1]) for name, values in bars.items()}
    for name in {"close", "adj_close", target} & made.keys():
        made[name] *= float(np.exp(move))
    close = bars.get("close", bars[target])
    if "open" in bars:
        made["open"] = float(close[-1])
    ends = close[-1], close[-1] * np.exp(move)
    for name in _RANGES.keys() & made.keys():
        outer = _RANGES[name](bars.get("open", close), close)
        beyond = np.nanmedian(np.log(bars[name] / outer))
        made[name] = float(_RANGES[name](*ends) * np.exp(beyond if np.isfinite(beyond) else 0.0))
    if "volume" in bars:
        sizes = np.abs(np.diff(np.log(bars[target])))
        alike = np.argsort(np.abs(sizes - abs(move)))[:_ALIKE]
        made["volume"] = float(np.nanmedian(bars["volume"][1:][alike]))
    return made
