"""Flag rows whose prices look wrong, judged only from prices. No price is changed.

Flags:
        copied       a later session has the same open, high, low and close, and this one is wrong;
        two consecutive sessions are both flagged, since either may be wrong; but of a session and a
        day without trading only the latter is flagged
    reversed     the prices lie apart from both neighbouring sessions, and the next session takes
                 the move back
    unconfirmed  a jump at the latest session; the next session will show whether it lasts
        jump         a jump of the adjusted price, from a spin-off, news, or an error
        ohlc         open or close outside the range from low to high, or a price that is not
        positive
    frozen       the close has not changed for several sessions
    zero_volume  nothing was traded
    closed       the exchange was closed on that day; this flag cannot be masked, see MASKS
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from forecaster.errors import UsageError, check_names
from forecaster.machine import by_parts
from forecaster.series import (
    NEW_YORK,
    UNCONFIRMED,
    Frequency,
    Panel,
    exchange_of,
    sessions,
    show_time,
)

FLAGS = (
    "copied", "reversed", UNCONFIRMED, "jump", "ohlc", "frozen", "zero_volume", "closed",
)  # fmt: skip
# The columns of tables of flags and their types, see :func:`find_flags`.
_COLUMNS = {
    "unique_id": object, "ds": "datetime64[ns]", "flag": object, "known": "datetime64[ns]",
}  # fmt: skip
# "closed" is not a mask: whether a panel's days are those of an exchange is inferred from all its
# rows, later ones too, and no later row may decide what is learned from.
MASKS = tuple(flag for flag in FLAGS if flag != "closed")
WRONG = ("copied", "reversed", UNCONFIRMED)  # flags of rows that are left out by default
_SEEN_NEXT = ("reversed", "jump")  # flags that are known at the next session

_REVERSED = 4.0  # minimum size of a reversed move, in usual moves of the series and the day
_TAKEN_BACK = 0.35  # maximum share of a reversed move that may remain, besides one usual move
# Maximum and minimum number of sessions that usual moves are measured over.
_HISTORY, _LEAST_HISTORY = 120, 30
_JUMP = np.log(1.4)  # minimum size of a jump, which must also exceed ten usual moves
_FROZEN = 5  # minimum number of sessions with the same close
_FEW_SERIES = 10  # with fewer series, the size of a day's moves cannot be judged
_AT_ONCE = 100  # number of series that a thread looks at
_BAR = ("open", "high", "low", "close")
_COPIED_WITHIN = 70  # maximum number of sessions between a copy and its original
# Minimum number of series with copies on the same day; such copies confirm each other.
_COPIED_TOGETHER = 5
_COPIED_SHARE = 0.01  # minimum share of all series with copies on the same day
_NEVER = np.iinfo(np.int32).max  # the position at which a row is known as a copy that is none


def check_flags(flags: Sequence[str]) -> None:
    """Raise UsageError for an unknown flag, or for one whose rows cannot be left out."""
    check_names("mask", flags, "a list of texts")
    unknown = [flag for flag in flags if flag not in MASKS]
    if unknown:
        why = "rows that have it are shown, not left out; " if unknown[0] in FLAGS else ""
        raise UsageError(f"flag {unknown[0]!r}: {why}expected some of {', '.join(MASKS)}")


def find_flags(panel: Panel) -> pd.DataFrame:
    """Return the flagged rows of a panel of prices: ``unique_id, ds, flag, known``.

    ``known`` is the time from which on the row has the flag, whatever comes later. It is after
    ``ds`` for copied and reversed sessions and for jumps; until that time a jump is unconfirmed.
    """
    if not has_flags(panel):
        return one_table([])
    flagged = {flag: np.zeros(panel.mask.shape, bool) for flag in FLAGS}
    known_at = _flag_prices(panel, flagged)
    for row, name in enumerate(panel.ids):
        if keeps_calendar(panel.frequency, name):
            flagged["closed"][row] = closed_days(panel, row)
    return one_table([_table(panel, flag, its, known_at) for flag, its in flagged.items()])


def one_table(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Return the flags of several tables as one, sorted by series, time and flag."""
    nothing = pd.DataFrame({name: pd.Series(dtype=kind) for name, kind in _COLUMNS.items()})
    flags = pd.concat([each for each in tables if len(each)] or [nothing], ignore_index=True)
    return flags.sort_values(["unique_id", "ds", "flag"], ignore_index=True)


