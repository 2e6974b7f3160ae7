"""Features of the volatility of prices with a long memory, and of the state of the market.

The state of the market on a day is made from a sample of all series, the panel's peers: how
volatile the median of them is, how volatile their mean is, and how far apart they move. Declared
indices show it, too. An index of volatility, such as the VIX, says what is expected by how high it
is, so the features of an index include its distance from its mean of about a year.

Volatilities have several half-lives, as in Corsi's heterogeneous autoregression (2009), Journal of
Financial Econometrics 7. All are logarithms, relative to the monthly volatility of the series.

Days are compared by date alone: beside prices of Tokyo, peers of New York show a session that had
not begun when Tokyo's ended.
"""

import dataclasses
import weakref
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int, Shaped

from forecaster.series.causal import Rows, decayed_mean, shift
from forecaster.series.panel.histories import Histories
from forecaster.series.panel.panel import Panel

FEWEST_PEERS = 10
"""The peers with a change on a day, without which the state of the market is unknown on it."""
_HALF_LIVES = (1, 3, 8, 20, 60, 200)  # rows
_MONTH = _HALF_LIVES.index(20)
_BEHIND = 5  # mean gaps between days, by which the state may be older than a row
_LARGEST_MOVE, _LARGEST_SHOCK, _LARGEST_SURPRISE, _LARGEST_DISTANCE = 0.2, 4.0, 3.0, 2.0
_TINY = 1e-8  # added to variances
OWN_FEATURES = 16
STATE_FEATURES = 19
INDEX_FEATURES = len(_HALF_LIVES) + 5
"""Features of each declared index."""


class State(NamedTuple):
    """The state of the market, day by day.

    - ``times``: the days on which enough peers have a row
    - ``levels``: logarithms of volatilities
    - ``moves``: the mean of the peers' moves in units of its volatility, and means of it; of an
      index its own moves, and its distance from its mean
    """

    times: Shaped[np.ndarray, " day"]
    levels: list[Float[np.ndarray, " day"]]
    moves: list[Float[np.ndarray, " day"]]


def volatility_features(
    panel: Panel, histories: Histories, change: Rows, market: Panel | None = None
) -> tuple[Rows, Iterator[Rows]]:
    """Return the logarithm of each series' monthly volatility, and an iterator of features.

    First come the features of the series itself (``OWN_FEATURES``), NaN where a column is missing,
    then those of the panel's peers (``STATE_FEATURES``), and of each declared index
    (``INDEX_FEATURES``), NaN where they are unknown.

    ``change``: the changes of the logarithm of the target; ``market``: the declared indices
    """
    variance, night = _variances(panel, histories, change)
    levels = [_log_volatility(variance, half_life) for half_life in _HALF_LIVES]
    level = levels[_MONTH]

    def made() -> Iterator[Rows]:
        yield from (each - level for each in levels if each is not level)
        yield from _of_changes(change, level)
        yield from _of_volume(_channel(panel, histories, "volume"))
        yield _log_volatility(night, 20) - level
        yield from _of_peers(panel, histories.positions, level)
        for row in range(0 if market is None else len(market.ids)):
            assert market is not None
            index = state_of_index(market.only(market.ids[row : row + 1]), panel.target)
            yield from _at_steps(index, panel, histories.positions, level)

    return level, made()


def _of_changes(change: Rows, level: Rows) -> Iterator[Rows]:
    """Yield features of the changes: their volatility, and signed and downward shocks."""
    yield _log_volatility(_clipped(change) ** 2, 20) - level
    shock = _shocks(change, level)
    downward = np.minimum(shock, 0.0) ** 2
    yield from (shock, _mean(shock, 3), _mean(shock, 20), np.abs(shock))
    yield from (_mean(downward, 3), _mean(downward, 20))


def _of_volume(volume: Rows) -> Iterator[Rows]:
    """Yield features of the volume: how far it was above its mean, and means of that."""
    logarithm = np.log(np.maximum(volume, 1.0))
    surprise = logarithm - shift(_mean(logarithm, 20), 1)
    surprise = np.clip(surprise, -_LARGEST_SURPRISE, _LARGEST_SURPRISE)
    yield from (surprise, _mean(surprise, 3), _mean(surprise, 20))


def _of_peers(
    panel: Panel, positions: Int[np.ndarray, "series step"], level: Rows
) -> Iterator[Rows]:
    """Yield what the peers show of the market at the steps of each series."""
    peers = panel.peers
    alike = peers is not None and peers.times.dtype.kind == panel.times.dtype.kind
    state = _state_once(peers) if peers is not None and alike else _unknown(panel, STATE_FEATURES)
    yield from _at_steps(state, panel, positions, level)


def _at_steps(
    state: State, panel: Panel, positions: Int[np.ndarray, "series step"], level: Rows
) -> Iterator[Rows]:
    """Yield a state of the market at the steps of each series, the latest that was known."""
    if not len(state.times):
        yield from [np.full(level.shape, np.nan)] * (len(state.levels) + len(state.moves))
        return
    times, at = state.times, panel.times[positions]
    latest = np.searchsorted(times, at, side="right") - 1
    mean_gap = (times[latest] - times[0]) // np.maximum(latest, 1)  # until then, not of later days
    known = (positions >= 0) & (latest >= 0) & (at - times[latest] <= _BEHIND * mean_gap)
    for each in state.levels:
        yield np.where(known, each[latest], np.nan) - level
    for each in state.moves:
        yield np.where(known, each[latest], np.nan)


