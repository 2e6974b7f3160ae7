"""A model of the volatility of prices that all series share, and that sees the state of the market.

Networks see the last months of their own series. This model has a longer memory, and sees how
volatile a sample of all series is now. It is linear: the logarithm of the scale of future returns,
relative to the monthly volatility of the series, is a weighted sum of terms, as in Corsi's
heterogeneous autoregression (2009), Journal of Financial Econometrics 7.

The weights maximise the likelihood of Student-t distributions less a penalty on their squares.

Each term is known at a step from the steps up to it. Volatilities have several half-lives; they are
logarithms, relative to the monthly volatility. The state of the market on a day is made from a
sample of all series, the panel's peers: how volatile the median of them is now and was in a
quarter, and how their mean moves. A declared index shows it, too. An index of volatility, such as
the VIX, says what is expected by how high it is, so an index also has its distance from its mean of
about a year.

Days are compared by date alone: beside prices of Tokyo, peers of New York show a session that had
not begun when Tokyo's ended.
"""

import dataclasses
import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped
from msgspec import Meta

from forecaster.series.causal import Rows, decayed_mean, shift
from forecaster.series.panel.histories import Histories, sampled_names
from forecaster.series.panel.panel import Panel
from forecaster.series.parts import Parts
from forecaster.series.price_features import active_days

FEWEST_PEERS = 10
"""The peers with a change on a day, without which the state of the market is unknown on it."""
OWN_TERMS = (
    "day", "quarter", "two years",  # volatility of these half-lives, over a month's
    "closes", "nights",  # a month's volatility of closes and of nights, over that of ranges
    "unevenness", "shocks",  # of a month's days
    "volume", "volume of days",  # today's above its usual one, and the mean of some days
    "reports tomorrow", "reports later",  # volume on the anniversaries of the days ahead
)  # fmt: skip
STATE_TERMS = ("market today", "market's quarter", "market's move", "market's falls")
INDEX_TERMS = (*STATE_TERMS, "distance")
"""The terms of a declared index."""
_DAY, _MONTH, _QUARTER, _YEARS = 1, 20, 60, 500  # half-lives, in rows
_ABOUT_A_YEAR = 200  # half-life of the mean that an index is away from, in rows
_AHEAD = 5  # rows in which reports are looked for, whatever the horizon, as weights are reused
_BEHIND = 5  # mean gaps between days, by which the state may be older than a row
_LARGEST_MOVE, _LARGEST_SHOCK, _LARGEST_SURPRISE, _LARGEST_DISTANCE = 0.2, 4.0, 3.0, 2.0
_TINY = 1e-8  # added to variances
_PEERS = 50
_LATELY = 31  # days, or rows where times are whole numbers
_FAR = 5.0  # deviations that a term is clipped to
_LARGEST, _LARGEST_WEIGHT = 1e3, 10.0  # largest numbers in a file
_USUAL = 0.02  # volatility of a day, where no other is known
CONSTANT, _OWN, _RELATIVE = "constant", "own volatility", "the market's over own volatility"
_GROUPS = (
    *[_OWN] * 6, "falls", "volume", "volume", "reports", "reports", *[_RELATIVE] * 3, "market",
)  # fmt: skip
"""What each term is about, those of a declared index like those of the market."""

Weight: TypeAlias = Annotated[float, Meta(ge=-_LARGEST_WEIGHT, le=_LARGEST_WEIGHT)]
ScaleWeights: TypeAlias = tuple[tuple[Weight, Weight, Weight], ...]
"""For each step ahead a constant, the weight of a series' networks, and that of the model."""


