"""Series of counts are forecast by distributions of counts."""

import dataclasses

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import forecaster as fc
from forecaster.evaluation import BacktestOptions, evaluate_to_folder
from forecaster.forecasting import around_columns, forecast_columns, quantile_columns
from forecaster.forecasting.bands import (
    Counts,
    Distribution,
    probability_up_to,
    smallest_count,
)
from forecaster.report.numbers import pits
from tests.frames import long
from tests.slow import rest_slow

HORIZON = 6
SMALL = fc.Config(horizon=HORIZON)
COUNTS = np.arange(-1.0, 60)


def demand(rows: int = 60, count: int = 60, seed: int = 0) -> pd.DataFrame:
    """Return series of negative binomial counts, most of them zero; the last is always zero."""
    random = np.random.default_rng(seed)
    mean = random.gamma(2.0, 0.25, count)[:, None]
    mean[-1] = 0
    y = random.poisson(mean * random.gamma(1.0, 1.0, (count, rows)))
    return long({f"part {number:03d}": own for number, own in enumerate(y)}, np.arange(rows))


@pytest.mark.parametrize(("mean", "variance"), [(0.02, 0.03), (0.5, 0.9), (3.0, 3.0), (9.0, 200.0)])
def test_probabilities_and_quantiles_are_those_of_scipy(mean, variance):
    made = stats.poisson(mean)
    if variance > mean:
        made = stats.nbinom(mean**2 / (variance - mean), mean / variance)
    np.testing.assert_allclose(
        probability_up_to(COUNTS, mean, variance), made.cdf(COUNTS), rtol=1e-9, atol=1e-300
    )
    chances = np.array([0.001, 0.1, 0.5, 0.8, 0.95, 0.999, 1 - 1e-9])
    np.testing.assert_array_equal(smallest_count(chances, mean, variance), made.ppf(chances))
    assert np.isnan(smallest_count(np.nan, mean, variance))


def counted(mean: float, variance: float, origins: int = 3000) -> Distribution:
    shape = 1, origins, 3
    draws = (np.arange(np.prod(shape)).reshape(shape) * 0.6180339887498949) % 1
    units = np.full(shape, mean), np.full(shape, np.sqrt(variance)), draws
    made = Distribution.unit((2, origins, 3), 1e4)
    return dataclasses.replace(made, counts=Counts(np.zeros(1, int), *units))


@pytest.mark.parametrize(("mean", "variance"), [(0.3, 0.6), (4.0, 4.0)])
def test_scores_of_counts_are_normal_where_the_distribution_holds(mean, variance):
    made = counted(mean, variance)
    y = made.quantiles(stats.norm.ppf(np.random.default_rng(0).uniform(size=made.shape)))
    values = mean + np.sqrt(variance) * y[0]
    np.testing.assert_allclose(values, np.rint(values), atol=1e-9)
    assert values.mean() == pytest.approx(mean, rel=0.1) and values.min() > -0.5
    scores = made.scores(y.astype(np.float32))
    assert scores[0].mean() == pytest.approx(0, abs=0.05)
    assert scores[0].std() == pytest.approx(1, abs=0.05)
    # The other series is forecast as if it were alone.
    np.testing.assert_array_equal(scores[1], Distribution.unit(made.shape, 1e4).scores(
        y.astype(np.float32))[1])  # fmt: skip
    above = made.probability_above((2 - mean) / np.sqrt(variance))[0]
    np.testing.assert_allclose(above, (values > 2).mean(), atol=0.03)


def test_past_forecasts_and_paths_of_counts_are_whole():
    frame = demand(50, 10)
    made = fc.cross_validation(frame, SMALL, n_windows=3)
    numbers = made.filter(like="LSTM").to_numpy()
    assert (numbers == np.rint(numbers)).all() and (numbers >= 0).all()
    model = fc.fit(frame, SMALL)
    paths = fc.simulate(model, frame, n_paths=400)
    assert (paths["LSTM"] == np.rint(paths["LSTM"])).all() and (paths["LSTM"] >= 0).all()
    upper = fc.predict(model, frame, [80])["LSTM-hi-80"].to_numpy()
    share = paths["LSTM"].to_numpy().reshape(-1, 400, HORIZON) <= upper.reshape(-1, 1, HORIZON)
    assert 0.86 < share.mean() < 1


