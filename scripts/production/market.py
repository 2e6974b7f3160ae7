"""A simulated market, and how a source shows it."""

import numpy as np
import pandas as pd

from forecaster.series import regular_sessions

FIRST = "2012-01-03"
PRICES = ("open", "high", "low", "close")


class Market:
    """The true prices of all tickers, and how the source shows them.

    - ``days``: sessions of New York
    - ``close``: the true prices, (session, ticker)
    - ``shown``: the factors by which the source multiplies them
    - ``first``, ``last``: the first session of each ticker in the source, and the one after its
      last
    - ``gone``: the tickers that are no longer in the source
    - ``carried``: holidays for which the source repeats the prices of the session before
    """

    def __init__(self, tickers: int, sessions: int, seed: int):
        self.random = np.random.default_rng(seed)
        years = 1 + sessions // 200
        self.days = regular_sessions(FIRST, f"{2012 + years}-12-31")[:sessions]
        self.names = [f"T{number:02}" for number in range(tickers)]
        spread = self.random.uniform(0.008, 0.025, tickers)
        market = 0.4 * self.random.normal(size=(sessions, 1))
        own = 0.9 * self.random.normal(size=(sessions, tickers))
        moves = spread * np.clip(market + own, -2.8, 2.8)  # only events cause jumps
        self.close = 100 * np.exp(np.cumsum(moves, axis=0))
        self.shown = np.ones_like(self.close)
        self.first = [0] * tickers
        self.last = [sessions] * tickers
        self.gone: set[int] = set()
        self.carried: list[pd.Timestamp] = []

    def add(self, name: str, close: np.ndarray, first: int) -> int:
        """List a ticker; return its number."""
        self.names.append(name)
        self.close = np.column_stack([self.close, close])
        self.shown = np.column_stack([self.shown, np.ones(len(close))])
        self.first.append(first)
        self.last.append(len(close))
        return len(self.names) - 1

    def table(self, session: int) -> pd.DataFrame:
        """Return the source's rows up to a session, one ticker after another."""
        parts = []
        for number, name in enumerate(self.names):
            rows = slice(self.first[number], min(session + 1, self.last[number]))
            close = self.close[rows, number] * self.shown[rows, number]
            if not len(close) or number in self.gone:
                continue
            frame = pd.DataFrame({
                "ticker": name, "date": self.days[rows], "open": close * 0.999,
                "high": close * 1.004, "low": close * 0.996, "close": close,
                "volume": 1000 + np.arange(rows.start, rows.stop),
            })  # fmt: skip
            parts.append(self._with_carried(frame))
        table = pd.concat(parts, ignore_index=True)
        return table.assign(date=table["date"].dt.strftime("%Y-%m-%d"))

    def _with_carried(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Add the rows of holidays that repeat the session before."""
        for holiday in self.carried:
            before = frame[frame["date"] < holiday].tail(1)
            if len(before) and frame["date"].iloc[-1] > holiday:
                frame = pd.concat([frame, before.assign(date=holiday, volume=0)])
        return frame.sort_values("date", kind="stable")

    def known_calendars(self, session: int) -> set[str]:
        """Return the tickers with rows around four holidays or more before a session."""
        weekdays = pd.bdate_range(self.days[0], self.days[session - 1])
        holidays = weekdays[~weekdays.isin(self.days)]
        return {
            self.names[n] for n in self.listed(session)
            if (holidays > self.days[self.first[n]]).sum() >= 4
        }  # fmt: skip

    def holiday_before(self, session: int) -> pd.Timestamp:
        """Return the latest holiday on a weekday before a session."""
        weekdays = pd.bdate_range(self.days[0], self.days[session])
        return weekdays[~weekdays.isin(self.days)][-1]

    def listed(self, session: int) -> list[int]:
        """Return the numbers of tickers that have rows up to a session, and continue after it."""
        return [
            n for n in range(len(self.names))
            if n not in self.gone and self.first[n] <= session < self.last[n]
        ]  # fmt: skip
