"""Learn the weights of the model of volatility that prices share.

They maximise the likelihood of Student-t distributions less a penalty on their squares. The penalty
is chosen by the likelihood of days that are later than all days of training: otherwise the model
would learn by heart the days that series share.
"""

import dataclasses
from typing import Any, NamedTuple, cast

import numpy as np
from jaxtyping import Bool, Float, Int

from forecaster.errors import UsageError, listed
from forecaster.series.calendar.times import show_time
from forecaster.series.causal import shift
from forecaster.series.panel.auxiliary import CommonWeights
from forecaster.series.panel.histories import Histories
from forecaster.series.panel.panel import Panel
from forecaster.series.prices.common_volatility import (
    CommonVolatility,
    decisive_term,
    latest_times,
    peers_among,
    standardised,
)
from forecaster.series.prices.volatility_terms import FEWEST_PEERS, volatility_terms

_LEARNED = 200  # series that the weights are learned from, at most
_FEWEST_ROWS = 504  # rows of the longest series
_FEWEST_EXAMPLES = 2_000
_BEFORE = 60  # rows of a series before the first that is learned from
_DEGREES = 5.0  # of freedom, about those of stocks; bands are calibrated afterwards
_PENALTIES = (10.0, 3.0, 1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001, 3e-4, 1e-4, 3e-5)
_ROUNDS = 4  # of Fisher scoring with each penalty; further ones change nothing


def learn_common_volatility(
    panel: Panel, horizon: int, held_back: Int[np.ndarray, " series"]
) -> CommonVolatility | None:
    """Learn the model from a panel of prices, and from the other series beside it, if any.

    None where there are too few peers, rows or examples. Raises UsageError for other series, or
    weights, that cannot be used.

    ``held_back``: the number of latest rows of each series that weights are not learned from; the
    penalty is chosen by them
    """
    other = panel.auxiliary
    if panel.peers is None or len(panel.peers.ids) < FEWEST_PEERS:
        there = 0 if panel.peers is None else len(panel.peers.ids)
        if isinstance(other, CommonWeights) or (other is not None and panel.market is None):
            raise _too_few("these prices", there)
        if panel.market is None:
            return None
        panel = dataclasses.replace(panel, peers=None)  # the indices alone show the market
    if isinstance(other, CommonWeights):
        return _reused(other, panel, horizon)
    if other is None and panel.mask.sum(1).max(initial=0) < _FEWEST_ROWS:
        return None
    both = _early_and_late(panel, horizon, held_back)
    if both is None:
        return None
    early, late = both
    centre, spread = _moments(early.inputs)
    as_inputs = centre.astype(np.float32), spread.astype(np.float32)  # to save memory
    x, x_late = (standardised(part.inputs, *as_inputs) for part in both)
    weights = [_weights(x, early.returns[:, h], x_late, late.returns[:, h]) for h in range(horizon)]
    return CommonVolatility(
        _names_of(panel.peers), tuple(centre.tolist()), tuple(spread.tolist()),
        tuple(map(tuple, weights)), until=str(_latest(panel)), frequency=panel.frequency.alias,
        market=_names_of(panel.market),
    )  # fmt: skip


def _early_and_late(
    panel: Panel, horizon: int, held_back: Int[np.ndarray, " series"]
) -> "tuple[_Examples, _Examples] | None":
    """Return examples to learn from, and later ones to choose the penalty by; None: too few."""
    names = peers_among(panel.ids, _LEARNED)
    chosen = np.isin(np.array(panel.ids, object), np.array(names, object))
    early, late, until = _own_examples(panel.only(names), horizon, held_back[chosen])
    other = panel.auxiliary
    if isinstance(other, Panel):
        other = dataclasses.replace(other, market=panel.market)
        early = early.joined(_examples_until(until, other, horizon, panel.peers))
    if len(early.inputs) >= _FEWEST_EXAMPLES and len(late.inputs):
        return early, late
    if other is not None:
        raise UsageError(
            f"learn-from: expected {_FEWEST_EXAMPLES:,} rows to learn from, and one of these "
            f"series after its first {_BEFORE} that is held back; got {len(early.inputs):,} "
            f"and {len(late.inputs):,}. Give more or longer series"
        )
    return None