def has_flags(panel: Panel) -> bool:
    """Return whether a panel holds prices by date; only these are flagged."""
    return panel.target != "y" and panel.times.dtype.kind == "M"


def _table(panel: Panel, flag: str, flagged: np.ndarray, known_at: np.ndarray) -> pd.DataFrame:
    """Return the observed rows with a flag; ``flagged``, ``known_at`` of copies: (series, time)."""
    rows, positions = np.nonzero(flagged & panel.mask)
    known = positions
    if flag == "copied":
        known = known_at[rows, positions]
    elif flag in _SEEN_NEXT:
        known = _next_rows(panel, rows, positions)
    ids = np.array(panel.ids, object)[rows]
    table = {"unique_id": ids, "ds": panel.times[positions], "flag": flag}
    return pd.DataFrame({**table, "known": panel.times[known]})


def flags_known(
    flags: pd.DataFrame,
    mask: Sequence[str] = WRONG,
    known_by: pd.Timestamp | np.datetime64 | None = None,
) -> pd.DataFrame:
    """Return the flagged rows that a mask leaves out.

    ``known_by``: only flags that were known by then; a jump at the latest session of that time
    counts as unconfirmed. So no later row decides what a model learns from. None: all flags.
    """
    if known_by is None:
        return flags[flags["flag"].isin(mask)]
    known = flags["known"] <= known_by
    waiting = (flags["flag"] == "jump") & (flags["ds"] <= known_by) & ~known
    then = flags.assign(flag=flags["flag"].mask(waiting, UNCONFIRMED))
    return then[then["flag"].isin(mask) & (known | waiting)]


def flags_of(flags: pd.DataFrame, mask: Sequence[str] = WRONG) -> pd.DataFrame:
    """Return the flags in a mask as a panel carries them, with the times at which they hold.

    ``flags``: the result of :func:`find_flags`. A jump is unconfirmed until it is known to be one.
    """
    lasting = flags[flags["flag"].isin(mask)].assign(until=np.datetime64("NaT", "ns"))
    jumps = flags[(flags["flag"] == "jump") & (UNCONFIRMED in mask)]
    waiting = jumps.assign(flag=UNCONFIRMED, known=jumps["ds"], until=jumps["known"])
    return pd.concat([lasting, waiting])


def without_flagged(panel: Panel, flags: pd.DataFrame) -> Panel:
    """Return the panel without the rows of a table of flags, see :func:`flags_known`."""
    rows = pd.Index(panel.ids, dtype=object).get_indexer(pd.Index(flags["unique_id"]))
    positions = pd.Index(panel.times).get_indexer(pd.Index(flags["ds"]))
    there = (rows >= 0) & (positions >= 0)
    return panel.without(rows[there], positions[there])


def frozen_now(panel: Panel) -> dict[str, str]:
    """Return the series whose latest row is frozen, with the time of the first row at that price.

    The rows of the panel decide, by the rule of the flag. Empty for panels without flags.
    """
    if not has_flags(panel):
        return {}
    prices = panel.channel(panel.target)
    frozen = {}
    for row, name in enumerate(panel.ids):
        own, times = prices[row, panel.mask[row]], panel.times[panel.mask[row]]
        moved = np.flatnonzero(own != own[-1:])
        since = moved[-1] + 1 if len(moved) else 0
        if len(own) - since >= _FROZEN:
            frozen[name] = show_time(times[since])
    return frozen


