"""What is wrong with prices, row by row, told from the prices alone. Nothing is changed.

Flags of rows:
    copied       open, high, low, close stand there again at a later session: the earlier is wrong,
                 and of two sessions in a row, either
    reversed     a session apart from both its neighbours, whose move the next one takes back
    unconfirmed  a jump at the latest session; the next one will tell
    jump         a jump of the adjusted price: a spin-off, news, or an error
    ohlc         close or open outside of low to high, or a price that is not positive
    frozen       the close has not moved for several sessions
    zero_volume  nothing was traded
    closed       the exchange was closed on that day
"""

import numpy as np
import pandas as pd

from forecaster.series import NEW_YORK, Panel, exchange_of, sessions

KINDS = (
    "copied", "reversed", "unconfirmed", "jump", "ohlc", "frozen", "zero_volume", "closed",
)  # fmt: skip
WRONG = ("copied", "reversed", "unconfirmed")  # left out by default

_COPIED_WITHIN = 70  # sessions
_COPIED_TOGETHER = 5  # series with copies on one day, where volumes do not confirm them
_COPIED_SHARE = 0.01  # of all series, likewise
_REVERSED = 4.0  # scales of the series' and the day's usual moves
_TAKEN_BACK = 0.35  # of the move may be left, one usual move aside
_HISTORY, _LEAST_HISTORY = 120, 30  # sessions that usual moves are measured over
_JUMP = np.log(1.4)  # and ten usual moves
_FROZEN = 5  # sessions with one close
_BLOCK = 500  # series at once


def find_flags(panel: Panel, exchanges: bool = True) -> pd.DataFrame:
    """Flagged rows of a panel of prices: ``unique_id, ds, flag, known``.

    ``known``: the time from which on the flag could be told; it is later than ``ds`` for copied
    and reversed sessions. ``exchanges``: whether ids are symbols that name their exchange.
    """
    found = {kind: np.zeros(panel.mask.shape, bool) for kind in KINDS}
    known = np.broadcast_to(np.arange(len(panel.times)), panel.mask.shape).copy()
    if panel.target != "y" and panel.times.dtype.kind == "M":
        _find(panel, found, known)
        if exchanges and is_daily(panel):
            for row, name in enumerate(panel.ids):
                found["closed"][row] = panel.mask[row] & ~_is_session(panel, name)
    parts = []
    for kind, flagged in found.items():
        rows, at = np.nonzero(flagged & panel.mask)
        names = np.array(panel.ids, object)[rows]
        times = panel.times[at], panel.times[known[rows, at]]
        late = kind in ("copied", "reversed")
        parts.append(
            pd.DataFrame(
                {"unique_id": names, "ds": times[0], "flag": kind, "known": times[int(late)]}
            )
        )
    flags = pd.concat(parts, ignore_index=True)
    return flags.sort_values(["unique_id", "ds", "flag"], ignore_index=True)


def count_gaps(panel: Panel) -> dict[str, int]:
    """By series, how many sessions of its exchange are missing between its first and last row.

    Where the exchange is not known, sessions are the times at which half of all series, or more,
    of those listed then have a row.
    """
    common = _common_times(panel)
    gaps = {}
    for row, name in enumerate(panel.ids):
        seen = panel.mask[row]
        first, last = np.flatnonzero(seen)[[0, -1]]
        own = _sessions_of(panel, name) if is_daily(panel) and panel.target != "y" else None
        if own is None:
            expected = common.copy()
        else:
            days = _days(panel)
            expected = np.isin(days, own)
            inside = own[(own >= days[first]) & (own <= days[last])]
            outside_panel = len(inside) - int(np.isin(inside, days).sum())
            gaps[name] = outside_panel
        expected[:first] = expected[last + 1 :] = False
        gaps[name] = gaps.get(name, 0) + int((expected & ~seen).sum())
    return gaps


def without_flagged(
    panel: Panel, flags: pd.DataFrame, kinds: tuple[str, ...] = WRONG, known_by=None
) -> Panel:
    """The panel without the rows that have a flag of these kinds.

    ``known_by``: leave out only rows whose flag could be told at that time, so that nothing later
    decides what a model learns from.
    """
    flags = flags[flags["flag"].isin(kinds) & flags["unique_id"].isin(panel.ids)]
    if known_by is not None:
        flags = flags[flags["known"] <= known_by]
    at = np.searchsorted(panel.times, flags["ds"].to_numpy())
    inside = at < len(panel.times)
    inside[inside] = panel.times[at[inside]] == flags["ds"].to_numpy()[inside]
    place = {name: row for row, name in enumerate(panel.ids)}
    rows = flags["unique_id"].map(place).to_numpy(int)
    return panel.without(rows[inside], at[inside])


