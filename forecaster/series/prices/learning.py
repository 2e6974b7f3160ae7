"""Learn the common model of volatility.

The weights maximise the likelihood of Student-t distributions less a penalty on their squares.
"""

import dataclasses

import numpy as np
from jaxtyping import Bool, Float, Int

from forecaster.series.causal import shift
from forecaster.series.panel.histories import Histories
from forecaster.series.panel.panel import Panel
from forecaster.series.panel.sampled import sampled_names
from forecaster.series.prices.common_volatility import (
    FEWEST_PEERS,
    CommonVolatility,
    decisive_term,
    standardised,
    volatility_terms,
)

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
    histories = Histories.of(panel)
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