class CommonVolatility(NamedTuple):
    """A fitted model.

    - ``peers``: the series that the state of the market is made from
    - ``centre``, ``spread``: mean and deviation of each term in training
    - ``weights``: for each step ahead the constant, and the weight of each term
    - ``scale_weights``: how it is combined with a series' networks; empty: not known yet
    - ``market``: the declared indices that it sees, whose terms come last
    """

    peers: tuple[str, ...]
    centre: tuple[Annotated[float, Meta(ge=-_LARGEST, le=_LARGEST)], ...]
    spread: tuple[Annotated[float, Meta(gt=0, le=_LARGEST)], ...]
    weights: tuple[tuple[Weight, ...], ...]
    scale_weights: ScaleWeights = ()
    market: tuple[str, ...] = ()

    def log_scale(
        self,
        panel: Panel,
        histories: Histories,
        change: Rows,
        parts: Parts | None = None,
        usual: float | None = None,
    ) -> Float[np.ndarray, "series step horizon"]:
        """Return the logarithm of the scale of the returns that begin at each step.

        NaN where the state of the market is unknown. Arguments as of :func:`volatility_terms`.

        - ``parts``: where the terms are kept, in groups
        - ``usual``: the volatility beside which that of the market is kept; None: unknown
        """
        weights = np.array(self.weights)
        market = panel.market if self.market else None
        level, terms = volatility_terms(panel, histories, change, market)
        ahead = np.log(np.arange(1, len(weights) + 1)) / 2
        # The horizon comes first, because sums over short rows take six times as long.
        total = level + ahead[:, None, None] + weights[:, :1, None]
        decisive = decisive_term(self.peers)
        kept = None if parts is None else _Groups(self, parts, level, usual or _USUAL)
        for row, raw in enumerate(terms):  # one at a time, to save memory
            if row == decisive:
                total[:, np.isnan(raw)] = np.nan
            each = standardised(raw, self.centre[row], self.spread[row])
            for sums, weight in zip(total, weights[:, 1 + row], strict=True):
                sums += each * weight
            if kept is not None:
                kept.add(row, raw, each)
        return np.ascontiguousarray(np.moveaxis(total, 0, -1))

    def renamed(self, names: Mapping[str, str]) -> "CommonVolatility":
        """Return the model with peers of other names; ``names``: the new ones by the old ones."""
        peers, market = (
            tuple(dict.fromkeys(names.get(name, name) for name in given))
            for given in (self.peers, self.market)
        )
        return self._replace(peers=peers, market=market)

    def fits(self, horizon: int, market: Sequence[str]) -> bool:
        """Return whether sizes fit together, as they may not in a file.

        ``market``: the indices that networks see
        """
        peers = len({*self.peers})
        enough = peers == len(self.peers) and (peers >= FEWEST_PEERS or (not peers and self.market))
        terms = len(OWN_TERMS) + len(STATE_TERMS) + len(INDEX_TERMS) * len(self.market)
        return (
            bool(enough)
            and self.market in ((), tuple(market))  # older models see no index
            and len(self.centre) == len(self.spread) == terms
            and [len(row) for row in self.weights] == [terms + 1] * horizon
            and len(self.scale_weights) == horizon
        )


def decisive_term(peers: Sequence[str]) -> int:
    """Return the term without which the state of the market is unknown."""
    seen_in_index = 0 if len(peers) >= FEWEST_PEERS else len(STATE_TERMS)
    return len(OWN_TERMS) + seen_in_index


def standardised(values: np.ndarray, centre: Any, spread: Any) -> np.ndarray:
    """Return values in deviations from their mean, 0 where unknown."""
    return np.nan_to_num(np.clip((values - centre) / spread, -_FAR, _FAR), nan=0.0)


class _Groups:
    """The terms of a logarithm of a scale, added up in groups, at the origins of some parts."""

    def __init__(self, model: CommonVolatility, parts: Parts, level: Rows, usual: float) -> None:
        self._model, self._parts, self._usual = model, parts, np.log(usual)
        self._weights = np.array(model.weights)
        self._level = self._at(level)
        constant = np.log(np.arange(1, len(self._weights) + 1)) / 2 + self._weights[:, 0]
        own = self._level + np.zeros(len(constant))
        parts.common.update({_OWN: own, CONSTANT: np.broadcast_to(constant, own.shape)})
        self._groups = _GROUPS + (*_GROUPS[-len(STATE_TERMS) :], "market") * len(model.market)

    def _at(self, each: Rows) -> Float[np.ndarray, "series origin 1"]:
        return self._parts.at_origins(each[..., None])

    def add(self, row: int, raw: Rows, each: Rows) -> None:
        """Add a term, as it is and standardised.

        A volatility of the market is shown by itself: what is relative in it is own volatility.
        """
        common, group, weights = self._parts.common, self._groups[row], self._weights[:, 1 + row]
        value = theirs = self._at(each)
        if group == _RELATIVE:
            group, absolute = "market", self._at(raw) + self._level - self._usual
            theirs = np.nan_to_num((absolute - self._model.centre[row]) / self._model.spread[row])
        common[group] = common.get(group, 0.0) + weights * theirs
        common[_OWN] = common[_OWN] + weights * (value - theirs)


class State(NamedTuple):
    """The state of the market, day by day.

    - ``times``: the days on which enough peers have a row
    - ``levels`` (3, day): logarithms of the volatility of today, of a quarter, and of the mean move
      of today
    - ``others`` (other, day): squared falls of the mean of some days; of an index also its distance
      from its mean
    """

    times: Shaped[np.ndarray, " day"]
    levels: Float[np.ndarray, "3 day"]
    others: Float[np.ndarray, "other day"]


