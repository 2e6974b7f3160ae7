"""Moves of today's prices: a next session that has not come, and past sessions once more.

The moves of some series are given. Where one is the market of the model, all others are expected to
move by their betas to it, by least squares on the latest rows (conditional stress tests: Kupiec
1998, Journal of Derivatives 6). Beside any other they stay: its large moves are mostly its own, and
betas to it would move the market by as much.
"""

import dataclasses
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import date
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Shaped

from forecaster.errors import UsageError, listed, spelling_key, wrong_argument
from forecaster.series import Date, Panel, next_times, show_time

ROWS = 250
"""The latest rows that betas, ranges and volumes are taken from."""
_ALIKE = 21  # rows with moves of about this size, whose median volume is taken
_RANGES = {"high": np.maximum, "low": np.minimum}
_SPANS = "a day such as 2008-10-15, or two: 2008-10-01:2008-10-31"
_SPAN = re.compile(r"(\d{4}-\d\d-\d\d)(?::(\d{4}-\d\d-\d\d))?")


def named_moves(moves: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Return simple moves by ticker. Raises UsageError for a ticker twice, in any spelling."""
    found: dict[str, tuple[str, float]] = {}
    for name, move in moves:
        number = isinstance(move, int | float | np.number)
        if not (number and -1 < move < np.inf):
            raise wrong_argument(f"moves: {name}", move, "a number above -1, such as -0.05: -5 %")
        if before := found.get(key := spelling_key(name)):
            raise UsageError(
                f"a move of {before[0]} and one of {name}: these are one series; give one move of "
                "each (`moves` in Python, --if)"
            )
        found[key] = name, float(move)
    return dict(found.values())


def after_moves(
    panel: Panel, moves: Mapping[str, float], market: Collection[str] = ()
) -> tuple[Panel, dict[str, float]]:
    """Return a panel with one more session, and the simple move of each series on it.

    The session opens at the close before. Its range goes beyond open and close as far as usual,
    and its volume is the median of those 21 of the latest 250 rows whose moves had about this size.
    Series that lack the panel's latest session get no row.

    - ``moves``: the simple moves of some series of the panel, its market or its peers
    - ``market``: those of the model, which move the others
    """
    beside = [other for other in (panel.market, panel.peers) if other is not None]
    now, times = panel.times[-1], panel.times[-ROWS - 1 :]
    changes = pd.concat([_changes(other, times) for other in (panel, *beside)], axis=1)
    changes = changes.loc[:, ~changes.columns.duplicated()]
    if unknown := [name for name in moves if name not in changes]:
        raise UsageError(f"a move of {listed(unknown)}: none of the series, {listed(panel.ids)}")
    given = {name: float(np.log1p(move)) for name, move in moves.items()}
    moved = _expected(changes, given, [name for name in given if name in market])
    latest = panel.mask[:, -1]
    (then,) = next_times(panel.times[panel.mask[latest][0]], 1, panel.frequency)
    made = [_with_row(other, now, then, moved) for other in (panel, *beside)]
    parts = dict(zip([id(other) for other in beside], made[1:], strict=True))
    changed = dataclasses.replace(
        made[0], market=parts.get(id(panel.market)), peers=parts.get(id(panel.peers))
    )
    on_it = {name: float(np.expm1(moved[name])) for name in np.array(panel.ids, object)[latest]}
    return changed, on_it


def spans_of(stress: Sequence[Date] | Date) -> list[str]:
    """Return past days and spans as text; a day may be any date."""
    spans = [stress] if isinstance(stress, str | date | np.datetime64) else stress
    if not isinstance(spans, Sequence):
        raise wrong_argument("stress", stress, _SPANS)
    return [span if isinstance(span, str) else str(span)[:10] for span in spans]


def moves_between(panel: Panel, span: str) -> dict[str, float]:
    """Return the simple move of each series from the last close before a span to its last one.

    - ``span``: a day, or the first and the last one: ``2008-10-01:2008-10-31``
    - series without a row in the span, or without one before it, are left out

    Raises UsageError for anything else, and where no series has one.
    """
    try:
        if not (days := _SPAN.fullmatch(span)):
            raise ValueError(span)
        first, last = (np.datetime64(day, "ns") for day in (days[1], days[2] or days[1]))
        if last < first:
            raise ValueError(span)
    except ValueError as error:
        raise wrong_argument("stress", span, _SPANS) from error
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


def _changes(panel: Panel, times: Shaped[np.ndarray, " row"]) -> pd.DataFrame:
    """Return the changes of logarithms between these times, a column for each series."""
    levels = np.log(panel.channel(panel.target).T)
    return pd.DataFrame(levels, panel.times, [*panel.ids]).reindex(times).diff()[1:]


def _expected(
    changes: pd.DataFrame, given: Mapping[str, float], causes: list[str]
) -> dict[str, float]:
    """Return the expected change of each series; ``causes``: those given that move the others."""
    moved = dict.fromkeys(map(str, changes), 0.0)
    for name in moved if causes else ():
        both = changes[[name, *causes]].dropna()
        y, *x = (both - both.mean()).to_numpy().T
        moved[name] = float(np.linalg.lstsq(np.transpose(x), y)[0] @ [given[c] for c in causes])
    return moved | dict(given)


def _with_row(panel: Panel, now: Any, then: Any, moved: Mapping[str, float]) -> Panel:
    """Return a panel up to now with a row then, for each series that has one now."""
    panel = panel.until(now)
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