_latest: list[tuple[weakref.ref[Panel], State]] = []  # the one that was asked for last


def _state_once(peers: Panel) -> State:
    """Return :func:`state_of`, once for all parts of a panel, which have the same peers."""
    known = [state for of, state in _latest if of() is peers]
    if known:
        return known[0]
    state = state_of(peers)
    _latest[:] = [(weakref.ref(peers), state)]
    return state


def state_of(peers: Panel) -> State:
    """Return the state of the market on the days on which enough peers have moved."""
    if not peers.mask.any():
        return _unknown(peers, STATE_FEATURES)
    histories = Histories.of(peers)
    z = np.log(histories.values[:, :, peers.channels.index(peers.target)])
    change = z - shift(z, 1)
    variance, _ = _variances(peers, histories, change)
    rows, steps = np.nonzero(histories.positions >= 0)
    days = histories.positions[rows, steps]

    def by_day(values: Rows) -> Float[np.ndarray, "series day"]:
        out = np.full((len(values), len(peers.times)), np.nan)
        out[rows, days] = values[rows, steps]
        return out

    moves = by_day(_clipped(change))
    enough = np.isfinite(moves).sum(0) >= FEWEST_PEERS
    moves = moves[:, enough]
    if not enough.any():
        return _unknown(peers, STATE_FEATURES)
    levels = [
        np.nanmedian(by_day(_log_volatility(variance, half_life))[:, enough], axis=0)
        for half_life in _HALF_LIVES
    ]
    mean = np.nanmean(moves, axis=0)[None]
    of_mean = [_log_volatility(mean**2, half_life) for half_life in _HALF_LIVES]
    apart = np.nanmean((moves - mean) ** 2, axis=0)[None]
    levels += [each[0] for each in of_mean]
    levels += [_log_volatility(apart, half_life)[0] for half_life in (1, 5, 20)]
    signed = _signed(_shocks(mean, of_mean[_MONTH]))
    return State(peers.times[enough], levels, [each[0] for each in signed])


def state_of_index(index: Panel, target: str) -> State:
    """Return what a declared index shows of the market, by its rows above zero.

    ``index``: a panel of one series; ``target``: its channel
    """
    seen = index.mask & (index.channel(target) > 0)
    if not seen.any():
        return _unknown(index, INDEX_FEATURES)
    index = dataclasses.replace(index, mask=seen)
    histories = Histories.of(index)
    z = np.log(histories.values[:, :, index.channels.index(target)])
    change = z - shift(z, 1)
    variance, _ = _variances(index, histories, change)
    levels = [_log_volatility(variance, half_life) for half_life in _HALF_LIVES]
    distance = np.clip(z - _mean(z, _HALF_LIVES[-1]), -_LARGEST_DISTANCE, _LARGEST_DISTANCE)
    moves = (*_signed(_shocks(change, levels[_MONTH])), distance)
    own = histories.positions[0] >= 0
    days = index.times[histories.positions[0, own]]
    return State(days, [each[0, own] for each in levels], [each[0, own] for each in moves])


def _unknown(panel: Panel, features: int) -> State:
    """Return a state without a day; ``features``: the number of features that are unknown."""
    return State(panel.times[:0], [np.array([])] * features, [])


def _signed(shock: Rows) -> tuple[Rows, Rows, Rows, Rows]:
    """Return shocks, their means of 3 and 20 rows, and that of squared downward ones."""
    downward = np.minimum(shock, 0.0) ** 2
    return shock, _mean(shock, 3), _mean(shock, 20), _mean(downward, 5)


def _variances(panel: Panel, histories: Histories, change: Rows) -> tuple[Rows, Rows]:
    """Return the variance of each session with the night before, and that of the night alone.

    The variance within a session is Garman & Klass's (1980), Journal of Business 53; where a column
    is missing, the squared change stands for the whole.
    """
    open_, high, low, close = (
        _channel(panel, histories, name) for name in ("open", "high", "low", "close")
    )
    open_, high, low = (np.where(each > 0, each, np.nan) for each in (open_, high, low))
    within = np.log(close / open_)
    night = _clipped(change - within) ** 2
    garman_klass = 0.5 * np.log(high / low) ** 2 - (2 * np.log(2) - 1) * within**2
    variance = np.maximum(garman_klass, 0.0) + night
    return np.where(np.isfinite(variance), variance, _clipped(change) ** 2), night


def _channel(panel: Panel, histories: Histories, name: str) -> Rows:
    if name not in panel.channels:
        return np.full(histories.values.shape[:2], np.nan)
    return histories.values[:, :, panel.channels.index(name)]


def _clipped(change: np.ndarray) -> np.ndarray:
    return np.clip(change, -_LARGEST_MOVE, _LARGEST_MOVE)


def _shocks(change: Rows, level: Rows) -> Rows:
    """Return the changes in units of the volatility before them."""
    return np.clip(change / np.exp(shift(level, 1)), -_LARGEST_SHOCK, _LARGEST_SHOCK)


def _log_volatility(variance: Rows, half_life: float) -> Rows:
    return 0.5 * np.log(_mean(variance, half_life) + _TINY)


def _mean(values: Rows, half_life: float) -> Rows:
    return decayed_mean(values, 0.5 ** (1 / half_life))
