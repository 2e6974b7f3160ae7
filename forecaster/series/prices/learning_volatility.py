"""Learn the weights of the model of volatility that prices share.

They maximise the likelihood of Student-t distributions less a small penalty on their squares.
"""

import dataclasses
from typing import Any, NamedTuple, cast

import numpy as np
from jaxtyping import Float

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
_PENALTY = 0.01
_ROUNDS = 6  # of Fisher scoring; further ones change nothing


def learn_common_volatility(panel: Panel, horizon: int) -> CommonVolatility | None:
    """Learn the model from a panel of prices, and from the other series beside it, if any.

    None where there are too few peers, rows or examples. Raises UsageError for other series, or
    weights, that cannot be used.
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
    examples = _all_examples(panel, horizon)
    if examples is None:
        return None
    centre, spread = _moments(examples.inputs)
    as_inputs = centre.astype(np.float32), spread.astype(np.float32)  # to save memory
    x = standardised(examples.inputs, *as_inputs)
    weights = [_weights(x, examples.returns[:, h]) for h in range(horizon)]
    return CommonVolatility(
        _names_of(panel.peers), tuple(centre.tolist()), tuple(spread.tolist()),
        tuple(map(tuple, weights)), until=str(_latest(panel)), frequency=panel.frequency.alias,
        market=_names_of(panel.market),
    )  # fmt: skip


def _all_examples(panel: Panel, horizon: int) -> "_Examples | None":
    """Return examples of a sample of the series, and of those beside them; None: too few."""
    found = _examples_of(panel.only(peers_among(panel.ids, _LEARNED)), horizon)
    other = panel.auxiliary
    if isinstance(other, Panel):
        other = dataclasses.replace(other, market=panel.market)
        until = _latest(panel)
        found = found.joined(_examples_until(until, other, horizon, panel.peers))
    if len(found.inputs) >= _FEWEST_EXAMPLES:
        return found
    if other is not None:
        raise UsageError(
            f"learn-from: expected {_FEWEST_EXAMPLES:,} rows to learn from, each after the first "
            f"{_BEFORE} of its series; got {len(found.inputs):,}. Give more or longer series"
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


def _examples_of(panel: Panel, horizon: int) -> _Examples:
    """Return the examples of a panel: steps with a known state and known returns, late enough."""
    inputs, returns, histories = _examples(panel, horizon)
    decisive = decisive_term(_names_of(panel.peers))
    usable = np.isfinite(returns).all(-1) & np.isfinite(inputs[..., decisive])
    usable &= np.arange(int(usable.shape[1])) >= histories.first[:, None] + _BEFORE
    return _Examples(inputs[usable], returns[usable])


def _examples_until(
    until: np.generic, panel: Panel, horizon: int, peers: Panel | None
) -> _Examples:
    """Return examples of other series, as these were known on a day.

    ``peers``: those of the series that are forecast; without them the others show no market either
    """
    if peers is not None and len(panel.ids) < FEWEST_PEERS:
        raise _too_few("the other series", len(panel.ids))
    days = np.flatnonzero(panel.mask.any(0) & (panel.times <= until))
    if len(days):
        panel = panel.until(panel.times[days[-1]]).masked()
        panel = panel.only([*latest_times(panel)])
        panel = panel.with_peers(() if peers is None else peers_among(panel.ids))
        found = _examples_of(panel.only(peers_among(panel.ids, _LEARNED)), horizon)
        if len(found.inputs):
            return found
    raise UsageError(
        f"learn-from: the other series have no rows to learn from up to {show_time(until)}, the "
        "latest day here; expected earlier ones"
    )


def _examples(
    panel: Panel, horizon: int
) -> tuple[
    Float[np.ndarray, "series step term"], Float[np.ndarray, "series step horizon"], Histories
]:
    """Return terms and returns, both float32, the latter in units of the monthly volatility."""
    histories = Histories.of(panel)
    with np.errstate(divide="ignore", invalid="ignore"):
        z = np.log(histories.values[:, :, panel.channels.index(panel.target)])
        level, terms = volatility_terms(panel, histories, z - shift(z, 1), panel.market, horizon)
        inputs = np.stack([each.astype(np.float32) for each in terms], axis=-1)
        steps = range(1, horizon + 1)
        moves = [(shift(z, -h) - z) / (np.exp(level) * np.sqrt(h)) for h in steps]
    return inputs, np.stack(moves, axis=-1).astype(np.float32), histories


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


def _weights(x: Float[np.ndarray, "example term"], y: Float[np.ndarray, " example"]) -> list[float]:
    """Return the constant and the weights for one step ahead, by Fisher scoring.

    The information of the logarithm of a Student-t distribution's scale does not depend on the
    scale, so one matrix serves all rounds.

    ``x``, ``y``: terms and returns to learn from
    """
    x = np.concatenate([np.ones_like(x[:, :1]), x], 1)
    penalty = np.full(int(x.shape[1]), _PENALTY)
    penalty[0] = 1e-9  # the constant is free
    information = 2 * _DEGREES / (_DEGREES + 3) * (x.T @ x).astype(float) / len(x)
    inverse = np.linalg.inv(information + np.diag(penalty))
    weights = np.zeros(int(x.shape[1]))
    for _ in range(_ROUNDS):
        squares = (y * np.exp(-(x @ weights.astype(np.float32)))) ** 2
        score = (_DEGREES + 1) * squares / (_DEGREES + squares) - 1
        slope = (x.T @ score).astype(float) / len(x) - penalty * weights
        weights = weights + inverse @ slope
    return weights.tolist()