def volatility_terms(
    panel: Panel, histories: Histories, change: Rows, market: Panel | None = None
) -> tuple[Rows, Iterator[Rows]]:
    """Return the logarithm of each series' monthly volatility, and an iterator of the terms.

    First come those of the series itself (``OWN_TERMS``), NaN where a column is missing, then those
    of the panel's peers (``STATE_TERMS``), and of each declared index (``INDEX_TERMS``), NaN where
    they are unknown.

    ``change``: the changes of the logarithm of the target; ``market``: the declared indices
    """
    variance, night = _variances(histories, change)
    level = _log_volatility(variance, _MONTH)
    today = _log_volatility(variance, 0.01)
    logarithm = np.log(np.maximum(histories.channel("volume"), 1.0))
    surprise = logarithm - shift(_mean(logarithm, _MONTH), 1)
    surprise = np.clip(surprise, -_LARGEST_SURPRISE, _LARGEST_SURPRISE)
    own = [
        _log_volatility(variance, _DAY) - level,
        _log_volatility(variance, _QUARTER) - level,
        _log_volatility(variance, _YEARS) - level,
        _log_volatility(_clipped(change) ** 2, _MONTH) - level,
        _log_volatility(night, _MONTH) - level,
        _mean((today - level) ** 2, _MONTH),
        _mean(_shocks(change, level), _MONTH),
        surprise,
        _mean(surprise, 3),
        *active_days(surprise, panel.times, histories.positions, _AHEAD),
    ]
    peers, indices = panel.peers, () if market is None else market.ids
    alike = peers is not None and peers.times.dtype.kind == panel.times.dtype.kind
    states = [state_of(peers) if peers is not None and alike else _unknown(panel, STATE_TERMS)]
    for name in indices:
        assert market is not None
        states.append(state_of_index(market.only([name]), panel.target))
    of_market = (_at_steps(state, panel, histories.positions, level) for state in states)
    return level, itertools.chain(own, *of_market)


def _at_steps(
    state: State, panel: Panel, positions: Int[np.ndarray, "series step"], level: Rows
) -> Iterator[Rows]:
    """Yield a state of the market at the steps of each series, the latest that was known."""
    if not len(state.times):
        yield from [np.full(level.shape, np.nan)] * (len(state.levels) + len(state.others))
        return
    times, at = state.times, panel.times[positions]
    latest = np.searchsorted(times, at, side="right") - 1
    mean_gap = (times[latest] - times[0]) // np.maximum(latest, 1)  # until then, not of later days
    known = (positions >= 0) & (latest >= 0) & (at - times[latest] <= _BEHIND * mean_gap)
    for each in state.levels:
        yield np.where(known, each[latest], np.nan) - level
    for each in state.others:
        yield np.where(known, each[latest], np.nan)


@functools.lru_cache(maxsize=1)  # all parts of a panel have the same peers
def state_of(peers: Panel) -> State:
    """Return the state of the market on the days on which enough peers have moved."""
    histories = Histories.from_panel(peers)
    z = np.log(histories.channel(peers.target))
    change = z - shift(z, 1)
    variance, _ = _variances(histories, change)
    rows, steps = np.nonzero(histories.positions >= 0)
    days = histories.positions[rows, steps]

    def by_day(values: Rows) -> Float[np.ndarray, "series day"]:
        out = np.full((len(values), len(peers.times)), np.nan)
        out[rows, days] = values[rows, steps]
        return out

    moves = by_day(_clipped(change))
    enough = np.isfinite(moves).sum(0) >= FEWEST_PEERS
    if not enough.any():
        return _unknown(peers, STATE_TERMS)
    now, usual = (
        np.nanmedian(by_day(_log_volatility(variance, half_life))[:, enough], axis=0)
        for half_life in (_DAY, _QUARTER)
    )
    mean = np.nanmean(moves[:, enough], axis=0)[None]
    levels = np.stack([now, usual, _log_volatility(mean**2, _DAY)[0]])
    falls = _falls(mean, _log_volatility(mean**2, _MONTH))
    return State(peers.times[enough], levels, falls)