def _flag_prices(panel: Panel, flagged: dict[str, np.ndarray]) -> np.ndarray:
    """Set all flags except ``closed``; return the positions at which copies are known."""
    rows = [np.flatnonzero(seen) for seen in panel.mask]
    prices = panel.channel(panel.target)

    def measure_some(some: slice) -> list[_Moves]:
        return [
            _Moves.from_prices(its[at]) for its, at in zip(prices[some], rows[some], strict=True)
        ]

    moves = [one for part in by_parts(measure_some, len(rows), _AT_ONCE) for one in part]
    day_scale = _day_scale(panel, rows, moves)

    def flag_some(some: slice) -> list[tuple[int, ...]]:
        found: list[tuple[int, ...]] = []
        for row in range(len(rows))[some]:
            at = rows[row]
            values = {name: panel.channel(name)[row, at] for name in panel.channels}
            for flag, marked in _marks(values, prices[row, at], moves[row], day_scale[at]).items():
                flagged[flag][row, at] = marked
            if set(_BAR) <= set(values):
                found += ((row, *one) for one in _repeated_later(values, at))
        return found

    found = [one for part in by_parts(flag_some, len(rows), _AT_ONCE) for one in part]
    known_at = _copies_known_at(panel, np.array(found, int).reshape(-1, 4))
    flagged["copied"] = known_at < _NEVER
    return known_at


class _Moves(NamedTuple):
    """The moves of a series from row to row, and their usual size before each row, (row,)."""

    size: np.ndarray
    usual: np.ndarray

    @staticmethod
    def from_prices(price: np.ndarray) -> "_Moves":
        """Measure log changes, 0 for a row without one.

        Their usual size, as a standard deviation, is a rolling median of sizes, times 1.4826, which
        is robust against a few large moves.
        """
        moves = np.diff(np.log(np.where(price > 0, price, np.nan)), prepend=np.nan)
        moves = np.where(np.isfinite(moves), moves, 0.0)
        sizes = pd.Series(np.abs(moves)).rolling(_HISTORY, min_periods=_LEAST_HISTORY)
        middle = sizes.median().shift(1).to_numpy()
        usual = np.where(np.isfinite(middle), np.maximum(1.4826 * middle, 0.002), 0.02)
        return _Moves(moves, usual)


def _marks(
    values: dict[str, np.ndarray], price: np.ndarray, moves: _Moves, day: np.ndarray
) -> dict[str, np.ndarray]:
    """Return which rows of a series have each flag but ``copied``, (row,).

    - ``values``: the channels; ``price``: the target
    - ``day``: the size of all moves on the row's day
    """
    jumps = (np.abs(moves.size) > _JUMP) & (np.abs(moves.size) > 10 * moves.usual)
    latest = np.arange(len(price)) == len(price) - 1
    marks = {
        "frozen": _runs(price, _FROZEN),
        UNCONFIRMED: jumps & latest,
        "jump": jumps & ~latest,
    }
    if "volume" in values:
        marks["zero_volume"] = values["volume"] == 0
    if set(_BAR) <= set(values):
        open_, high, low, close = (values[name] for name in _BAR)
        marks["ohlc"] = _inconsistent(open_, high, low, close)
        marks["reversed"] = _apart(high, low, moves.size) & _taken_back(moves, day)
    return marks


def _day_scale(panel: Panel, rows: list[np.ndarray], moves: list[_Moves]) -> np.ndarray:
    """Return the size of the moves of all series on each day, relative to usual moves, (time,).

    It is at least 1, and exactly 1 until enough series have begun. So a series that begins later
    changes no earlier day.
    """
    sizes = np.full(panel.mask.shape, np.nan, np.float32)  # NaN in gaps
    for row, (at, its) in enumerate(zip(rows, moves, strict=True)):
        sizes[row, at] = np.abs(its.size) / its.usual
    first = np.bincount(panel.mask.argmax(1), panel.mask.any(1), len(panel.times))
    scale = np.ones(len(panel.times))
    for time in np.flatnonzero(panel.mask.any(0) & (first.cumsum() >= _FEW_SERIES)):
        own = sizes[panel.mask[:, time], time]
        scale[time] = max(1.0, 1.4826 * float(np.median(own)))
    return scale


