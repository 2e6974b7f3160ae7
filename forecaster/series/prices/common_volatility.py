"""A model of the volatility of prices that all series share, and that sees the state of the market.

Networks see the last months of their own series. This model has a longer memory, and sees how
volatile a sample of all series is now. It is linear: the logarithm of the scale of future returns,
relative to the monthly volatility of the series, is a weighted sum of the terms of
:mod:`forecaster.series.prices.volatility_terms`, as in Corsi's heterogeneous autoregression (2009),
Journal of Financial Econometrics 7.

The weights maximise the likelihood of Student-t distributions less a penalty on their squares. The
penalty is chosen by the likelihood of days that are later than all days of training: otherwise the
model would learn by heart the days that series share.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Bool, Float, Int
from msgspec import Meta

from forecaster.series.causal import Rows, shift
from forecaster.series.panel.histories import Histories
from forecaster.series.panel.panel import Panel
from forecaster.series.panel.sampled import sampled_names
from forecaster.series.prices.volatility_terms import (
    FEWEST_PEERS,
    INDEX_TERMS,
    OWN_TERMS,
    STATE_TERMS,
    volatility_terms,
)

_PEERS = 50
_MONTH = 31  # days, or rows where times are whole numbers
_FAR = 5.0  # deviations that a term is clipped to
_LARGEST, _LARGEST_WEIGHT = 1e3, 10.0  # largest numbers in a file
_LEARNED = 200  # series that the weights are learned from, at most
_FEWEST_ROWS = 504  # rows of the longest series
_FEWEST_EXAMPLES = 2_000
_BEFORE = 60  # rows of a series before the first that is learned from
_DEGREES = 5.0  # of freedom, about those of stocks; bands are calibrated afterwards
_PENALTIES = (10.0, 3.0, 1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001, 3e-4, 1e-4, 3e-5)
_ROUNDS = 4  # of Fisher scoring with each penalty; further ones change nothing


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
        self, panel: Panel, histories: Histories, change: Rows
    ) -> Float[np.ndarray, "series step horizon"]:
        """Return the logarithm of the scale of the returns that begin at each step.

        NaN where the state of the market is unknown. Arguments as of :func:`volatility_terms`.
        """
        weights = np.array(self.weights)
        market = panel.market if self.market else None
        level, terms = volatility_terms(panel, histories, change, market)
        ahead = np.log(np.arange(1, len(weights) + 1)) / 2
        # The horizon comes first, because sums over short rows take six times as long.
        total = level + ahead[:, None, None] + weights[:, :1, None]
        decisive = decisive_term(self.peers)
        for row, each in enumerate(terms):  # one at a time, to save memory
            if row == decisive:
                total[:, np.isnan(each)] = np.nan
            each = standardised(each, self.centre[row], self.spread[row])
            for sums, weight in zip(total, weights[:, 1 + row], strict=True):
                sums += each * weight
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


def peers_at(end: Any, latest: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a sample of the series that show the market's state at a time, in their order.

    They have rows within the month before. ``latest``: the time of each series' latest row
    """
    month = np.timedelta64(_MONTH, "D") if isinstance(end, np.datetime64) else _MONTH
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


def decisive_term(peers: Sequence[str]) -> int:
    """Return the term without which the state of the market is unknown."""
    seen_in_index = 0 if len(peers) >= FEWEST_PEERS else len(STATE_TERMS)
    return len(OWN_TERMS) + seen_in_index


def standardised(values: np.ndarray, centre: Any, spread: Any) -> np.ndarray:
    """Return values in deviations from their mean, 0 where unknown."""
    return np.nan_to_num(np.clip((values - centre) / spread, -_FAR, _FAR), nan=0.0)


def learn_common_volatility(
    panel: Panel, horizon: int, held_back: Int[np.ndarray, " series"]
) -> CommonVolatility | None:
    """Learn the model from a panel of prices; None where peers, rows or examples are too few.

    ``held_back``: the number of latest rows of each series that weights are not learned from; the
    penalty is chosen by them
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
    early, late = (part & usable for part in _divided(histories, horizon, held_back[chosen]))
    if early.sum() < _FEWEST_EXAMPLES or not late.any():
        return None
    x, x_late, y, y_late = inputs[early], inputs[late], returns[early], returns[late]
    centre, spread = _moments(x)
    as_inputs = centre.astype(np.float32), spread.astype(np.float32)  # to save memory
    x, x_late = (standardised(part, *as_inputs) for part in (x, x_late))
    weights = [_weights(x, y[:, h], x_late, y_late[:, h]) for h in range(horizon)]
    return CommonVolatility(
        peers, tuple(centre.tolist()), tuple(spread.tolist()), tuple(map(tuple, weights)),
        market=market,
    )  # fmt: skip


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


def _divided(
    histories: Histories, horizon: int, held_back: Int[np.ndarray, " series"]
) -> tuple[Bool[np.ndarray, "series step"], Bool[np.ndarray, "series step"]]:
    """Return the steps to learn from, and later ones to choose the penalty by.

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
    return early, own & (positions >= day)


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
