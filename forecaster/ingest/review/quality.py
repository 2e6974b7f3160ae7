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

from collections.abc import Iterable, Sequence
from typing import NamedTuple, cast

import numpy as np
import pandas as pd

from forecaster.errors import UsageError, wrong_argument
from forecaster.ingest.review.copies import (
    BAR,
    Copies,
    confirm_copies,
    next_rows,
    repeated_later,
    when_known,
)
from forecaster.ingest.review.missing import closed_days, keeps_calendar
from forecaster.machine import by_parts
from forecaster.series import UNCONFIRMED, Flags, Panel, show_time

FLAGS = (
    "copied", "reversed", UNCONFIRMED, "jump", "ohlc", "frozen", "zero_volume", "closed",
)  # fmt: skip
COLUMNS = {
    "unique_id": object, "ds": "datetime64[ns]", "flag": object, "known": "datetime64[ns]",
}  # fmt: skip
"""The columns of tables of flags and their types, see :func:`find_flags`."""
# "closed" is not a mask: whether a panel's days are those of an exchange is inferred from all its
# rows, later ones too, and no later row may decide what is learned from.
MASKS = tuple(flag for flag in FLAGS if flag != "closed")
WRONG = ("copied", "reversed", UNCONFIRMED)  # flags of rows that are left out by default
# To be raised when flags change, or the times at which they are known: reviews then run again.
RULES = 4
_SEEN_NEXT = ("reversed", "jump")  # flags that are known at the next session

_REVERSED = 4.0  # minimum size of a reversed move, in usual moves of the series and the day
_TAKEN_BACK = 0.35  # maximum share of a reversed move that may remain, besides one usual move
# Maximum and minimum number of sessions that usual moves are measured over.
_HISTORY, _LEAST_HISTORY = 120, 30
_JUMP = np.log(1.4)  # minimum size of a jump, which must also exceed ten usual moves
_FROZEN = 5  # minimum number of sessions with the same close
_FEW_SERIES = 10  # with fewer series, the size of a day's moves cannot be judged
_AT_ONCE = 100  # number of series that a thread looks at


def as_texts(what: str, given: object) -> list[str]:
    """Return several texts as a list. Raises UsageError for anything else."""
    several = isinstance(given, Iterable) and not isinstance(given, str | bytes)
    several = several and getattr(given, "ndim", 1) == 1  # of arrays and frames
    texts = list(cast(Iterable[object], given)) if several else []
    if not several or not all(isinstance(text, str) for text in texts):
        raise wrong_argument(what, given, "a list of texts")
    return cast(list[str], texts)


def check_flags(flags: Sequence[str]) -> None:
    """Raise UsageError for an unknown flag, or for one whose rows cannot be left out."""
    flags = as_texts("mask", flags)
    unknown = [flag for flag in flags if flag not in MASKS]
    if unknown:
        why = "rows that have it are shown, not left out; " if unknown[0] in FLAGS else ""
        raise UsageError(f"flag {unknown[0]!r}: {why}expected some of {', '.join(MASKS)}")


def find_flags(panel: Panel) -> pd.DataFrame:
    """Return the flagged rows of a panel of prices: ``unique_id, ds, flag, known``.

    ``known`` is the time from which on the row has the flag, whatever comes later. It is after
    ``ds`` for copied and reversed sessions and for jumps; until that time a jump is unconfirmed.
    """
    flagged = {flag: np.zeros(panel.mask.shape, bool) for flag in FLAGS}
    copies_known_at = None
    if has_flags(panel):
        copies_known_at = _flag_prices(panel, flagged)
        for row, name in enumerate(panel.ids):
            if keeps_calendar(panel.frequency, name):
                flagged["closed"][row] = closed_days(panel, row)
    tables = [_table(panel, flag, rows, copies_known_at) for flag, rows in flagged.items()]
    return one_table(tables)


