"""A model of the volatility of prices that all series share, and that sees the state of the market.

Networks see the last months of their own series. This model has a longer memory, and sees how
volatile a sample of all series is now (:mod:`forecaster.series.prices.market_state`). It is linear:
the logarithm of the scale of future returns, relative to the monthly volatility of the series, is a
weighted sum of features. Its weights maximise the likelihood of Student-t distributions less a
penalty on their squares. The penalty is chosen by the likelihood of days that are later than all
days of training: otherwise the model would learn by heart the days that series share.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np
from jaxtyping import Bool, Float, Int

from forecaster.errors import UsageError, listed
from forecaster.series.calendar.times import show_time
from forecaster.series.causal import Rows, shift
from forecaster.series.panel.auxiliary import CommonWeights
from forecaster.series.panel.histories import Histories
from forecaster.series.panel.panel import Panel
from forecaster.series.panel.sampled import sampled_names
from forecaster.series.prices.market_state import (
    FEWEST_PEERS,
    INDEX_FEATURES,
    OWN_FEATURES,
    STATE_FEATURES,
    volatility_features,
)

_PEERS = 50
_LEARNED = 200  # series that the weights are learned from, at most
_FEWEST_ROWS = 504  # rows of the longest series
_FEWEST_EXAMPLES = 2_000
_BEFORE = 60  # rows of a series before the first that is learned from
_DEGREES = 5.0  # of freedom, about those of stocks; bands are calibrated afterwards
_PENALTIES = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001, 3e-4, 1e-4, 3e-5)
_ROUNDS = 4  # of Fisher scoring with each penalty; further ones change nothing
_FAR = 5.0  # deviations that a feature is clipped to
_LARGEST, _LARGEST_WEIGHT = 1e3, 10.0  # largest numbers in a file


OpinionWeights: TypeAlias = tuple[tuple[float, float, float], ...]
"""For each step ahead a constant, the weight of a series' networks, and that of the model."""


class CommonVolatility(NamedTuple):
    """A fitted model.

    - ``peers``: the series that the state of the market is made from
    - ``centre``, ``spread``: mean and deviation of each feature in training
    - ``weights``: for each step ahead the constant, and the weight of each feature
    - ``opinions``: how it is combined with a series' networks; empty: not known yet
    - ``until``, ``frequency``: the latest time that was seen, as text, and the alias of the
      frequency; empty: unknown
    - ``market``: the declared indices that it sees, whose features come last
    """

    peers: tuple[str, ...]
    centre: tuple[float, ...]
    spread: tuple[float, ...]
    weights: tuple[tuple[float, ...], ...]
    opinions: OpinionWeights = ()
    until: str = ""
    frequency: str = ""
    market: tuple[str, ...] = ()

    def log_scale(
        self, panel: Panel, histories: Histories, change: Rows
    ) -> Float[np.ndarray, "series step horizon"]:
        """Return the logarithm of the scale of the returns that begin at each step.

        NaN where the state of the market is unknown. Arguments as of :func:`volatility_features`.
        """
        weights = np.array(self.weights)
        market = panel.market if self.market else None
        level, features = volatility_features(panel, histories, change, market)
        ahead = np.log(np.arange(1, len(weights) + 1)) / 2
        total = level[..., None] + ahead + weights[:, 0]
        decisive = _decisive(self.peers)
        for row, each in enumerate(features):  # one at a time, to save memory
            if row == decisive:
                total[np.isnan(each)] = np.nan
            each = _standardised(each, self.centre[row], self.spread[row])
            total += each[..., None] * weights[:, 1 + row]
        return total

    @property
    def for_later_fits(self) -> CommonWeights | None:
        """The weights for later fits; None where their latest time is unknown."""
        if not self.until:
            return None
        until = _as_time(self.until)
        return CommonWeights(
            self.centre, self.spread, self.weights, until, self.frequency, self.market
        )

    def renamed(self, names: Mapping[str, str]) -> "CommonVolatility":
        """Return the model with peers of other names; ``names``: the new ones by the old ones."""
        peers, market = (
            tuple(names.get(name, name) for name in given) for given in (self.peers, self.market)
        )
        return self._replace(peers=peers, market=market)

    @staticmethod
    def from_json(fields: Mapping[str, Any] | None) -> "CommonVolatility | None":
        """Read what ``_asdict`` returned. Raises TypeError, ValueError or KeyError otherwise."""
        if fields is None:
            return None
        given = fields["peers"]
        rows = [fields["centre"], fields["spread"], *fields["weights"]]
        if isinstance(given, str) or not all(isinstance(name, str) for name in given):
            raise TypeError("common_volatility: peers: expected names")
        peers = tuple(str(name) for name in given)
        market = names_in(fields.get("market"))
        if len(set(peers)) < max(FEWEST_PEERS, len(peers)) and (peers or not market):
            raise ValueError(f"common_volatility: peers: expected {FEWEST_PEERS} different names")
        if not all(type(one) in (int, float) for row in rows for one in row):
            raise TypeError("common_volatility: expected numbers")
        opinions = [*fields.get("opinions", [(0.0, 0.5, 0.5)] * len(fields["weights"]))]
        if not all(type(one) in (int, float) for row in opinions for one in row):
            raise TypeError("common_volatility: opinions: expected numbers")
        centre, spread, *weights = (tuple(map(float, row)) for row in rows)
        sound = all(abs(one) <= _LARGEST for row in rows for one in row) and min(spread) > 0
        count = OWN_FEATURES + STATE_FEATURES + INDEX_FEATURES * len(market)
        sound &= all(abs(one) <= _LARGEST_WEIGHT for row in weights for one in row)
        sound &= [len(row) for row in rows[2:]] == [count + 1] * len(weights)
        sound &= [len(row) for row in opinions] == [3] * len(weights)
        sound &= all(abs(one) <= _LARGEST_WEIGHT for row in opinions for one in row)
        if not sound or not weights or (len(centre), len(spread)) != (count, count):
            raise ValueError(f"common_volatility: expected {count} features, numbers below 1,000")
        of_each = tuple((float(one), float(own), float(all_)) for one, own, all_ in opinions)
        said = fields.get("until", ""), fields.get("frequency", "")
        if not all(isinstance(text, str) for text in said):
            raise TypeError("common_volatility: until, frequency: expected text")
        _as_time(str(said[0]))  # raises ValueError for what is no time
        until, frequency = map(str, said)
        return CommonVolatility(
            peers, centre, spread, tuple(weights), of_each, until, frequency, market
        )