def is_daily(panel: Panel) -> bool:
    """Whether the panel's times are days of an exchange, or could be."""
    return panel.frequency.alias in ("B", "D")


def _find(panel: Panel, found: dict[str, np.ndarray], known: np.ndarray) -> None:
    """Set flags, working on each series' rows without its gaps, which are shorter than panels."""
    days = _day_scale(panel)
    # Work in blocks: some twenty arrays of the panel's size are needed on the way.
    for low in range(0, len(panel.ids), _BLOCK):
        block = slice(low, low + _BLOCK)
        part = {kind: array[block] for kind, array in found.items()}
        _find_in(panel.only(panel.ids[block]), part, known[block], days)
    if found["copied"].any():
        _confirm_copies(found["copied"], known, panel)


def _find_in(
    panel: Panel, found: dict[str, np.ndarray], known: np.ndarray, days: np.ndarray
) -> None:
    seen = panel.mask
    rows, at = np.nonzero(seen)
    starts = np.flatnonzero(np.diff(rows, prepend=-1))
    first = np.repeat(starts, np.diff(np.append(starts, len(rows))))
    rank = np.arange(len(rows)) - first  # the row's number within its series
    wide = int(rank.max()) + 1

    def dense(name: str) -> np.ndarray:
        """A channel without gaps, (series, row), NaN behind each series' last row."""
        out = np.full((len(panel.ids), wide), np.nan)
        out[rows, rank] = panel.channel(name)[rows, at]
        return out

    def put(kind: str, flagged: np.ndarray) -> None:
        found[kind][rows, at] |= flagged[rows, rank]

    price = dense(panel.target)
    with np.errstate(invalid="ignore", divide="ignore"):
        moves = _moves(price)
    usual = _usual(moves)
    put("frozen", _runs(price, _FROZEN))
    bar = [n for n in ("open", "high", "low", "close") if n in panel.channels]
    if "volume" in panel.channels:
        put("zero_volume", dense("volume") == 0)
    later = np.full(price.shape, -1)
    if len(bar) == 4:
        open_, high, low, close = (dense(name) for name in bar)
        put("ohlc", _inconsistent(open_, high, low, close))
        apart = _apart(high, low, moves)
        day = np.ones(moves.shape)
        day[rows, rank] = days[at]
        taken_back = _taken_back(moves, usual, day)
        put("reversed", apart & taken_back)
        copied = _copies(open_, high, low, close)
        put("copied", copied >= 0)
        later = copied
    jumps = (np.abs(moves) > _JUMP) & (np.abs(moves) > 10 * usual)
    lengths = seen.sum(1)
    final = np.arange(wide) == (lengths - 1)[:, None]
    put("unconfirmed", jumps & final)
    put("jump", jumps & ~final)
    # A reversal is known one row later, a copy when its original appears.
    next_row = np.minimum(rank + 1, lengths[rows] - 1)
    when = np.where(later[rows, rank] >= 0, np.maximum(later[rows, rank], next_row), next_row)
    places = np.zeros((len(panel.ids), wide), int)
    places[rows, rank] = at
    known[rows, at] = places[rows, when]


def _moves(price: np.ndarray) -> np.ndarray:
    moves = np.diff(np.log(np.where(price > 0, price, np.nan)), axis=1, prepend=np.nan)
    return np.where(np.isfinite(moves), moves, 0.0)


def _usual(moves: np.ndarray) -> np.ndarray:
    """A robust scale of the moves before each row: pandas' rolling median, as a deviation."""
    sizes = pd.DataFrame(np.abs(moves).T)
    middle = sizes.rolling(_HISTORY, min_periods=_LEAST_HISTORY).median().shift(1).to_numpy().T
    return np.where(np.isfinite(middle), np.maximum(1.4826 * middle, 0.002), 0.02)


def _day_scale(panel: Panel) -> np.ndarray:
    """How much larger than usual the moves of all series are on a day, 1 at least, (time,)."""
    if len(panel.ids) < 10:
        return np.ones(len(panel.times))
    size = np.full(panel.mask.shape, np.nan, np.float32)
    for row, seen in enumerate(panel.mask):
        moves = _moves(panel.channel(panel.target)[row, seen][None])
        size[row, seen] = (np.abs(moves) / _usual(moves))[0]
    days = np.ones(len(panel.times))
    for at in np.flatnonzero(panel.mask.any(0)):
        days[at] = max(1.0, 1.4826 * float(np.median(size[panel.mask[:, at], at])))
    return days


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


