"""A book at today's prices, and long tables of what it may lose."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float

from forecaster.portfolio.book import ALL, Book
from forecaster.portfolio.measures import measures_of

NOW = "now"
"""The scenario of today's prices."""
QUIET = "a quiet session"
"""The scenario that moves are compared with: one more session, on which no price moves."""
WORST = "worst path"
"""Begins the names of scenarios that are single paths."""
_WORST = 3  # paths that are shown
_NO_NET = 0.01  # share of the gross value, below which long and short positions cancel


class Futures(NamedTuple):
    """Prices of stocks now, and joint futures of them.

    - ``ids``: the stocks
    - ``now``: their prices
    - ``prices``: the simulated ones
    - ``steps``, ``until``: the steps ahead of the last axis, 1 is the next session; and their times
    - ``origins``: the number of past times whose errors the futures are drawn from
    """

    ids: Sequence[str]
    now: Float[np.ndarray, " stock"]
    prices: Float[np.ndarray, "stock path horizon"]
    steps: Sequence[int]
    until: Sequence[str]
    origins: int

    def rows_of(self, ids: Sequence[str]) -> list[int]:
        """Return the rows of some of the stocks."""
        rows = {name: row for row, name in enumerate(self.ids)}
        return [rows[name] for name in ids]


@dataclasses.dataclass(frozen=True)
class Holding:
    """The positions of a book that have a price.

    - ``shares``: of each of ``ids``; of weights those of a book that is worth 100
    - ``values``: of each, now
    """

    book: Book
    ids: tuple[str, ...]
    shares: Float[np.ndarray, " position"]
    values: Float[np.ndarray, " position"]

    @staticmethod
    def from_book(book: Book, futures: Futures) -> "Holding":
        """Return what a book holds at the prices of now."""
        ids = tuple(name for name in book.amounts if name in futures.ids)
        amounts = np.array([book.amounts[name] for name in ids])
        now = futures.now[futures.rows_of(ids)]
        if book.kind == "shares":
            return Holding(book, ids, amounts, amounts * now)
        return Holding(book, ids, amounts / now, amounts)

    @property
    def missing(self) -> list[str]:
        """The positions without a price."""
        return [name for name in self.book.amounts if name not in self.ids]

    @property
    def base(self) -> float:
        """What per cent are of: the net value, or the gross one where long and short cancel.

        With cash, and without positions that are in no total.
        """
        values = np.array([*self.values, self.book.cash])
        net, gross = float(values.sum()), float(np.abs(values).sum())
        return net if net >= _NO_NET * gross else gross

    def risk(self, futures: Futures, levels: Sequence[float], scenario: str = NOW) -> pd.DataFrame:
        """Return the risk of the book, then of its positions, by horizon and level.

        Of today also the profits on the worst paths of the first horizon.
        """
        rows = futures.rows_of(self.ids)
        now, prices = futures.now[rows, None], futures.prices[rows]
        parts: list[pd.DataFrame] = []
        for number, step in enumerate(futures.steps):
            profits = self.shares[:, None] * (prices[:, :, number] - now)
            for level in levels:
                its = measures_of(profits, level, futures.origins / step)
                unknown = np.full(len(self.ids), np.nan)
                parts.append(self._frame(
                    scenario, horizon=step, level=level, var=[its.var, *its.var_parts],
                    es=[its.es, *its.es_parts], var_error=[its.var_error, *unknown],
                    var_alone=_with_sum(its.var_alone), es_alone=_with_sum(its.es_alone),
                ))  # fmt: skip
            worst = profits.sum(axis=0).argsort()[:_WORST] if scenario == NOW and not number else []
            for rank, path in enumerate(worst, 1):
                name, profit = f"{WORST} {rank}, {step} ahead", _with_sum(profits[:, path])
                parts.append(self._frame(name, horizon=step, profit=profit))
        return pd.concat(parts, ignore_index=True)

    def moved(self, moves: Mapping[str, float], scenario: str) -> pd.DataFrame:
        """Return the profits by simple moves of prices; NaN where there is none."""
        move = np.array([moves.get(name, np.nan) for name in self.ids])
        profit = self.values * move
        total = np.nansum(profit)
        return self._frame(scenario, move=[total / self.base, *move], profit=[total, *profit])

    def _frame(self, scenario: str, **columns: object) -> pd.DataFrame:
        """Return a row for the book, and one for each position, with these columns."""
        value = _with_sum(self.values)
        value[0] += self.book.cash
        names = [ALL, *self.ids]
        keys = {"scenario": scenario, "book": self.book.name, "unique_id": names, "value": value}
        return pd.DataFrame(keys | columns)


def _with_sum(values: Float[np.ndarray, " position"]) -> list[float]:
    """Return the sum of values, then the values."""
    return [float(values.sum()), *values.tolist()]