def _taken_back(moves: _Moves, day: np.ndarray) -> np.ndarray:
    """Return rows with a large move that the next move takes back, (row,)."""
    move, after, day_after = moves.size, np.append(moves.size[1:], 0.0), np.append(day[1:], 1.0)
    sizes = np.minimum(np.abs(move) / day, np.abs(after) / day_after)
    smaller = np.minimum(np.abs(move), np.abs(after))
    left = np.abs(move + after) < _TAKEN_BACK * smaller + moves.usual
    return (sizes > _REVERSED * moves.usual) & (move * after < 0) & left


def _apart(high: np.ndarray, low: np.ndarray, moves: np.ndarray) -> np.ndarray:
    """Return rows whose whole session lies above both neighbours or below both, (row,)."""
    out = np.zeros(len(high), bool)
    above = (low[1:-1] > high[:-2]) & (low[1:-1] > high[2:])
    below = (high[1:-1] < low[:-2]) & (high[1:-1] < low[2:])
    out[1:-1] = (above & (moves[1:-1] > 0)) | (below & (moves[1:-1] < 0))
    return out


def _inconsistent(
    open_: np.ndarray, high: np.ndarray, low: np.ndarray, close: np.ndarray
) -> np.ndarray:
    """Return rows with open or close outside low to high, or a price that is not positive."""
    top, bottom = np.fmax(np.fmax(open_, close), low), np.fmin(np.fmin(open_, close), high)
    with np.errstate(invalid="ignore"):
        slack, least = 1e-4 * np.abs(close), np.fmin(np.fmin(open_, close), np.fmin(high, low))
        return (high < top - slack) | (low > bottom + slack) | (least <= 0)


def _runs(price: np.ndarray, least: int) -> np.ndarray:
    """Return rows with the same price as at least the ``least`` - 1 rows before, (row,)."""
    rows = np.arange(len(price))
    changes = np.append(True, price[1:] != price[:-1])[: len(price)]
    return rows - np.maximum.accumulate(np.where(changes, rows, 0)) >= least - 1


def _repeated_later(
    values: Mapping[str, np.ndarray], positions: np.ndarray
) -> Iterator[tuple[int, int, int]]:
    """Yield the rows of a series that repeat in one of the next sessions.

    Yields three positions in time: of the row, of the first later row with the same prices, and of
    the first later row with the same volume as well (``_NEVER`` if there is none). Repetitions too
    far away, in a series with long gaps, are left out.

    - ``values``: the channels, each (row,)
    - ``positions`` (row,): of the rows in time
    """
    bars = np.stack([values[name] for name in _BAR], axis=-1)
    moving = np.isfinite(bars).all(-1) & (values["high"] > values["low"])
    keys = (bars * np.sqrt([2, 3, 5, 7])).sum(-1)  # equal where bars are, and hardly elsewhere
    order = np.argsort(keys, kind="stable")
    earlier, later = order[:-1], order[1:]
    same = (keys[later] == keys[earlier]) & (later - earlier <= _COPIED_WITHIN) & moving[earlier]
    volume = values.get("volume")
    for row in np.sort(earlier[same]):
        end = np.searchsorted(positions, positions[row] + 2 * _COPIED_WITHIN, side="right")
        alike = row + 1 + np.flatnonzero((bars[row + 1 : end] == bars[row]).all(-1))
        if len(alike):
            too = alike[:0] if volume is None else alike[volume[alike] == volume[row]]
            same_volume = positions[too[0]] if len(too) else _NEVER
            yield int(positions[row]), int(positions[alike[0]]), int(same_volume)


