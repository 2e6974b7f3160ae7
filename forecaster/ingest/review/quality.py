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

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from forecaster.ingest.review.copies import (
    BAR,
    compare_with_originals,
    confirm_copies,
    next_rows,
    repeated_later,
    when_known,
)
from forecaster.ingest.review.gaps import closed_days, keeps_calendar
from forecaster.ingest.sources.source import Date
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
    known_by: Date | np.datetime64 | None = None,
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


def without_flagged(
    panel: Panel,
    flags: pd.DataFrame,
    mask: Sequence[str] = WRONG,
    *,
    known_by: Date | np.datetime64 | None = None,
) -> Panel:
    """Return the panel without rows that have a flag in the mask; see :func:`flags_known`."""
    flags = flags_known(flags[flags["unique_id"].isin(panel.ids)], mask, known_by)
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


class _Rows(NamedTuple):
    """The observed rows of a panel: series, position in time, and rank within the series.

    Each array is (observed,). They convert arrays (series, time), with gaps, to arrays (series,
    rank) and back. In an array (series, rank) a series' rows follow each other, and the rest is
    NaN. Most panels have fewer ranks than times.
    """

    panel: Panel
    series: np.ndarray
    positions: np.ndarray
    ranks: np.ndarray

    @staticmethod
    def of(panel: Panel) -> "_Rows":
        series, positions = np.nonzero(panel.mask)
        starts = np.flatnonzero(np.diff(series, prepend=-1))
        first = np.repeat(starts, np.diff(np.append(starts, len(series))))
        return _Rows(panel, series, positions, np.arange(len(series)) - first)

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of arrays (series, rank)."""
        return len(self.panel.ids), int(self.ranks.max()) + 1

    def dense(self, values: np.ndarray, fill: float) -> np.ndarray:
        """Return values of the rows, (observed,), as an array (series, rank)."""
        out = np.full(self.shape, fill, np.result_type(values, type(fill)))
        out[self.series, self.ranks] = values
        return out

    def channel(self, name: str) -> np.ndarray:
        """Return a channel as an array (series, rank)."""
        return self.dense(self.panel.channel(name)[self.series, self.positions], np.nan)

    def lengths(self) -> np.ndarray:
        """Return the number of rows of each series, (series,)."""
        return self.panel.mask.sum(1)

    def write_into(self, target: np.ndarray, values: np.ndarray) -> None:
        """Write values (series, rank) into an array (series, time)."""
        target[self.series, self.positions] = values[self.series, self.ranks]


def _flag_prices(panel: Panel, flagged: dict[str, np.ndarray]) -> np.ndarray:
    """Set all flags except ``closed``; return the positions at which copies are known."""
    day_scale = _day_scale(panel)

    # In parts, because a thread has about twenty arrays with the size of a part in memory at once.
    def flag_some(some: slice) -> None:
        rows = _Rows.of(panel.only(panel.ids[some]))
        for flag, marked in _marks(rows, day_scale).items():
            rows.write_into(flagged[flag][some], marked)

    by_parts(flag_some, len(panel.ids), _AT_ONCE)
    copies = compare_with_originals(flagged["copied"], panel)
    known = when_known(copies, panel.mask.sum(0))
    return confirm_copies(flagged["copied"], panel, copies, known)


def _marks(rows: _Rows, day_scale: np.ndarray) -> dict[str, np.ndarray]:
    """Return which rows have each flag, (series, rank); copies are not confirmed yet."""
    panel = rows.panel
    price = rows.channel(panel.target)
    with np.errstate(invalid="ignore", divide="ignore"):
        moves = _moves(price)
    usual = _usual(moves)
    jumps = (np.abs(moves) > _JUMP) & (np.abs(moves) > 10 * usual)
    latest = np.arange(price.shape[1]) == (rows.lengths() - 1)[:, None]
    marks = {
        "frozen": _runs(price, _FROZEN),
        UNCONFIRMED: jumps & latest,
        "jump": jumps & ~latest,
    }
    if "volume" in panel.channels:
        marks["zero_volume"] = rows.channel("volume") == 0
    if not set(BAR) <= set(panel.channels):
        return marks
    open_, high, low, close = (rows.channel(name) for name in BAR)
    day = rows.dense(day_scale[rows.positions], 1.0)
    marks["ohlc"] = _inconsistent(open_, high, low, close)
    marks["reversed"] = _apart(high, low, moves) & _taken_back(moves, usual, day)
    marks["copied"] = repeated_later(open_, high, low, close)
    return marks


def _moves(price: np.ndarray) -> np.ndarray:
    """Return log changes from row to row; 0 for a row without a change."""
    moves = np.diff(np.log(np.where(price > 0, price, np.nan)), axis=1, prepend=np.nan)
    return np.where(np.isfinite(moves), moves, 0.0)


def _usual(moves: np.ndarray) -> np.ndarray:
    """Return the usual size of a move before each row, as a standard deviation.

    It is a rolling median of sizes, times 1.4826, which is robust against a few large moves.
    """
    sizes = pd.DataFrame(np.abs(moves).T)
    middle = sizes.rolling(_HISTORY, min_periods=_LEAST_HISTORY).median().shift(1).to_numpy().T
    return np.where(np.isfinite(middle), np.maximum(1.4826 * middle, 0.002), 0.02)


def _day_scale(panel: Panel) -> np.ndarray:
    """Return the size of the moves of all series on each day, relative to usual moves, (time,).

    It is at least 1, and exactly 1 until enough series have begun. So a series that begins later
    changes no earlier day.
    """
    sizes = np.full(panel.mask.shape, np.nan, np.float32)  # NaN in gaps

    def compare_some(some: slice) -> None:
        rows = _Rows.of(panel.only(panel.ids[some]))
        moves = _moves(rows.channel(panel.target))
        rows.write_into(sizes[some], np.abs(moves) / _usual(moves))

    by_parts(compare_some, len(panel.ids), _AT_ONCE)
    first = np.bincount(panel.mask.argmax(1), panel.mask.any(1), len(panel.times))
    scale = np.ones(len(panel.times))
    there = ~np.isnan(sizes)
    for time in np.flatnonzero(there.any(0) & (first.cumsum() >= _FEW_SERIES)):
        scale[time] = max(1.0, 1.4826 * float(np.median(sizes[there[:, time], time])))
    return scale


def _taken_back(moves: np.ndarray, usual: np.ndarray, day: np.ndarray) -> np.ndarray:
    """Return rows with a large move that the next move takes back, (series, rank)."""
    after = np.zeros(moves.shape)
    after[:, :-1] = moves[:, 1:]
    day_after = np.ones(day.shape)
    day_after[:, :-1] = day[:, 1:]
    sizes = np.minimum(np.abs(moves) / day, np.abs(after) / day_after)
    smaller = np.minimum(np.abs(moves), np.abs(after))
    left = np.abs(moves + after) < _TAKEN_BACK * smaller + usual
    return (sizes > _REVERSED * usual) & (moves * after < 0) & left


def _apart(high: np.ndarray, low: np.ndarray, moves: np.ndarray) -> np.ndarray:
    """Return rows whose whole session lies above both neighbours or below both."""
    out = np.zeros(high.shape, bool)
    above = (low[:, 1:-1] > high[:, :-2]) & (low[:, 1:-1] > high[:, 2:])
    below = (high[:, 1:-1] < low[:, :-2]) & (high[:, 1:-1] < low[:, 2:])
    out[:, 1:-1] = (above & (moves[:, 1:-1] > 0)) | (below & (moves[:, 1:-1] < 0))
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
    """Return rows with the same price as at least the ``least`` - 1 rows before."""
    same = np.zeros(price.shape, bool)
    same[:, 1:] = price[:, 1:] == price[:, :-1]
    run = np.zeros(price.shape[0], int)
    out = np.zeros(price.shape, bool)
    for step in range(price.shape[1]):
        run = np.where(same[:, step], run + 1, 0)
        out[:, step] = run >= least - 1
    return out
