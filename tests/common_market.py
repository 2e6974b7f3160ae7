"""Simulated prices whose volatility has a common factor, for tests of the common volatility."""

import numpy as np
import pandas as pd

import forecaster as fc


def log_volatilities(series: int, rows: int, seed: int, share: float = 0.8) -> np.ndarray:
    """Return the logarithms of true daily volatilities (series, row).

    ``share``: of the variance of the logarithm that is common to all series
    """
    random = np.random.default_rng(seed)
    shocks = random.normal(size=(series + 1, rows))
    state = np.zeros((series + 1, rows))
    for row in range(1, rows):
        state[:, row] = 0.97 * state[:, row - 1] + 0.12 * shocks[:, row]
    mixed = np.sqrt(share) * state[0] + np.sqrt(1 - share) * state[1:]
    return np.log(0.012) + mixed + random.normal(0, 0.2, (series, 1))


def frame(series: int = 12, rows: int = 520, seed: int = 0, share: float = 0.8) -> pd.DataFrame:
    """Return a long frame of daily bars; each session is a path of ten steps."""
    random = np.random.default_rng([seed, 1])
    volatility = np.exp(log_volatilities(series, rows, seed, share))
    steps = random.normal(size=(series, rows, 10)) * (volatility / np.sqrt(10))[..., None]
    path = np.cumsum(steps.reshape(series, -1), axis=1).reshape(steps.shape)
    opened = np.concatenate([np.zeros((series, 1)), path[:, :-1, -1]], axis=1)
    with_open = np.concatenate([opened[..., None], path], axis=-1)
    bars = {"open": opened, "high": with_open.max(-1), "low": with_open.min(-1)}
    bars |= {"close": path[..., -1]}
    parts = [
        pd.DataFrame(
            {"ticker": f"S{name:02d}", "date": pd.bdate_range("2015-01-01", periods=rows)}
            | {column: 50 * np.exp(values[name]) for column, values in bars.items()}
            | {"volume": random.integers(1_000, 9_000, rows)}
        )
        for name in range(series)
    ]
    return pd.concat(parts, ignore_index=True)


def index(rows: int = 520, seed: int = 0) -> pd.DataFrame:
    """Return a long frame of an index of volatility: what all series of :func:`frame` share."""
    common = log_volatilities(1, rows, seed, share=1.0)[0]
    noise = np.random.default_rng([seed, 2]).normal(0, 0.05, rows)
    dates = pd.bdate_range("2015-01-01", periods=rows)
    close = 1600 * np.exp(common + noise)
    return pd.DataFrame({"ticker": "VIX", "date": dates, "close": close})


def panel(series: int = 12, rows: int = 520, seed: int = 0, share: float = 0.8) -> fc.Panel:
    """Return the panel of :func:`frame` with all of its series as peers."""
    made = fc.load_panel(frame(series, rows, seed, share)).masked()
    return made.with_peers(made.ids)
