"""A model of the volatility of prices that all series share, and that sees the state of the market.

Networks see the last months of their own series. This model has a longer memory, and sees how
volatile a sample of all series is now. It is linear: the logarithm of the scale of future returns,
relative to the monthly volatility of the series, is a weighted sum of the terms of
:mod:`forecaster.series.prices.volatility_terms`, as in Corsi's heterogeneous autoregression (2009),
Journal of Financial Econometrics 7. :mod:`forecaster.series.prices.learning_volatility` learns the
weights.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Float
from msgspec import Meta

from forecaster.series.causal import Rows
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


def peers_among(ids: Sequence[str], most: int = _PEERS) -> tuple[str, ...]:
    """Return a sample of series, in their order. Which they are depends on their names alone."""
    return tuple(ids[int(row)] for row in sampled_names(ids, most))


def peers_at(end: Any, latest: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a sample of the series that show the market's state at a time, in their order.

    They have rows within the month before. ``latest``: the time of each series' latest row
    """
    month = np.timedelta64(_MONTH, "D") if isinstance(end, np.datetime64) else _MONTH
    return peers_among([name for name, last in latest.items() if last >= end - month])


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