def _copies(open_, high, low, close) -> np.ndarray:
    """The row of the later session that a row is a copy of; -1 for none."""
    bars = np.stack([open_, high, low, close], axis=-1)
    moving = np.isfinite(bars).all(-1) & (high > low)
    # Equal bars have equal hashes; unequal ones practically never.
    bits = np.ascontiguousarray(bars).view(np.uint64)
    factors = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9,
                        0x27D4EB2F165667C5], np.uint64)  # fmt: skip
    with np.errstate(over="ignore"):
        mixed = bits * factors
        keys = (mixed ^ (mixed >> np.uint64(29))).sum(-1, dtype=np.uint64)
    order = np.argsort(keys, axis=1, kind="stable")
    sorted_keys = np.take_along_axis(keys, order, 1)
    same = sorted_keys[:, 1:] == sorted_keys[:, :-1]
    earlier, later = order[:, :-1], order[:, 1:]
    same &= (later - earlier <= _COPIED_WITHIN) & np.take_along_axis(moving, earlier, 1)
    same &= np.take_along_axis(moving, later, 1)
    out = np.full(close.shape, -1)
    where, k = np.nonzero(same)
    out[where, earlier[where, k]] = later[where, k]
    return out


def _confirm_copies(copied: np.ndarray, known: np.ndarray, panel: Panel) -> None:
    """Keep copies that come with their volume, or on a day with many: of thin or cheap stocks two
    sessions are sometimes the same by chance. Those on a day with many are known once there are
    enough of them. Of copies in a row the later is flagged too: either may be the wrong one."""
    bars = np.stack([panel.channel(name) for name in ("open", "high", "low", "close")], axis=-1)
    volume = panel.channel("volume") if "volume" in panel.channels else None
    listed = panel.mask.sum(0)
    alone = np.zeros(copied.shape, bool)
    later = np.zeros(copied.shape, int)
    for row, at in np.argwhere(copied):
        span = slice(at + 1, at + 1 + 2 * _COPIED_WITHIN)
        same = (bars[row, span] == bars[row, at]).all(-1)
        if not same.any():  # too far away in a series with long gaps
            copied[row, at] = False
            continue
        later[row, at] = at + 1 + int(same.argmax())
        if volume is not None:
            same &= volume[row, span] == volume[row, at]
            alone[row, at] = same.any()
            if same.any():
                known[row, at] = at + 1 + int(same.argmax())
    for at in np.flatnonzero(copied.any(0)):
        rows = np.flatnonzero(copied[:, at])
        needed = max(_COPIED_TOGETHER, int(np.ceil(_COPIED_SHARE * listed[at])))
        if len(rows) >= needed:
            told = np.sort(later[rows, at])[needed - 1]
            others = rows[~alone[rows, at]]
            known[others, at] = np.maximum(later[others, at], told)
            alone[others, at] = True
    copied &= alone
    for row, at in np.argwhere(copied):
        if not panel.mask[row, at + 1 : later[row, at]].any():  # no session in between
            copied[row, later[row, at]] = True
            known[row, later[row, at]] = max(known[row, at], later[row, at])


def _inconsistent(open_, high, low, close) -> np.ndarray:
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


def _sessions_of(panel: Panel, name: str) -> np.ndarray | None:
    first, last = pd.Timestamp(panel.times[0]), pd.Timestamp(panel.times[-1])
    exchange = exchange_of(name)
    if exchange is None or (exchange == NEW_YORK and not panel.frequency.nyse):
        return None  # no symbol that names its exchange, or the days are not those of New York
    try:
        return sessions(exchange, first, last)
    except (ValueError, NotImplementedError):
        return None


def _is_session(panel: Panel, name: str) -> np.ndarray:
    own = _sessions_of(panel, name)
    if own is None or not len(own):
        return np.ones(len(panel.times), bool)
    days = _days(panel)
    return np.isin(days, own) | (days < own[0])


def _days(panel: Panel) -> np.ndarray:
    """The panel's times without the time of day."""
    return panel.times.astype("datetime64[D]").astype("datetime64[ns]")


def _common_times(panel: Panel) -> np.ndarray:
    """Times at which at least half of the series that are listed then have a row."""
    first = panel.mask.argmax(1)
    last = panel.mask.shape[1] - 1 - panel.mask[:, ::-1].argmax(1)
    steps = np.arange(len(panel.times))
    listed = np.zeros(len(steps) + 1, int)
    np.add.at(listed, first, 1)
    np.add.at(listed, last + 1, -1)
    return panel.mask.sum(0) * 2 >= np.maximum(np.cumsum(listed)[:-1], 1)