def _names_of(panel: Panel | None) -> tuple[str, ...]:
    return () if panel is None else panel.ids


def _too_few(which: str, there: int) -> UsageError:
    return UsageError(
        f"learn-from: the model of volatility sees the market in at least {FEWEST_PEERS} series; "
        f"{which} are {there}. Add more, or leave out what is to be learned from"
    )


def _latest(panel: Panel) -> np.generic:
    """Return the latest time with a row."""
    return panel.times[panel.mask.any(0)].max()


def _reused(known: CommonWeights, panel: Panel, horizon: int) -> CommonVolatility:
    """Return a model with the weights of an earlier fit."""
    assert panel.peers is not None
    last = _latest(panel)
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

    - ``inputs``: the terms
    - ``returns``: those that followed, in units of the monthly volatility
    """

    inputs: Float[np.ndarray, "example term"]
    returns: Float[np.ndarray, "example horizon"]

    def joined(self, others: "_Examples") -> "_Examples":
        return _Examples(*(np.concatenate(both) for both in zip(self, others, strict=True)))


def _own_examples(
    panel: Panel, horizon: int, held_back: Int[np.ndarray, " series"]
) -> tuple[_Examples, _Examples, np.generic]:
    """Return examples to learn from, later ones, and the first day that is held back."""
    inputs, returns, histories = _examples(panel, horizon)
    early, late, day = _divided(histories, horizon, held_back)
    usable = _usable(inputs, returns, histories, decisive_term(_names_of(panel.peers)))
    early, late = early & usable, late & usable
    return (
        _Examples(inputs[early], returns[early]), _Examples(inputs[late], returns[late]),
        panel.times[day],
    )  # fmt: skip


def _examples_until(
    until: np.generic, panel: Panel, horizon: int, peers: Panel | None
) -> _Examples:
    """Return examples of other series, as these were known before a day.

    ``peers``: those of the series that are forecast; without them the others show no market either
    """
    if peers is not None and len(panel.ids) < FEWEST_PEERS:
        raise _too_few("the other series", len(panel.ids))
    days = np.flatnonzero(panel.mask.any(0) & (panel.times < until))
    if len(days):
        panel = panel.until(panel.times[days[-1]]).masked()
        panel = panel.only([*latest_times(panel)])
        panel = panel.with_peers(() if peers is None else peers_among(panel.ids))
        panel = panel.only(peers_among(panel.ids, _LEARNED))
        inputs, returns, histories = _examples(panel, horizon)
        some = _usable(inputs, returns, histories, decisive_term(_names_of(panel.peers)))
        if some.any():
            return _Examples(inputs[some], returns[some])
    raise UsageError(
        f"learn-from: the other series have no rows to learn from before {show_time(until)}, the "
        "first day that is held back here; expected earlier ones"
    )


def _usable(
    inputs: Float[np.ndarray, "series step term"],
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
    Float[np.ndarray, "series step term"], Float[np.ndarray, "series step horizon"], Histories
]:
    """Return terms and returns, both float32, the latter in units of the monthly volatility."""
    histories = Histories.of(panel)
    with np.errstate(divide="ignore", invalid="ignore"):
        z = np.log(histories.values[:, :, panel.channels.index(panel.target)])
        level, terms = volatility_terms(panel, histories, z - shift(z, 1), panel.market)
        inputs = np.stack([each.astype(np.float32) for each in terms], axis=-1)
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


def _weights(
    x: Float[np.ndarray, "example term"],
    y: Float[np.ndarray, " example"],
    x_late: Float[np.ndarray, "later term"],
    y_late: Float[np.ndarray, " later"],
) -> list[float]:
    """Return the constant and the weights for one step ahead, by Fisher scoring.

    The information of the logarithm of a Student-t distribution's scale does not depend on the
    scale, so one matrix serves all rounds with a penalty.

    - ``x``, ``y``: terms and returns to learn from
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
