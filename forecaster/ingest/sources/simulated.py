"""Simulate a stock market, for trying things out and for tests. Not real prices.

Each ticker's daily log return is ``beta * market + specific``, where both parts follow a GARCH(1,1)
with Student-t errors (Bollerslev 1987): volatility comes in clusters and tails are fat, while the
direction cannot be predicted. About one ticker in eight is listed late, and a few sessions are
missing. A ticker's prices depend only on its name and the market's seed.
"""

import hashlib
from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from forecaster.ingest.sources.source import Fetched, Whole
from forecaster.ingest.universe import read_universe
from forecaster.series import regular_sessions

FIRST, LAST = "2018-01-02", "2025-12-31"
_CLOSED = pd.to_datetime(["2018-12-05", "2025-01-09"])  # days of mourning in New York
_DOF = 5.0
_VERSION = 1  # raise it when the same seed gives other prices


class Simulated(Whole):
    """The simulated market of a seed; it has prices for any ticker."""

    name, lost = "simulated", None

    def __init__(self, seed: int = 0):
        self.seed = seed
        self.sessions = regular_sessions(FIRST, LAST)
        self._market = _garch(self._random("the market"), len(self.sessions), 0.008)

    def tickers(self) -> list[str]:
        """Return the tickers of the Dow Jones Industrial Average."""
        return read_universe("dow30.txt")

    def rows(self, tickers: Sequence[str]) -> Iterator[Fetched]:
        """Yield each ticker's whole history."""
        for name in tickers:
            yield Fetched(name, self._prices(name))

    def fingerprint(self) -> str:
        """Return the market's version and seed."""
        return f"market {_VERSION}, seed {self.seed}"

    def _prices(self, name: str) -> pd.DataFrame:
        random = self._random(name)
        count = len(self.sessions)
        beta = random.uniform(0.5, 1.5)
        specific = _garch(random, count, random.uniform(0.008, 0.02))
        close = random.uniform(20, 400) * np.exp(np.cumsum(0.0003 + beta * self._market + specific))
        wiggle = np.abs(random.normal(0, 0.006, (3, count)))
        before = np.concatenate([close[:1], close[:-1]])
        open_ = before * np.exp(random.normal(0, 0.004, count))
        high = np.maximum(open_, close) * np.exp(wiggle[0])
        low = np.minimum(open_, close) * np.exp(-wiggle[1])
        volume = np.round(1e6 * np.exp(random.normal(0, 0.3, count) + 40 * wiggle[2]))
        frame = pd.DataFrame(
            {
                "unique_id": name, "ds": self.sessions, "open": open_, "high": high, "low": low,
                "close": close, "adj_close": close, "volume": volume,
            }
        )  # fmt: skip
        listed = random.integers(0, count // 2) if random.random() < 1 / 8 else 0
        present = (random.random(count) > 0.002) & ~self.sessions.isin(_CLOSED)
        return frame.iloc[listed:][present[listed:]].reset_index(drop=True)

    def _random(self, name: str) -> np.random.Generator:
        digest = hashlib.blake2b(f"{self.seed}/{name}".encode(), digest_size=8).digest()
        return np.random.default_rng(int.from_bytes(digest, "little"))


def _garch(random: np.random.Generator, count: int, daily: float) -> np.ndarray:
    """Draw returns of a GARCH(1,1)-t process; ``daily`` is its unconditional volatility."""
    alpha, beta = 0.08, 0.90
    shocks = random.standard_t(_DOF, count) * np.sqrt((_DOF - 2) / _DOF)
    variance = daily**2
    returns = np.empty(count)
    for t in range(count):
        returns[t] = np.sqrt(variance) * shocks[t]
        variance = daily**2 * (1 - alpha - beta) + alpha * returns[t] ** 2 + beta * variance
    return returns
