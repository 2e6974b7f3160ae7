"""Flags on prices that look wrong, row by row, from the prices alone. Nothing is changed.

Flags of rows:
    copied       a later session has the same open, high, low and close: the earlier is wrong, and
                 of two consecutive sessions both are flagged, since either may be
    reversed     a session apart from both its neighbours, whose move the next one takes back
    unconfirmed  a jump at the latest session; the next one will show whether it holds
    jump         a jump of the adjusted price: a spin-off, news, or an error
    ohlc         close or open outside of low to high, or a price that is not positive
    frozen       the close has not moved for several sessions
    zero_volume  nothing was traded
    closed       the exchange was closed on that day; cannot be left out, see MASKS
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from forecaster.ingest.review.copies import (
    BAR,
    Copies,
    come_again,
    compare_with_originals,
    confirm_copies,
    next_rows,
    when_known,
)
from forecaster.ingest.review.gaps import is_daily, is_session
from forecaster.ingest.sources.source import Date
from forecaster.series import UNCONFIRMED, Flags, Panel

FLAGS = (
    "copied", "reversed", UNCONFIRMED, "jump", "ohlc", "frozen", "zero_volume", "closed",
)  # fmt: skip
# Whether days are those of an exchange shows in all rows of a panel, later ones among them, so
# what is learned from must not depend on it.
MASKS = tuple(flag for flag in FLAGS if flag != "closed")
WRONG = ("copied", "reversed", UNCONFIRMED)  # left out by default
RULES = 2  # raise it when flags, or when they are known, change: stores are reviewed again then
_SEEN_NEXT = ("reversed", "jump")  # known at the next session

_REVERSED = 4.0  # scales of the series' and the day's usual moves
_TAKEN_BACK = 0.35  # of the move may be left, one usual move aside
_HISTORY, _LEAST_HISTORY = 120, 30  # sessions that usual moves are measured over
_JUMP = np.log(1.4)  # and ten usual moves
_FROZEN = 5  # sessions with one close
_FEW_SERIES = 10  # fewer say nothing about how large the moves of a day are
_BLOCK = 500  # series at once


class Together(NamedTuple):
    """What only all series of a store together show of some of them.

    - ``day_scale`` (time,): how much larger than usual the moves of all were on a day
    - ``copies``, ``known``: the sessions of these series that come again, and when that is known
    """

    day_scale: np.ndarray
    copies: Copies
    known: np.ndarray


def find_flags(
    panel: Panel, *, exchanges: bool = True, together: Together | None = None
) -> pd.DataFrame:
    """Flagged rows of a panel of prices: ``unique_id, ds, flag, known``.

    ``known``: the time from which on the row has the flag, whatever comes after. It is later than
    ``ds`` for copied and reversed sessions and for jumps; until then a jump is unconfirmed.
    ``exchanges``: whether ids are symbols that name their exchange. ``together``: of a panel that
    is a part of another one, on its time axis.
    """
    flagged = {flag: np.zeros(panel.mask.shape, bool) for flag in FLAGS}
    copies_known_at = None
    if has_flags(panel):
        copies_known_at = _flag_prices(panel, flagged, together)
        if exchanges and is_daily(panel):
            for row, name in enumerate(panel.ids):
                flagged["closed"][row] = ~is_session(panel, name)
    tables = [_table(panel, flag, rows, copies_known_at) for flag, rows in flagged.items()]
    return one_table(tables)


def one_table(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Flags of several tables in their usual order."""
    flags = pd.concat(tables, ignore_index=True)
    return flags.sort_values(["unique_id", "ds", "flag"], ignore_index=True)


def has_flags(panel: Panel) -> bool:
    """Whether these are prices by date."""
    return panel.target != "y" and panel.times.dtype.kind == "M"


def _table(
    panel: Panel, flag: str, flagged: np.ndarray, copies_known_at: np.ndarray | None
) -> pd.DataFrame:
    """The observed rows with a flag; ``flagged`` and ``copies_known_at`` (series, time)."""
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
    """The flagged rows that a mask leaves out; with ``known_by``, as they were flagged then.

    So nothing later decides what a model learns from: a flag counts from the time at which it is
    known, and a jump of what was the latest session then is unconfirmed.
    """
    if known_by is None:
        return flags[flags["flag"].isin(mask)]
    known = flags["known"] <= known_by
    waiting = (flags["flag"] == "jump") & (flags["ds"] <= known_by) & ~known
    then = flags.assign(flag=flags["flag"].mask(waiting, UNCONFIRMED))
    return then[then["flag"].isin(mask) & (known | waiting)]