def state_of_index(index: Panel, target: str) -> State:
    """Return what a declared index shows of the market, by its rows above zero.

    ``index``: a panel of one series; ``target``: its channel
    """
    seen = index.mask & (index.channel(target) > 0)
    if not seen.any():
        return _unknown(index, INDEX_TERMS)
    histories = Histories.from_panel(dataclasses.replace(index, mask=seen))
    z = np.log(histories.channel(index.target))
    change = z - shift(z, 1)
    variance, _ = _variances(histories, change)
    distance = np.clip(z - _mean(z, _ABOUT_A_YEAR), -_LARGEST_DISTANCE, _LARGEST_DISTANCE)
    levels = np.concatenate(
        [_log_volatility(variance, half_life) for half_life in (_DAY, _QUARTER)]
        + [_log_volatility(_clipped(change) ** 2, _DAY)]
    )
    others = np.concatenate([_falls(change, _log_volatility(variance, _MONTH)), distance])
    return State(index.times[seen[0]], levels, others)


def _unknown(panel: Panel, terms: tuple[str, ...]) -> State:
    """Return a state without a day; ``terms``: those that are unknown."""
    return State(panel.times[:0], np.empty((3, 0)), np.empty((len(terms) - 3, 0)))


def _falls(change: Rows, level: Rows) -> Rows:
    """Return means of the squared falls of some rows, in units of the monthly volatility."""
    return _mean(np.minimum(_shocks(change, level), 0.0) ** 2, 5)


def _variances(histories: Histories, change: Rows) -> tuple[Rows, Rows]:
    """Return the variance of each session with the night before, and that of the night alone.

    The variance within a session is Garman & Klass's (1980), Journal of Business 53; where a column
    is missing, the squared change stands for the whole.
    """
    open_, high, low, close = map(histories.channel, ("open", "high", "low", "close"))
    open_, high, low = (np.where(each > 0, each, np.nan) for each in (open_, high, low))
    within = np.log(close / open_)
    night = _clipped(change - within) ** 2
    garman_klass = 0.5 * np.log(high / low) ** 2 - (2 * np.log(2) - 1) * within**2
    variance = np.maximum(garman_klass, 0.0) + night
    return np.where(np.isfinite(variance), variance, _clipped(change) ** 2), night


def _clipped(change: np.ndarray) -> np.ndarray:
    return np.clip(change, -_LARGEST_MOVE, _LARGEST_MOVE)


def _shocks(change: Rows, level: Rows) -> Rows:
    """Return the changes in units of the volatility before them."""
    return np.clip(change / np.exp(shift(level, 1)), -_LARGEST_SHOCK, _LARGEST_SHOCK)


def _log_volatility(variance: Rows, half_life: float) -> Rows:
    return 0.5 * np.log(_mean(variance, half_life) + _TINY)


def _mean(values: Rows, half_life: float) -> Rows:
    return decayed_mean(values, 0.5 ** (1 / half_life))


