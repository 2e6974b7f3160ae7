"""Simulated markets with planted faults, for tests of flags and of looking ahead."""

from typing import NamedTuple, TypeAlias

import numpy as np
import pandas as pd
from hypothesis import strategies as st

SESSIONS = pd.bdate_range("2024-01-01", periods=170)
BAR = ["open", "high", "low", "close", "volume"]
Fault: TypeAlias = tuple[str, int, int, int]
"""What it is, the series, the session, and how much later it comes again."""
FAULTS = st.tuples(
    st.sampled_from(["copy", "again", "equals", "copies", "spike", "jump", "gap", "still"]),
    st.one_of(st.integers(0, 2), st.integers(0, 11)),
    st.one_of(st.integers(90, 93), st.integers(0, 169)),
    st.one_of(st.integers(1, 4), st.integers(1, 90)),
)


class Market(NamedTuple):
    """Bars (series, session, column) with two decimals, which of them were observed, and which
    of those have an adjusted close, both (series, session)."""

    bars: np.ndarray
    observed: np.ndarray
    adjusted: np.ndarray

    def frame(self) -> pd.DataFrame:
        """Return the observed bars as a long frame."""
        bars = self.bars.copy()
        bars[..., :4] = bars[..., :4].round(2)
        rows, sessions = np.nonzero(self.observed)
        frame = pd.DataFrame(bars[rows, sessions], columns=BAR)
        frame.insert(0, "unique_id", np.array([f"s{row:02d}" for row in range(len(bars))])[rows])
        frame.insert(1, "ds", SESSIONS[sessions])
        if self.adjusted.any():
            share = np.where(self.adjusted, np.linspace(0.9, 1, len(SESSIONS)), np.nan)
            frame["adj_close"] = frame["close"] * share[rows, sessions]
        return frame


def market(faults: list[Fault], series: int, seed: int) -> Market:
    """Simulate series of unequal lengths, with planted faults."""
    random = np.random.default_rng(seed)
    shape = (series, len(SESSIONS))
    close = 20 * np.exp(np.cumsum(random.normal(0, 0.01, shape), axis=1))
    open_ = close * np.exp(random.normal(0, 0.004, shape))
    high = np.maximum(open_, close) * np.exp(random.uniform(0.001, 0.006, shape))
    low = np.minimum(open_, close) * np.exp(-random.uniform(0.001, 0.006, shape))
    volume = random.integers(1, 4, shape) * 100.0
    bars = np.stack([open_, high, low, close, volume], axis=-1)
    observed = np.arange(shape[1]) >= np.where(random.random(series) < 0.7, 0, 40)[:, None]
    observed &= random.random(shape) > 0.02
    for fault in faults:
        plant(bars, observed, fault)
    return Market(bars, observed, np.zeros(shape, bool))


def plant(bars: np.ndarray, observed: np.ndarray, fault: Fault) -> None:
    """Plant a fault, in place."""
    kind, row, at, later = fault
    row, last = row % len(bars), bars.shape[1] - 1
    source = min(at + later, last)
    if kind == "copy":
        bars[row, at] = bars[row, source]
    elif kind == "again":
        bars[row, source] = bars[row, at]
    elif kind == "equals":  # only prices; some volumes are equal by chance
        for other in (at + 1, source, source + later):
            bars[row, min(other, last), :4] = bars[row, at, :4]
    elif kind == "copies":  # several series on one day, copied from one day or several
        for other in range(row, len(bars)):
            bars[other, at, :4] = bars[other, min(source + other % 3, last), :4]
    elif kind == "spike":
        bars[row, at, :4] *= 1.25
    elif kind == "jump":
        bars[row, at:, :4] *= 0.4
    elif kind == "gap":
        observed[row, at:source] = False
    elif kind == "still":
        bars[row, at : at + 6, :4] = bars[row, at, 3]
    else:
        raise ValueError(kind)


def made_until(forecasts: pd.DataFrame, cutoff: int) -> pd.DataFrame:
    """Return forecasts up to a cutoff by series, cutoff and step ahead, without their outcomes."""
    made = forecasts[forecasts["cutoff"] <= SESSIONS[cutoff]]
    ahead = made.groupby(["unique_id", "cutoff"]).cumcount().rename("ahead")
    return made.set_index(["unique_id", "cutoff", ahead]).drop(columns=["ds", "y"])
