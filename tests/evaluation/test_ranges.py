"""Baselines that see the range of each session, by hand and on a market whose truth is known."""

import numpy as np
import pytest
from scipy.special import ndtri

import forecaster as fc
from forecaster.errors import UsageError
from forecaster.evaluation import BacktestOptions, evaluate_to_folder
from forecaster.evaluation.baselines import simple, volatility
from forecaster.evaluation.baselines.simple import Job
from forecaster.evaluation.scores.returns import session_variance
from tests.messages import refuses

QUANTILES = np.arange(1, 20) / 20


def market(rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Simulate prices whose variance of a day follows its range, and is known.

    Returns closes, bars (column, day) and the variance of each day. The path within a day is a
    random walk of 100 steps from the close of the day before.
    """
    random = np.random.default_rng(seed)
    closes, bars, variances = np.empty(rows), np.empty((4, rows)), np.empty(rows)
    last, variance = 100.0, 1e-4
    for row in range(rows):
        path = np.cumsum(np.sqrt(variance / 100) * random.normal(size=100))
        high, low = max(path.max(), 0.0), min(path.min(), 0.0)
        bars[:, row] = last * np.exp([0.0, high, low, path[-1]])
        closes[row], variances[row] = bars[3, row], variance
        within = 0.5 * (high - low) ** 2 - (2 * np.log(2) - 1) * path[-1] ** 2
        variance = 2e-6 + 0.30 * within + 0.68 * variance
        last = closes[row]
    return closes, bars, variances


def test_the_variance_of_a_session_is_that_of_its_range_and_of_the_night_before():
    y = np.array([100.0, 104.0, 99.0, 99.0])
    bars = np.array(
        [
            [100.0, 102.0, 104.0, np.nan],
            [101.0, 105.0, 104.0, 99.0],
            [99.0, 101.0, 98.0, 99.0],
            [100.0, 104.0, 99.0, 99.0],
        ]
    )
    got = session_variance(y, bars)
    inside = 0.5 * np.log(105 / 101) ** 2 - (2 * np.log(2) - 1) * np.log(104 / 102) ** 2
    assert got[1] == pytest.approx(inside + np.log(102 / 100) ** 2)
    inside = max(0.5 * np.log(104 / 98) ** 2 - (2 * np.log(2) - 1) * np.log(99 / 104) ** 2, 0)
    assert got[2] == pytest.approx(inside)  # it opened where it had closed
    assert got[3] == 0.0  # no open: the squared change of the close
    split = session_variance(y, bars * np.array([1.0, 0.5, 0.5, 1.0]))
    np.testing.assert_allclose(split, got)  # of adjusted prices, quoted ones differ by a factor


def test_where_the_range_moves_the_variance_they_come_close_to_the_truth():
    y, bars, truth = market(2500, 1)
    variance, origins = session_variance(y, bars), np.arange(2000, 2499)
    job = Job(y, origins, 1, QUANTILES, 5, variance=variance)
    true = y[origins][:, None] * np.exp(np.sqrt(truth[origins + 1])[:, None] * ndtri(QUANTILES))

    def crps(made: np.ndarray) -> float:
        error = y[origins + 1][:, None] - made
        return float(np.maximum(QUANTILES * error, (QUANTILES - 1) * error).mean())

    scores = {
        function.__name__: crps(function(job)[:, 0]) / crps(true)
        for function in (volatility.range_garch, volatility.log_har)
    }
    closes = simple.ewma(job)[:, 0]
    assert max(scores.values()) < 1.005
    assert max(scores.values()) < crps(closes) / crps(true)


@pytest.mark.parametrize("name", ["log_har", "range_garch"])
def test_without_ranges_they_are_refused_before_the_work(name, panel, config, tmp_path):
    closes = panel.to_frame()[["unique_id", "ds", "open", "close"]]
    bare = fc.load_panel(closes.rename(columns={"unique_id": "ticker", "ds": "date"}))
    with refuses(UsageError):
        evaluate_to_folder(tmp_path / "e", bare, config, BacktestOptions(3, baselines=(name,)))
    assert not (tmp_path / "e").exists()
