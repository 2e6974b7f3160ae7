"""A model of the volatility of prices that all series share, and that sees the state of the market.

Networks see the last months of their own series. This model has a longer memory, and sees how
volatile a sample of all series is now. It is linear: the logarithm of the scale of future returns,
relative to the monthly volatility of the series, is a weighted sum of the terms of
:mod:`forecaster.series.prices.volatility_terms`, as in Corsi's heterogeneous autoregression (2009),
Journal of Financial Econometrics 7. :mod:`forecaster.series.prices.learning_volatility` learns the
weights.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np
from jaxtyping import Float

from forecaster.series.causal import Rows
from forecaster.series.panel.auxiliary import CommonWeights
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


OpinionWeights: TypeAlias = tuple[tuple[float, float, float], ...]
"""For each step ahead a constant, the weight of a series' networks, and that of the model."""


class CommonVolatility(NamedTuple):
    """A fitted model.

    - ``peers``: the series that the state of the market is made from
    - ``centre``, ``spread``: mean and deviation of each term in training
    - ``weights``: for each step ahead the constant, and the weight of each term
    - ``opinions``: how it is combined with a series' networks; empty: not known yet
    - ``until``, ``frequency``: the latest time that was seen, as text, and the alias of the
      frequency; empty: unknown
    - ``market``: the declared indices that it sees, whose terms come last
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
            tuple(dict.fromkeys(names.get(name, name) for name in given))
            for given in (self.peers, self.market)
        )
        return self._replace(peers=peers, market=market)

    @staticmethod
    def from_json(fields: Mapping[str, Any] | None) -> "CommonVolatility | None":
        """Read what ``_asdict`` returned. Raises TypeError, ValueError or KeyError otherwise."""
        if fields is None:
            return None
        peers, market = names_in(fields["peers"], "peers"), names_in(fields.get("market"), "market")
        if len(set(peers)) < max(FEWEST_PEERS, len(peers)) and (peers or not market):
            raise ValueError(f"common_volatility: peers: expected {FEWEST_PEERS} different names")
        steps = len(fields["weights"])
        count = len(OWN_TERMS) + len(STATE_TERMS) + len(INDEX_TERMS) * len(market)
        centre, spread = _numbers([fields["centre"], fields["spread"]], (2, count), _LARGEST)
        weights = _numbers(fields["weights"], (steps, count + 1), _LARGEST_WEIGHT)
        opinions = _numbers(fields["opinions"], (steps, 3), _LARGEST_WEIGHT)
        if not steps or min(spread) <= 0:
            raise ValueError("common_volatility: expected a step ahead, and deviations above zero")
        until, frequency = fields.get("until", ""), fields.get("frequency", "")
        if not isinstance(until, str) or not isinstance(frequency, str):
            raise TypeError("common_volatility: until, frequency: expected text")
        _as_time(until)  # raises ValueError for what is no time
        return CommonVolatility(
            peers, centre, spread, weights, tuple((o, n, c) for o, n, c in opinions), until,
            frequency, market,
        )  # fmt: skip


def names_in(value: object, what: str) -> tuple[str, ...]:
    """Return the names in a file: none, one, or a list. Raises TypeError for anything else."""
    several = isinstance(value, list | tuple)
    names = list(cast(Sequence[object], value)) if several else [value] if value is not None else []
    if not all(isinstance(name, str) for name in names):
        raise TypeError(f"{what}: expected names; got {value!r:.50}")
    return tuple(map(str, names))


def _numbers(
    rows: Sequence[Sequence[object]], shape: tuple[int, int], largest: float
) -> tuple[tuple[float, ...], ...]:
    """Return the rows of a file as numbers. Raises TypeError or ValueError for anything else."""
    if not all(type(one) in (int, float) for row in rows for one in row):
        raise TypeError("common_volatility: expected numbers")
    made = tuple(tuple(map(float, cast(Sequence[float], row))) for row in rows)
    if [len(row) for row in made] != [shape[1]] * shape[0]:
        raise ValueError(f"common_volatility: expected {shape[0]} rows of {shape[1]} numbers")
    if not all(abs(one) <= largest for row in made for one in row):
        raise ValueError(f"common_volatility: expected numbers up to {largest:g}")
    return made


def _as_time(text: str) -> np.int64 | np.datetime64:
    return np.int64(text) if text.lstrip("-").isdecimal() else np.datetime64(text)


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