def _copies_known_at(panel: Panel, found: np.ndarray) -> np.ndarray:
    """Return the position at which each row is known as a copy, (series, time); or ``_NEVER``.

    Repeated prices are a copy if the volume is repeated too, or if many series have one on the
    same day: thin or cheap stocks sometimes have two equal sessions by chance.

    If copy and original are consecutive, the original is a copy, too, since either may be wrong.
    But if only the later one is on a day without trading, the later one alone was carried forward.

    ``found``: a row for each that repeats, of its series and what :func:`_repeated_later` yields
    """
    known_at = np.full(panel.mask.shape, _NEVER, np.int32)
    known = np.minimum(found[:, 3], _known_together(found[:, 1], found[:, 2], panel.mask.sum(0)))
    confirmed = known < _NEVER
    known, (series, positions, originals, _) = known[confirmed], found[confirmed].T
    known_at[series, positions] = known
    adjacent = _next_rows(panel, series, positions) == originals
    pairs = np.stack([series, positions, originals, known], axis=1)[adjacent]
    closed = {row: closed_days(panel, row) for row in np.unique(series[adjacent])}
    for row, position, original, _ in pairs:
        if closed[row][original] and not closed[row][position]:
            known_at[row, position] = _NEVER
    for row, _, original, time in pairs:  # the original may be a copy, known at another time
        known_at[row, original] = min(known_at[row, original], time)
    return known_at


def _known_together(positions: np.ndarray, originals: np.ndarray, listed: np.ndarray) -> np.ndarray:
    """Return the position at which a copy is one of many on its day, (copy,); otherwise ``_NEVER``.

    ``listed`` (time,): number of series with a row
    """
    known = np.full(len(positions), _NEVER)
    order = np.argsort(positions, kind="stable")
    days = np.flatnonzero(np.diff(positions[order])) + 1
    for together in np.split(order, days) if len(order) else []:
        share = _COPIED_SHARE * listed[positions[together[0]]]
        needed = max(_COPIED_TOGETHER, int(np.ceil(share)))
        if len(together) >= needed:
            its = originals[together]
            known[together] = np.maximum(its, np.sort(its)[needed - 1])
    return known


def _next_rows(panel: Panel, rows: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Return the position of the next row of the same series for each row; it must exist."""
    observed = np.flatnonzero(panel.mask)
    keys = rows * panel.mask.shape[1] + positions
    return observed[np.searchsorted(observed, keys, side="right")] % panel.mask.shape[1]


def closed_days(panel: Panel, row: int) -> np.ndarray:
    """Return which times of daily rows are days on which a series' exchange is closed, (time,).

    A symbol without the name of an exchange is taken to be from New York. All times are open where
    the calendar is unknown, or had not begun.
    """
    known = sessions_of(panel.ids[row], panel.times[panel.mask[row]])
    if known is None or not len(known):
        return np.zeros(len(panel.times), bool)
    days = days_of(panel.times)
    return ~np.isin(days, known) & (days >= known[0])


def keeps_calendar(frequency: Frequency, symbol: str) -> bool:
    """Return whether times of a frequency may be the days of a symbol's exchange."""
    daily = frequency.alias in ("B", "D")
    return daily and (frequency.nyse or exchange_of(symbol) != NEW_YORK)


def sessions_of(name: str, times: np.ndarray) -> np.ndarray | None:
    """Return the days from the first time to the last on which a symbol's exchange was open.

    None where they are unknown.
    """
    exchange = exchange_of(name)
    if exchange is None:
        return None
    try:
        return sessions(exchange, pd.Timestamp(times[0]), pd.Timestamp(times[-1]))
    except (ValueError, NotImplementedError):
        return None


def days_of(times: np.ndarray) -> np.ndarray:
    """Return times without the time of day."""
    return times.astype("datetime64[D]").astype("datetime64[ns]")