def names_in(value: object) -> tuple[str, ...]:
    """Return the names in a file: none, one, or a list. Raises TypeError for anything else."""
    names = list(value) if isinstance(value, list | tuple) else [] if value is None else [value]
    if not all(isinstance(name, str) for name in names):
        raise TypeError(f"market: expected names; got {value!r:.50}")
    return tuple(map(str, names))


def _as_time(text: str) -> np.int64 | np.datetime64:
    return np.int64(text) if text.lstrip("-").isdecimal() else np.datetime64(text)


def peers_among(ids: Sequence[str], most: int = _PEERS) -> tuple[str, ...]:
    """Return a sample of series, in their order. Which they are depends on their names alone."""
    return tuple(ids[int(row)] for row in sampled_names(ids, most))


def learn_common_volatility(
    panel: Panel, horizon: int, held_back: Int[np.ndarray, " series"]
) -> CommonVolatility | None:
    """Learn the model from a panel of prices, and from the other series beside it, if any.

    None where there are too few peers, rows or examples. Raises UsageError for other series, or
    weights, that cannot be used.

    ``held_back``: the number of latest rows of each series that weights are not learned from; the
    penalty is chosen by them
    """
    peers, other = panel.peers, panel.auxiliary
    last = panel.times[panel.mask.any(0)].max()
    if peers is None or len(peers.ids) < FEWEST_PEERS:
        if other is not None:
            raise _too_few("these prices", 0 if peers is None else len(peers.ids))
        if panel.market is None:
            return None
        peers = None
    if isinstance(other, CommonWeights):
        return _reused(other, panel, last, horizon)
    if other is None and panel.mask.sum(1).max(initial=0) < _FEWEST_ROWS:
        return None
    names = peers_among(panel.ids, _LEARNED)
    chosen = np.isin(np.array(panel.ids, object), np.array(names, object))
    early, late, until = _own_examples(panel.only(names), horizon, held_back[chosen])
    if other is not None:
        other = dataclasses.replace(other, market=panel.market)
        early = early.joined(_examples_until(until, other, horizon))
    if len(early.inputs) < _FEWEST_EXAMPLES or not len(late.inputs):
        if other is not None:
            raise UsageError(
                f"learn-from: expected {_FEWEST_EXAMPLES:,} rows to learn from, and one of these "
                f"series after its first {_BEFORE} that is held back; got {len(early.inputs):,} "
                f"and {len(late.inputs):,}. Give more or longer series"
            )
        return None
    centre, spread = _moments(early.inputs)
    as_inputs = centre.astype(np.float32), spread.astype(np.float32)  # to save memory
    x, x_late = (_standardised(part.inputs, *as_inputs) for part in (early, late))
    weights = [_weights(x, early.returns[:, h], x_late, late.returns[:, h]) for h in range(horizon)]
    return CommonVolatility(
        _names_of(peers), tuple(centre.tolist()), tuple(spread.tolist()),
        tuple(map(tuple, weights)), until=str(last), frequency=panel.frequency.alias,
        market=_names_of(panel.market),
    )  # fmt: skip