def flags_of(flags: pd.DataFrame, mask: Sequence[str] = WRONG) -> Flags:
    """The flags of a mask, for a panel to carry, with those that rows have for a time only.

    ``flags``: as :func:`find_flags` returns them. A jump is unconfirmed until it is known as one.
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
    """The panel without the rows that have a flag of the mask; arguments as of `flags_known`."""
    flags = flags_known(flags[flags["unique_id"].isin(panel.ids)], mask, known_by)
    positions = np.searchsorted(panel.times, flags["ds"].to_numpy())
    inside = positions < len(panel.times)
    inside[inside] = panel.times[positions[inside]] == flags["ds"].to_numpy()[inside]
    row_of = {name: row for row, name in enumerate(panel.ids)}
    rows = flags["unique_id"].map(row_of).to_numpy(int)
    return panel.without(rows[inside], positions[inside])


class _Rows(NamedTuple):
    """The observed rows of a panel: the series, the position in time, and the rank in its series.

    All three are (observed,). They lead from (series, time), with gaps, to (series, rank), where
    each series' rows follow each other and the rest is NaN; that is shorter than most panels.
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
        """Of arrays by series and rank."""
        return len(self.panel.ids), int(self.ranks.max()) + 1

    def dense(self, values: np.ndarray, fill: float) -> np.ndarray:
        """Values of the rows, (observed,), as (series, rank)."""
        out = np.full(self.shape, fill, np.result_type(values, type(fill)))
        out[self.series, self.ranks] = values
        return out

    def channel(self, name: str) -> np.ndarray:
        """A channel as (series, rank)."""
        return self.dense(self.panel.channel(name)[self.series, self.positions], np.nan)

    def lengths(self) -> np.ndarray:
        """The rows of each series, (series,)."""
        return self.panel.mask.sum(1)

    def put(self, target: np.ndarray, values: np.ndarray) -> None:
        """Write values (series, rank) into an array (series, time)."""
        target[self.series, self.positions] = values[self.series, self.ranks]


def _flag_prices(
    panel: Panel, flagged: dict[str, np.ndarray], together: Together | None
) -> np.ndarray:
    """Set all flags but ``closed``; returns the positions at which copies are known."""
    if together is None:
        begun = first_rows(panel).cumsum()
        day_scale = day_scale_of(relative_moves(panel), begun)
    else:
        day_scale = together.day_scale
    # Work in blocks: some twenty arrays of the panel's size are needed on the way.
    for low in range(0, len(panel.ids), _BLOCK):
        block = slice(low, low + _BLOCK)
        rows = _Rows.of(panel.only(panel.ids[block]))
        for flag, marked in _marks(rows, day_scale).items():
            rows.put(flagged[flag][block], marked)
    if together is None:
        copies = compare_with_originals(flagged["copied"], panel)
        known = when_known(copies, panel.mask.sum(0))
    else:
        copies, known = together.copies, together.known
    return confirm_copies(flagged["copied"], panel, copies, known)


def copies_in(panel: Panel) -> Copies:
    """The sessions of these series that come again, confirmed or not."""
    copied = np.zeros(panel.mask.shape, bool)
    if set(BAR) <= set(panel.channels):
        for low in range(0, len(panel.ids), _BLOCK):
            block = slice(low, low + _BLOCK)
            rows = _Rows.of(panel.only(panel.ids[block]))
            rows.put(copied[block], come_again(*(rows.channel(name) for name in BAR)))
    return compare_with_originals(copied, panel)


def _marks(rows: _Rows, day_scale: np.ndarray) -> dict[str, np.ndarray]:
    """By flag the rows that have it, (series, rank); copies are not confirmed yet."""
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
    marks["copied"] = come_again(open_, high, low, close)
    return marks


