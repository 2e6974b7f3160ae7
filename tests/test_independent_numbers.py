"""Recompute the numbers of an evaluation by other means: explicit formulas, and ``arch``.

Everything is recomputed from the prices and from the files of the evaluation, without code of the
package, for a few simulated stocks.
"""

import itertools
import math

import numpy as np
import pandas as pd
import pytest

from forecaster.evaluation import BacktestOptions
from forecaster.files import Home
from forecaster.ingest import open_source
from forecaster.pipeline import DataRequest, evaluate_from_home
from tests.conftest import TICKERS

WINDOWS = 30
HORIZON = 3
QUANTILES = [0.025, *(n / 20 for n in range(1, 20)), 0.975]


@pytest.fixture(scope="module")
def prices():
    """Return eight years of adjusted prices, a row per day and ticker."""
    frames = [item.frame for item in open_source("simulated").fetch(TICKERS)]
    frame = pd.concat([frame for frame in frames if frame is not None])
    frame = frame.rename(columns={"unique_id": "ticker", "ds": "date"})
    frame = frame[frame["date"] >= frame["date"].max() - pd.DateOffset(years=8)]
    paid = 0.98 ** ((frame["date"].max() - frame["date"]).dt.days // 91 / 4)
    return frame.assign(adj_close=frame["close"] * paid)


@pytest.fixture(scope="module")
def folder(prices, config, tmp_path_factory):
    """Evaluate these stocks as the command does, but for its pages; return the folder."""
    here = tmp_path_factory.mktemp("independent")
    prices.to_parquet(here / "prices.parquet", index=False)
    data = DataRequest(open_source(f"files:{here / 'prices.parquet'}"), mask=())
    options = BacktestOptions(WINDOWS, baselines=("naive", "ewma", "garch"))
    return evaluate_from_home(Home(here / "home"), data, config, options).folder


@pytest.fixture(scope="module")
def forecasts(folder):
    return pd.read_parquet(folder / "forecasts.parquet")


@pytest.fixture(scope="module")
def scores(folder):
    return pd.read_parquet(folder / "scores.parquet").set_index(["unique_id", "model", "horizon"])


@pytest.fixture(scope="module")
def adjusted(prices):
    return {
        str(name): part.sort_values("date").set_index("date")["adj_close"]
        for name, part in prices.groupby("ticker")
    }


def column(model: str, quantile: float) -> str:
    """Return the column of a quantile; the bands are 10, 20, ... 90 and 95 percent."""
    if quantile == 0.5:
        return model
    level = round(abs(2 * quantile - 1) * 100)
    return f"{model}-{'lo' if quantile < 0.5 else 'hi'}-{level}"


def with_horizon(forecasts):
    return forecasts.assign(horizon=forecasts.groupby(["unique_id", "cutoff"]).cumcount() + 1)


@pytest.mark.slow
@pytest.mark.parametrize("model", ["LSTM", "EWMA", "GARCH", "Naive"])
def test_crps_and_coverage_by_their_formulas(forecasts, scores, model):
    quantiles = [q for q in QUANTILES if column(model, q) in forecasts.columns]
    assert len(quantiles) == 21
    edges = [0.0, *((a + b) / 2 for a, b in itertools.pairwise(quantiles)), 1.0]
    for (name, horizon), part in with_horizon(forecasts).groupby(["unique_id", "horizon"]):
        crps, errors, inside = [], [], {80: [], 95: []}
        for row in part.to_dict("records"):
            total = 0.0
            for number, q in enumerate(quantiles):
                miss = row["y"] - row[column(model, q)]
                loss = q * miss if miss >= 0 else (q - 1) * miss
                total += 2 * loss * (edges[number + 1] - edges[number])
            crps.append(total)
            errors.append(abs(row["y"] - row[model]))
            for level, hits in inside.items():
                low, high = row[f"{model}-lo-{level}"], row[f"{model}-hi-{level}"]
                hits.append(low <= row["y"] <= high)
        said = scores.loc[(name, model, horizon)]
        assert said["crps"] == pytest.approx(np.mean(crps), rel=1e-4)
        assert said["mae"] == pytest.approx(np.mean(errors), rel=1e-4)
        for level, hits in inside.items():
            assert said[f"coverage-{level}"] == pytest.approx(np.mean(hits), abs=1e-9)


def test_garch_by_its_recursion_from_an_estimate_of_our_own(forecasts, adjusted):
    from arch import arch_model
    from scipy.stats import t as student_t

    for name in list(adjusted)[:5]:
        series = adjusted[name]
        part = with_horizon(forecasts[forecasts["unique_id"] == name])
        returns = 100 * np.diff(np.log(series.to_numpy()))
        known = series.index.get_loc(part["cutoff"].min())
        fit = arch_model(returns[:known], mean="Constant", vol="GARCH", dist="t").fit(disp="off")
        mu, omega, alpha, beta, nu = (
            fit.params[key] for key in ("mu", "omega", "alpha[1]", "beta[1]", "nu")
        )
        cutoff = sorted(part["cutoff"].unique())[WINDOWS // 2]
        variance = fit.conditional_volatility[-1] ** 2
        for value in returns[known - 1 : series.index.get_loc(cutoff)]:
            variance = omega + alpha * (value - mu) ** 2 + beta * variance
        ahead, step = [], variance
        for _ in range(HORIZON):
            ahead.append(step)
            step = omega + (alpha + beta) * step
        unit = student_t.ppf(0.975, nu) * math.sqrt((nu - 2) / nu)
        for row in part[part["cutoff"] == cutoff].to_dict("records"):
            h = row["horizon"]
            move = (mu * h + unit * math.sqrt(sum(ahead[:h]))) / 100
            wanted = series[cutoff] * math.exp(move)
            # Two optimisers of the same likelihood end a little apart.
            assert row["GARCH-hi-95"] / series[cutoff] - 1 == pytest.approx(
                wanted / series[cutoff] - 1, rel=0.03
            )