def _decisive(peers: Sequence[str]) -> int:
    """Return the feature without which the state of the market is unknown."""
    return OWN_FEATURES if len(peers) >= FEWEST_PEERS else OWN_FEATURES + STATE_FEATURES


def _names_of(panel: Panel | None) -> tuple[str, ...]:
    return () if panel is None else panel.ids


def _too_few(which: str, there: int) -> UsageError:
    return UsageError(
        f"learn-from: the model of volatility sees the market in at least {FEWEST_PEERS} series; "
        f"{which} are {there}. Add more, or leave out what is to be learned from"
    )


def _reused(known: CommonWeights, panel: Panel, last: np.generic, horizon: int) -> CommonVolatility:
    """Return a model with the weights of an earlier fit; ``last``: the latest time of this one."""
    assert panel.peers is not None
    if (known.until.dtype.kind == "M") != (last.dtype.kind == "M"):
        raise UsageError("learn-from: expected weights of series that also have dates, or also not")
    if cast(Any, known.until) > last:
        raise UsageError(
            f"learn-from: the weights are of a fit that saw rows until {show_time(known.until)}, "
            f"but these series end, or are cut off, at {show_time(last)}; expected a fit until "
            "then at the latest, as otherwise it has seen what is to be forecast"
        )
    if len(known.weights) < horizon:
        raise UsageError(
            f"learn-from: the weights are of a fit that forecasts {len(known.weights)} steps; "
            f"expected at least {horizon}, the horizon of this one"
        )
    if known.market != (market := _names_of(panel.market)):
        raise UsageError(
            f"learn-from: the weights are of a fit {_beside(known.market)}; expected one "
            f"{_beside(market)}, as this one. Declare the same indices, in the same order"
        )
    return CommonVolatility(
        panel.peers.ids, known.centre, known.spread, known.weights[:horizon],
        until=str(known.until), frequency=known.frequency, market=known.market,
    )  # fmt: skip


def _beside(market: tuple[str, ...]) -> str:
    return f"with the market {listed(market)}" if market else "without a market"


class _Examples(NamedTuple):
    """Examples to learn from.

    - ``inputs``: the features
    - ``returns``: those that followed, in units of the monthly volatility
    """

    inputs: Float[np.ndarray, "example feature"]
    returns: Float[np.ndarray, "example horizon"]

    def joined(self, others: "_Examples") -> "_Examples":
        return _Examples(*(np.concatenate(both) for both in zip(self, others, strict=True)))


def _own_examples(
    panel: Panel, horizon: int, held_back: Int[np.ndarray, " series"]
) -> tuple[_Examples, _Examples, np.generic]:
    """Return examples to learn from, later ones, and the first day that is held back."""
    inputs, returns, histories = _examples(panel, horizon)
    early, late, day = _divided(histories, horizon, held_back)
    usable = _usable(inputs, returns, histories, _decisive(_names_of(panel.peers)))
    early, late = early & usable, late & usable
    return (
        _Examples(inputs[early], returns[early]), _Examples(inputs[late], returns[late]),
        panel.times[day],
    )  # fmt: skip


def _examples_until(until: np.generic, panel: Panel, horizon: int) -> _Examples:
    """Return examples of other series, as these were known before a day."""
    if len(panel.ids) < FEWEST_PEERS:
        raise _too_few("the other series", len(panel.ids))
    days = np.flatnonzero(panel.mask.any(0) & (panel.times < until))
    if len(days):
        panel = panel.until(panel.times[days[-1]]).masked()
        panel = panel.with_peers(peers_among(panel.ids)).only(peers_among(panel.ids, _LEARNED))
        inputs, returns, histories = _examples(panel, horizon)
        some = _usable(inputs, returns, histories, _decisive(_names_of(panel.peers)))
        if some.any():
            return _Examples(inputs[some], returns[some])
    raise UsageError(
        f"learn-from: the other series have no rows to learn from before {show_time(until)}, the "
        "first day that is held back here; expected earlier ones"
    )


def _usable(
    inputs: Float[np.ndarray, "series step feature"],
    returns: Float[np.ndarray, "series step horizon"],
    histories: Histories,
    decisive: int,
) -> Bool[np.ndarray, "series step"]:
    """Return the steps with a known state of the market and known returns, late enough."""
    usable = np.isfinite(returns).all(-1) & np.isfinite(inputs[..., decisive])
    return usable & (np.arange(int(usable.shape[1])) >= histories.first[:, None] + _BEFORE)