def _moves(price: np.ndarray) -> np.ndarray:
    """Log changes from row to row; 0 where there is none."""
    moves = np.diff(np.log(np.where(price > 0, price, np.nan)), axis=1, prepend=np.nan)
    return np.where(np.isfinite(moves), moves, 0.0)


def _usual(moves: np.ndarray) -> np.ndarray:
    """A robust scale of the moves before each row: pandas' rolling median, as a deviation."""
    sizes = pd.DataFrame(np.abs(moves).T)
    middle = sizes.rolling(_HISTORY, min_periods=_LEAST_HISTORY).median().shift(1).to_numpy().T
    return np.where(np.isfinite(middle), np.maximum(1.4826 * middle, 0.002), 0.02)


def first_rows(panel: Panel) -> np.ndarray:
    """How many series begin at each time, (time,)."""
    return np.bincount(panel.mask.argmax(1), panel.mask.any(1), len(panel.times))


def relative_moves(panel: Panel) -> np.ndarray:
    """Sizes of moves in units of the series' usual ones, (series, time); NaN where no row is."""
    size = np.full(panel.mask.shape, np.nan, np.float32)
    for row, observed in enumerate(panel.mask):
        moves = _moves(panel.channel(panel.target)[row, observed][None])
        size[row, observed] = (np.abs(moves) / _usual(moves))[0]
    return size


def day_scale_of(sizes: np.ndarray, begun: np.ndarray) -> np.ndarray:
    """How much larger than usual the moves of all series are on a day, 1 at least, (time,).

    1 as long as there have been few series: one that begins later changes no earlier day.
    ``sizes`` (series, time): of :func:`relative_moves`; ``begun`` (time,): series up to each time.
    """
    scale = np.ones(len(begun))
    there = ~np.isnan(sizes)
    for time in np.flatnonzero(there.any(0) & (begun >= _FEW_SERIES)):
        scale[time] = max(1.0, 1.4826 * float(np.median(sizes[there[:, time], time])))
    return scale


def _taken_back(moves: np.ndarray, usual: np.ndarray, day: np.ndarray) -> np.ndarray:
    """A large move whose opposite follows."""
    after = np.zeros(moves.shape)
    after[:, :-1] = moves[:, 1:]
    day_after = np.ones(day.shape)
    day_after[:, :-1] = day[:, 1:]
    sizes = np.minimum(np.abs(moves) / day, np.abs(after) / day_after)
    smaller = np.minimum(np.abs(moves), np.abs(after))
    left = np.abs(moves + after) < _TAKEN_BACK * smaller + usual
    return (sizes > _REVERSED * usual) & (moves * after < 0) & left


def _apart(high: np.ndarray, low: np.ndarray, moves: np.ndarray) -> np.ndarray:
    """The whole session lies above both its neighbours, or below both."""
    out = np.zeros(high.shape, bool)
    above = (low[:, 1:-1] > high[:, :-2]) & (low[:, 1:-1] > high[:, 2:])
    below = (high[:, 1:-1] < low[:, :-2]) & (high[:, 1:-1] < low[:, 2:])
    out[:, 1:-1] = (above & (moves[:, 1:-1] > 0)) | (below & (moves[:, 1:-1] < 0))
    return out


def _inconsistent(
    open_: np.ndarray, high: np.ndarray, low: np.ndarray, close: np.ndarray
) -> np.ndarray:
    """Close or open outside of low to high, or a price that is not positive."""
    prices = np.stack([open_, high, low, close])
    with np.errstate(invalid="ignore"):
        slack = 1e-4 * np.abs(close)
        top = np.nanmax(np.stack([open_, close, low, np.full(low.shape, -np.inf)]), axis=0)
        bottom = np.nanmin(np.stack([open_, close, high, np.full(low.shape, np.inf)]), axis=0)
        return (high < top - slack) | (low > bottom + slack) | (prices <= 0).any(0)


def _runs(price: np.ndarray, least: int) -> np.ndarray:
    """Rows whose price has been the same for so many rows, up to them."""
    same = np.zeros(price.shape, bool)
    same[:, 1:] = price[:, 1:] == price[:, :-1]
    run = np.zeros(price.shape[0], int)
    out = np.zeros(price.shape, bool)
    for step in range(price.shape[1]):
        run = np.where(same[:, step], run + 1, 0)
        out[:, step] = run >= least - 1
    return out