def test_an_evaluation_keeps_the_probabilities_around_each_outcome_of_counts(tmp_path):
    """They are of the calibrated distribution whose quantiles are kept, and of counts alone."""
    frame = demand(50, 10)
    walk = 90 + np.random.default_rng(0).normal(size=50).cumsum()
    other = pd.DataFrame({"unique_id": "walk", "ds": np.arange(50), "y": walk})
    panel = fc.load_panel(pd.concat([frame, other]))
    made = evaluate_to_folder(tmp_path / "made", panel, SMALL, BacktestOptions(9, baselines=()))
    quantiles = quantile_columns(forecast_columns("LSTM", made.summary.levels), "LSTM")
    around = list(around_columns("LSTM"))
    stored = made.forecasts([*quantiles.values(), *around])
    of_walk = stored["unique_id"] == "walk"
    assert stored.loc[of_walk, around].isna().all(axis=None)
    counts = stored[~of_walk]
    below, at_most = counts[around].to_numpy().T
    assert (below < at_most).all() and ((below == 0) == (counts["y"] == 0)).all()
    for quantile, column in quantiles.items():
        assert ((counts["y"] >= counts[column]) == (at_most >= quantile)).all(), column
        assert ((counts["y"] > counts[column]) == (below >= quantile)).all(), column
    _, drawn = pits(made)
    assert drawn["LSTM"].to_numpy().sum() == len(stored)


def test_quantiles_are_columns_between_the_bounds():
    frame = demand(60, 20)
    model = fc.fit(frame, SMALL)
    made = fc.predict(model, frame, [90], quantiles=[0.99, 0.05, 0.5])
    assert list(made)[2:9] == [
        "LSTM", "LSTM-lo-90", "LSTM-hi-90", "LSTM-q-0.05", "LSTM-q-0.5", "LSTM-q-0.99",
        "probability_of_rise",
    ]  # fmt: skip
    np.testing.assert_array_equal(made["LSTM-q-0.05"], made["LSTM-lo-90"])
    np.testing.assert_array_equal(made["LSTM-q-0.5"], made["LSTM"])
    assert (made["LSTM-q-0.99"] >= made["LSTM-hi-90"]).all()
    assert (made["LSTM-q-0.99"] > made["LSTM-hi-90"]).any()
    plain = fc.predict(model, frame, [90])
    pd.testing.assert_frame_equal(made[list(plain)], plain, check_exact=True)


def with_short(values: list[float], *, zeros: bool = True) -> pd.DataFrame:
    """Return the demand of 60 parts with a short series at the end; without zeros, each plus 1."""
    whole = demand()
    if not zeros:
        whole["y"] += 1
    rows = np.arange(60 - len(values), 60)
    return pd.concat([whole, pd.DataFrame({"unique_id": "new", "ds": rows, "y": values})])


def forecast_of_new(frame: pd.DataFrame) -> pd.DataFrame:
    panel = fc.load_panel(frame)
    made = fc.predict(fc.fit(panel, SMALL), panel, level=[80])
    return made[made["unique_id"] == "new"]


@pytest.mark.parametrize("sampled", rest_slow([8, 1000]))
def test_a_short_series_among_counts_is_counted_though_it_had_no_zero(sampled, monkeypatch):
    for name in ("MOST_SERIES", "_ENOUGH"):  # the series need not be in the sample of the panel
        monkeypatch.setattr(f"forecaster.forecasting.fitting.common.{name}", sampled)
    found = forecast_of_new(with_short([5.0, 2.0, 7.0]))[["LSTM", "LSTM-lo-80", "LSTM-hi-80"]]
    np.testing.assert_array_equal(found, np.rint(found))
    assert found["LSTM-lo-80"].min() == 0 and found["LSTM-hi-80"].between(2, 12).all()