def _examples(
    panel: Panel, horizon: int
) -> tuple[
    Float[np.ndarray, "series step feature"], Float[np.ndarray, "series step horizon"], Histories
]:
    """Return features and returns, both float32, the latter in units of the monthly volatility."""
    histories = Histories.of(panel)
    with np.errstate(divide="ignore", invalid="ignore"):
        z = np.log(histories.values[:, :, panel.channels.index(panel.target)])
        level, features = volatility_features(panel, histories, z - shift(z, 1), panel.market)
        inputs = np.stack([each.astype(np.float32) for each in features], axis=-1)
        steps = range(1, horizon + 1)
        moves = [(shift(z, -h) - z) / (np.exp(level) * np.sqrt(h)) for h in steps]
    return inputs, np.stack(moves, axis=-1).astype(np.float32), histories


def _divided(
    histories: Histories, horizon: int, held_back: Int[np.ndarray, " series"]
) -> tuple[Bool[np.ndarray, "series step"], Bool[np.ndarray, "series step"], int]:
    """Return the steps to learn from, later ones to choose the penalty by, and the day between.

    No outcome of the former lies among a series' rows held back, nor on or after the first day that
    the longest series holds back.
    """
    positions = histories.positions
    steps = np.arange(int(positions.shape[1]))
    boundary = np.maximum(positions.shape[1] - held_back, 0)
    longest = int(np.argmin(histories.first))
    day = positions[longest, boundary[longest]]
    outcome = np.full_like(positions, np.iinfo(positions.dtype).max)
    outcome[:, :-horizon] = positions[:, horizon:]
    own = steps >= boundary[:, None]
    early = (steps + horizon < boundary[:, None]) & (outcome < day)
    return early, own & (positions >= day), int(day)


def _moments(
    x: Float[np.ndarray, "example feature"],
) -> tuple[Float[np.ndarray, " feature"], Float[np.ndarray, " feature"]]:
    """Return the mean and the deviation of each feature; 0 and 1 for one that never changes."""
    known = np.isfinite(x)
    count = np.maximum(known.sum(0), 1)
    centre = np.where(known, x, 0.0).sum(0, dtype=float) / count
    squares = np.where(known, (x - centre) ** 2, 0.0).sum(0, dtype=float)
    spread = np.sqrt(squares / count)
    changes = spread > 1e-6  # a column may be missing
    return np.where(changes, centre, 0.0), np.where(changes, spread, 1.0)


def _standardised(values: np.ndarray, centre: Any, spread: Any) -> np.ndarray:
    """Return values in deviations from their mean, 0 where unknown."""
    return np.nan_to_num(np.clip((values - centre) / spread, -_FAR, _FAR), nan=0.0)


def _weights(
    x: Float[np.ndarray, "example feature"],
    y: Float[np.ndarray, " example"],
    x_late: Float[np.ndarray, "later feature"],
    y_late: Float[np.ndarray, " later"],
) -> list[float]:
    """Return the constant and the weights for one step ahead, by Fisher scoring.

    The information of the logarithm of a Student-t distribution's scale does not depend on the
    scale, so one matrix serves all rounds with a penalty.

    - ``x``, ``y``: features and returns to learn from
    - ``x_late``, ``y_late``: later ones. Penalties fall until the loss on them rises
    """
    x, x_late = (np.concatenate([np.ones_like(part[:, :1]), part], 1) for part in (x, x_late))
    penalised = np.ones(int(x.shape[1]))
    penalised[0] = 1e-9  # the constant is free
    information = 2 * _DEGREES / (_DEGREES + 3) * (x.T @ x).astype(float) / len(x)
    weights = np.zeros(int(x.shape[1]))
    best = weights
    least = np.inf
    for penalty in _PENALTIES:
        inverse = np.linalg.inv(information + penalty * np.diag(penalised))
        for _ in range(_ROUNDS):
            log_scale = x @ weights.astype(np.float32)
            squares = (y * np.exp(-log_scale)) ** 2
            score = (_DEGREES + 1) * squares / (_DEGREES + squares) - 1
            slope = (x.T @ score).astype(float) / len(x) - penalty * penalised * weights
            weights = weights + inverse @ slope
        loss = _loss(x_late @ weights.astype(np.float32), y_late)
        if not loss < least:
            break
        least, best = loss, weights
    return best.tolist()


def _loss(log_scale: Float[np.ndarray, " example"], y: Float[np.ndarray, " example"]) -> float:
    """Return the mean negative log likelihood, up to a constant."""
    squares = (y * np.exp(-log_scale)) ** 2
    losses = log_scale + 0.5 * (_DEGREES + 1) * np.log1p(squares / _DEGREES)
    return float(losses.mean(dtype=float))