def one_table(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Return the flags of several tables as one, sorted by series, time and flag."""
    flags = pd.concat(tables, ignore_index=True)
    return flags.sort_values(["unique_id", "ds", "flag"], ignore_index=True)


def has_flags(panel: Panel) -> bool:
    """Return whether a panel holds prices by date; only these are flagged."""
    return panel.target != "y" and panel.times.dtype.kind == "M"


def _table(
    panel: Panel, flag: str, flagged: np.ndarray, copies_known_at: np.ndarray | None
) -> pd.DataFrame:
    """Return the observed rows with a flag; ``flagged``, ``copies_known_at``: (series, time)."""
    rows, positions = np.nonzero(flagged & panel.mask)
    known = positions
    if flag == "copied" and copies_known_at is not None:
        known = copies_known_at[rows, positions]
    elif flag in _SEEN_NEXT:
        known = next_rows(panel, rows, positions)
    return pd.DataFrame(
        {
            "unique_id": np.array(panel.ids, object)[rows],
            "ds": panel.times[positions],
            "flag": flag,
            "known": panel.times[known],
        }
    )


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


def flags_of(flags: pd.DataFrame, mask: Sequence[str] = WRONG) -> Flags:
    """Return the flags in a mask as a panel carries them, with the times at which they hold.

    ``flags``: the result of :func:`find_flags`. A jump is unconfirmed until it is known to be one.
    """
    lasting = flags[flags["flag"].isin(mask)].assign(until=np.datetime64("NaT", "ns"))
    jumps = flags[(flags["flag"] == "jump") & (UNCONFIRMED in mask)]
    waiting = jumps.assign(flag=UNCONFIRMED, known=jumps["ds"], until=jumps["known"])
    ids, kinds = (np.concatenate([part[name].to_numpy(object) for part in (lasting, waiting)])
                  for name in ("unique_id", "flag"))  # fmt: skip
    times, known, until = (
        np.concatenate([part[name].to_numpy("datetime64[ns]") for part in (lasting, waiting)])
        for name in ("ds", "known", "until")
    )
    return Flags(ids, times, kinds, known, until)


def without_flagged(panel: Panel, flags: pd.DataFrame) -> Panel:
    """Return the panel without the rows of a table of flags, see :func:`flags_known`."""
    flags = flags[flags["unique_id"].isin(panel.ids)]
    positions = np.searchsorted(panel.times, flags["ds"].to_numpy())
    inside = positions < len(panel.times)
    inside[inside] = panel.times[positions[inside]] == flags["ds"].to_numpy()[inside]
    row_of = {name: row for row, name in enumerate(panel.ids)}
    rows = flags["unique_id"].map(row_of).to_numpy(int)
    return panel.without(rows[inside], positions[inside])


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
        return [_Moves.of(its[at]) for its, at in zip(prices[some], rows[some], strict=True)]

    moves = [one for part in by_parts(measure_some, len(rows), _AT_ONCE) for one in part]
    day_scale = _day_scale(panel, rows, moves)

    def flag_some(some: slice) -> list[tuple[int, ...]]:
        found: list[tuple[int, ...]] = []
        for row in range(len(rows))[some]:
            at = rows[row]
            values = {name: panel.channel(name)[row, at] for name in panel.channels}
            for flag, marked in _marks(values, prices[row, at], moves[row], day_scale[at]).items():
                flagged[flag][row, at] = marked
            if set(BAR) <= set(values):
                found += ((row, *one) for one in repeated_later(values, at))
        return found

    found = [one for part in by_parts(flag_some, len(rows), _AT_ONCE) for one in part]
    copies = Copies(*np.array(found, int).reshape(-1, 4).T)
    known = when_known(copies, panel.mask.sum(0))
    return confirm_copies(flagged["copied"], panel, copies, known)


class _Moves(NamedTuple):
    """The moves of a series from row to row, and their usual size before each row, (row,)."""

    size: np.ndarray
    usual: np.ndarray

    @staticmethod
    def of(price: np.ndarray) -> "_Moves":
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
    if set(BAR) <= set(values):
        open_, high, low, close = (values[name] for name in BAR)
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
    prices = np.stack([open_, high, low, close])
    with np.errstate(invalid="ignore"):
        slack = 1e-4 * np.abs(close)
        top = np.nanmax(np.stack([open_, close, low, np.full(low.shape, -np.inf)]), axis=0)
        bottom = np.nanmin(np.stack([open_, close, high, np.full(low.shape, np.inf)]), axis=0)
        return (high < top - slack) | (low > bottom + slack) | (prices <= 0).any(0)


def _runs(price: np.ndarray, least: int) -> np.ndarray:
    """Return rows with the same price as at least the ``least`` - 1 rows before, (row,)."""
    rows = np.arange(len(price))
    changes = np.append(True, price[1:] != price[:-1])[: len(price)]
    return rows - np.maximum.accumulate(np.where(changes, rows, 0)) >= least - 1