def peers_at(end: Any, latest: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a sample of the series that show the market's state at a time, in their order.

    They have rows within the month before. ``latest``: the time of each series' latest row
    """
    month = np.timedelta64(_LATELY, "D") if isinstance(end, np.datetime64) else _LATELY
    lately = [name for name, last in latest.items() if last >= end - month]
    return tuple(lately[int(row)] for row in sampled_names(lately, _PEERS))


def latest_times(panel: Panel) -> dict[str, Any]:
    """Return the time of the latest row of each series that has any."""
    return {name: times[-1] for name, times in panel.times_of_rows().items() if len(times)}


def with_peers(panel: Panel) -> Panel:
    """Return a panel of prices with the peers of its end, unless it has some already.

    What is drawn must not depend on series that begin later, so cut the panel at a cutoff first.
    """
    if panel.peers is not None or panel.target == "y":
        return panel
    return panel.with_peers(peers_at(panel.times[-1], latest_times(panel)))


_LEARNED = 200  # series that the weights are learned from, at most
_FEWEST_ROWS = 504  # rows of the longest series
_FEWEST_EXAMPLES = 2_000
_BEFORE = 60  # rows of a series before the first that is learned from
_DEGREES = 5.0  # of freedom, about those of stocks; bands are calibrated afterwards
_PENALTY = 0.03  # between 0.001 and 0.1 nothing changes; with 1 ten tickers of two years are worse
_ROUNDS = 8  # further ones change nothing


def learn_common_volatility(
    panel: Panel, horizon: int, held_back: Int[np.ndarray, " series"]
) -> CommonVolatility | None:
    """Learn the model from a panel of prices; None where peers, rows or examples are too few.

    ``held_back``: the number of latest rows of each series that weights are not learned from
    """
    if panel.peers is None or len(panel.peers.ids) < FEWEST_PEERS:
        if panel.market is None:
            return None
        panel = dataclasses.replace(panel, peers=None)  # the indices alone show the market
    if panel.mask.sum(1).max(initial=0) < _FEWEST_ROWS:
        return None
    peers, market = (() if part is None else part.ids for part in (panel.peers, panel.market))
    chosen = sampled_names(panel.ids, _LEARNED)
    some = panel.only([panel.ids[int(row)] for row in chosen])
    inputs, returns, histories = _examples(some, horizon)
    usable = np.isfinite(returns).all(-1) & np.isfinite(inputs[..., decisive_term(peers)])
    usable &= np.arange(int(usable.shape[1])) >= histories.first[:, None] + _BEFORE
    usable &= _early(histories, horizon, held_back[chosen])
    if usable.sum() < _FEWEST_EXAMPLES:
        return None
    x, y = inputs[usable], returns[usable]
    centre, spread = _moments(x)
    x = standardised(x, centre.astype(np.float32), spread.astype(np.float32))  # to save memory
    x = np.concatenate([np.ones_like(x[:, :1]), x], 1)
    penalty = np.full(int(x.shape[1]), _PENALTY)
    penalty[0] = 1e-9  # the constant is free
    start = np.zeros(len(penalty))
    weights = [by_fisher_scoring(x, y[:, h], start, penalty, _ROUNDS) for h in range(horizon)]
    of_steps = tuple(tuple(each.tolist()) for each in weights)
    return CommonVolatility(
        peers, tuple(centre.tolist()), tuple(spread.tolist()), of_steps, market=market
    )


def _examples(
    panel: Panel, horizon: int
) -> tuple[
    Float[np.ndarray, "series step term"], Float[np.ndarray, "series step horizon"], Histories
]:
    """Return terms and returns, both float32, the latter in units of the monthly volatility."""
    histories = Histories.from_panel(panel)
    with np.errstate(divide="ignore", invalid="ignore"):
        z = np.log(histories.channel(panel.target))
        level, terms = volatility_terms(panel, histories, z - shift(z, 1), panel.market)
        inputs = np.stack([each.astype(np.float32) for each in terms], axis=-1)
        steps = range(1, horizon + 1)
        moves = [(shift(z, -h) - z) / (np.exp(level) * np.sqrt(h)) for h in steps]
    return inputs, np.stack(moves, axis=-1).astype(np.float32), histories


def _early(
    histories: Histories, horizon: int, held_back: Int[np.ndarray, " series"]
) -> Bool[np.ndarray, "series step"]:
    """Return the steps to learn from.

    None of their outcomes lies among a series' rows held back, nor on or after the first day that
    the longest series holds back.
    """
    positions = histories.positions
    steps = np.arange(int(positions.shape[1]))
    boundary = np.maximum(positions.shape[1] - held_back, 0)
    longest = int(np.argmin(histories.first))
    day = positions[longest, boundary[longest]]
    outcome = np.full_like(positions, np.iinfo(positions.dtype).max)
    outcome[:, :-horizon] = positions[:, horizon:]
    return (steps + horizon < boundary[:, None]) & (outcome < day)


def _moments(
    x: Float[np.ndarray, "example term"],
) -> tuple[Float[np.ndarray, " term"], Float[np.ndarray, " term"]]:
    """Return the mean and the deviation of each term; 0 and 1 for one that never changes."""
    known = np.isfinite(x)
    count = np.maximum(known.sum(0), 1)
    centre = np.where(known, x, 0.0).sum(0, dtype=float) / count
    squares = np.where(known, (x - centre) ** 2, 0.0).sum(0, dtype=float)
    spread = np.sqrt(squares / count)
    changes = spread > 1e-6  # a column may be missing
    return np.where(changes, centre, 0.0), np.where(changes, spread, 1.0)


def by_fisher_scoring(
    x: Float[np.ndarray, "example term"],
    y: Float[np.ndarray, " example"],
    usual: Float[np.ndarray, " term"],
    penalty: Float[np.ndarray, " term"],
    rounds: int,
) -> Float[np.ndarray, " term"]:
    """Return the weights of terms in the logarithm of a Student-t distribution's scale.

    They maximise the likelihood less a penalty on the distance from usual weights. The information
    does not depend on the scale, so one matrix serves all rounds.

    ``y``: what has these distributions, around zero
    """
    information = 2 * _DEGREES / (_DEGREES + 3) * (x.T @ x).astype(float) / len(x)
    inverse = np.linalg.inv(information + np.diag(penalty))
    weights = usual
    for _ in range(rounds):
        squares = (y * np.exp(-(x @ weights.astype(x.dtype)))) ** 2
        score = (_DEGREES + 1) * squares / (_DEGREES + squares) - 1
        slope = (x.T @ score).astype(float) / len(x) - penalty * (weights - usual)
        weights = weights + inverse @ slope
    return weights
