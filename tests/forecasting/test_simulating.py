"""Sample paths and their sums: distributed as predict says, dependent like past errors."""

import dataclasses

import numpy as np
import pandas as pd
import pytest

import forecaster as fc
from forecaster.errors import ModelError, UsageError
from forecaster.forecasting.predicting import simulating
from forecaster.forecasting.predicting.simulating import scaled_to_now
from tests.frames import long
from tests.messages import refuses
from tests.slow import rest_slow

HORIZON = 5
CONFIG = fc.Config(horizon=HORIZON, hidden=4, members=2, epochs=4, lookback=30)
COMMON = 0.8  # the common share of the variance of each series


def market(series: int = 8, rows: int = 700, seed: int = 0) -> pd.DataFrame:
    """Return random walks that share most of their moves."""
    random = np.random.default_rng(seed)
    common = random.normal(size=rows)
    own = random.normal(size=(series, rows))
    moves = 0.01 * (np.sqrt(COMMON) * common + np.sqrt(1 - COMMON) * own)
    days = pd.bdate_range("2020-01-01", periods=rows)
    prices = {f"s{k}": 100 * np.exp(np.cumsum(own)) for k, own in enumerate(moves)}
    return long(prices, days, "close")


@pytest.fixture(scope="module")
def fitted() -> tuple[fc.Model, fc.Panel]:
    # The rows held back are 35 independent weeks, whose risk differs from the true one by some
    # tenths; of this market hardly.
    panel = fc.load_panel(market(seed=4))
    return fc.fit(panel, CONFIG), panel


@pytest.fixture(scope="module")
def paths(fitted) -> pd.DataFrame:
    return fc.simulate(*fitted, n_paths=2000)


def wide(paths: pd.DataFrame) -> np.ndarray:
    """Return log values (series, path, horizon)."""
    return np.log(paths["LSTM"].to_numpy()).reshape(-1, 2000, HORIZON)


def test_each_time_is_distributed_as_predict_says(fitted, paths):
    bands = fc.predict(*fitted, level=(50, 80)).set_index(["unique_id", "ds"])
    by_time = paths.groupby(["unique_id", "ds"])["LSTM"]
    width = bands["LSTM-hi-80"] - bands["LSTM-lo-80"]
    for column, share in (
        ("LSTM", 0.5), ("LSTM-lo-80", 0.1), ("LSTM-hi-80", 0.9), ("LSTM-lo-50", 0.25),
    ):  # fmt: skip
        off = (by_time.quantile(share).loc[bands.index] - bands[column]) / width
        assert off.abs().max() < 0.08, column


def test_median_quantiles_probability_of_rise_and_paths_are_of_one_distribution(fitted):
    """Also where the outcomes lay above most medians, as calibration then finds."""
    model, panel = fitted
    model = dataclasses.replace(model, normal_scores=model.normal_scores + np.float32(0.5))
    before = fc.predict(model, panel, (80,))
    falls = 1 - before["probability_of_rise"].to_numpy()
    near = (0.499, 0.5, 0.501)
    made = fc.predict(model, panel, (80,), quantiles=[*near, *falls])
    width = (made["LSTM-hi-80"] - made["LSTM-lo-80"]).to_numpy()
    close = np.repeat(panel.channel("close")[:, -1], HORIZON)
    at_falls = [made.loc[row, f"LSTM-q-{fall:g}"] for row, fall in enumerate(falls)]
    by_time = fc.simulate(model, panel, 4000).groupby(["unique_id", "ds"], sort=False)["LSTM"]
    of_paths = np.stack([paths.to_numpy() for _, paths in by_time])
    off = {
        **{str(share): made[f"LSTM-q-{share}"] - made["LSTM"] for share in near},
        "rise": np.array(at_falls) - close,
        "median of paths": np.median(of_paths, axis=1) - made["LSTM"],
        "rise in paths": [
            np.quantile(paths, fall) - now
            for paths, fall, now in zip(of_paths, falls, close, strict=True)
        ],
    }
    worst = {name: float(np.abs(np.asarray(each) / width).max()) for name, each in off.items()}
    assert max(worst.values()) < 0.005, worst


def test_the_risk_of_a_basket_is_the_true_one(fitted, paths):
    """Compare the standard deviation of an equal-weight basket, too low for independent paths."""
    model, panel = fitted
    now = np.log(panel.channel("close")[:, -1])
    basket = (wide(paths)[:, :, -1] - now[:, None]).mean(0)
    true = 0.01 * np.sqrt(HORIZON * (COMMON + (1 - COMMON) / len(model.ids)))
    assert np.std(basket) == pytest.approx(true, rel=0.15)
    random = np.random.default_rng(0)
    apart = np.mean([random.permutation(one[:, -1]) for one in wide(paths)], axis=0)
    assert np.std(apart) < 0.6 * true


def test_a_basket_leans_to_no_side_though_past_days_did(fitted):
    """All series fell together on few days, and rose a little on most."""
    model, panel = fitted
    random = np.random.default_rng(0)
    span = model.normal_scores.shape[1:]
    common = 0.7 * (1 - random.exponential(size=span))
    scores = common + 0.7 * random.standard_normal(model.normal_scores.shape)
    model = dataclasses.replace(model, normal_scores=scores.astype(np.float32))
    basket = wide(fc.simulate(model, panel, 2000)).mean(0)
    medians = np.log(fc.predict(model, panel)["LSTM"].to_numpy()).reshape(-1, HORIZON).mean(0)
    assert (basket > medians).mean(0) == pytest.approx(0.5, abs=0.01)


def test_few_paths_are_as_spread_as_many(fitted):
    """One path is a draw, not the median, so that many calls of few paths are many draws."""
    model, panel = fitted
    bands = fc.predict(model, panel, level=(80,))
    low, high = (bands[f"LSTM-{side}-80"].to_numpy() for side in ("lo", "hi"))
    inside = [
        (low < drawn) & (drawn < high)
        for n_paths in (1, 3)
        for seed in range(40)
        for drawn in [fc.simulate(model, panel, n_paths, seed).groupby(
            ["unique_id", "ds"], sort=False)["LSTM"].first().to_numpy()]
    ]  # fmt: skip
    assert np.mean(inside) == pytest.approx(0.8, abs=0.08)


def test_the_seed_decides_and_the_frame_is_long(fitted, paths):
    model, panel = fitted
    pd.testing.assert_frame_equal(fc.simulate(model, panel, 2000), paths)
    other = fc.simulate(model, panel, 10, seed=1)
    assert list(other.columns) == ["unique_id", "ds", "sample_id", "LSTM"]
    assert len(other) == len(panel.ids) * 10 * HORIZON
    assert other.groupby(["unique_id", "sample_id"]).size().eq(HORIZON).all()
    assert not np.array_equal(other["LSTM"], paths[paths["sample_id"] < 10]["LSTM"])
    with refuses(UsageError):
        fc.simulate(model, panel, 0)


@pytest.mark.slow
def test_series_that_are_closed_at_times_still_depend_on_each_other():
    """Closed hours have no errors, so that no past day has errors of all its hours."""
    days, series = 42, 6
    random = np.random.default_rng(99)
    hour = np.arange(days * 24) % 24
    usual = np.where((hour >= 8) & (hour < 19), 500 + 1000 * np.exp(-(((hour - 12) / 3) ** 2)), 0)
    common = 0.3 * np.repeat(random.standard_normal(days), 24)
    own = 0.1 * random.standard_normal((series, days * 24))
    times = pd.date_range("2025-03-03", periods=days * 24, freq="h")
    calls = {f"q{k}": np.rint(usual * np.exp(common + one)) for k, one in enumerate(own)}
    panel = fc.load_panel(long(calls, times))
    config = fc.Config(horizon=24, hidden=2, lookback=24, epochs=1, members=1)
    paths = fc.simulate(fc.fit(panel, config), panel, n_paths=500)
    totals = paths.groupby(["unique_id", "sample_id"])["LSTM"].sum().unstack()
    assert np.corrcoef(totals)[0, 1:].min() > 0.7
    steps = paths[paths["unique_id"] == "q0"].pivot(index="ds", columns="sample_id", values="LSTM")
    moving = steps[steps.std(axis=1) > 0]
    between = np.corrcoef(moving)[0, 1:]
    assert len(moving) == 11 and between.min() < 0.95 and between.max() < 0.9999


LEVEL = (80, 95)


def test_sums_are_those_of_the_same_paths(fitted):
    groups = {"all": {f"s{k}": 1.0 for k in range(6)}, "some": {"s1": 2.0, "S4": -1.5}}
    made = fc.predict_sums(
        fitted[0], fitted[1], groups, LEVEL, quantiles=[0.3], n_paths=500, seed=3
    )
    paths = fc.simulate(fitted[0], fitted[1], n_paths=500, seed=3).rename(columns={"LSTM": "value"})
    paths["value"] *= paths["unique_id"].map({"s1": 2.0, "s4": -1.5}).fillna(0.0)
    some = paths.groupby(["ds", "sample_id"])["value"].sum().unstack()
    got = made[made["unique_id"] == "some"].set_index("ds")
    columns = {"LSTM": 0.5, "LSTM-lo-80": 0.1, "LSTM-hi-95": 0.975, "LSTM-q-0.3": 0.3}
    for column, share in columns.items():
        np.testing.assert_allclose(got[column], some.quantile(share, axis=1), rtol=1e-12)
    np.testing.assert_allclose(got["mean"], some.mean(axis=1), rtol=1e-12)
    assert got["series"].tolist() == [2] * HORIZON
    latest = {n: values[-1] for n, (values, _) in zip(fitted[1].ids, fitted[1].rows(), strict=True)}
    rise = (some > 2 * latest["s1"] - 1.5 * latest["s4"]).mean(axis=1)
    np.testing.assert_allclose(got["probability_of_rise"], rise)


def test_means_of_parts_add_up_and_bands_know_what_moves_together(fitted):
    names = fitted[0].ids
    parts = {name: {name: 1.0} for name in names}
    hedge = {"hedge": {names[0]: 1.0, names[1]: -1.0}}
    groups = {**parts, "all": dict.fromkeys(names, 1.0), **hedge}
    made = fc.predict_sums(fitted[0], fitted[1], groups).set_index(["unique_id", "ds"])
    width = (made["LSTM-hi-80"] - made["LSTM-lo-80"]).unstack("unique_id").iloc[-1]
    means = made["mean"].unstack("unique_id")
    np.testing.assert_allclose(means["all"], means[list(names)].sum(axis=1), rtol=1e-12)
    # The moves share 80 % of their variance, so the whole is nearly as wide as all parts together,
    # and a difference far narrower than its two parts.
    assert 0.8 < width["all"] / width[list(names)].sum() < 1
    assert width["hedge"] < 0.6 * width[list(names[:2])].sum()


def test_frames_of_groups_are_read(fitted):
    frame = pd.DataFrame({"unique_id": ["s0", "s1", "s1"], "group": ["a", "a", "b"]})
    weighted = fc.predict_sums(fitted[0], fitted[1], frame.assign(weight=[1, 3, 2]))
    by_hand = fc.predict_sums(fitted[0], fitted[1], {"a": {"s0": 1, "s1": 3}, "b": {"s1": 2}})
    pd.testing.assert_frame_equal(weighted, by_hand)
    plain = fc.predict_sums(fitted[0], fitted[1], frame)
    pd.testing.assert_frame_equal(
        plain, fc.predict_sums(fitted[0], fitted[1], frame.assign(weight=1))
    )


@pytest.mark.parametrize(
    "groups",
    [
        {},
        {"a": {}},
        {"a": ["s0"]},
        {"a": {"s0": 0}},
        {"a": {"s0": float("nan")}},
        {"a": {"s0": "x"}},
        pd.DataFrame({"unique_id": ["s0"]}),
        pd.DataFrame({"unique_id": ["s0"] * 2, "group": "a"}),
    ],
)
def test_other_groups_are_refused(fitted, groups):
    with refuses(UsageError):
        fc.predict_sums(fitted[0], fitted[1], groups)


def test_a_group_that_lacks_a_forecast_and_too_few_paths_are_errors(fitted):
    with refuses(ModelError):
        fc.predict_sums(fitted[0], fitted[1], {"a": {"s0": 1, "XYZ": 1}})
    with refuses(UsageError):
        fc.predict_sums(fitted[0], fitted[1], {"a": {"s0": 1}}, level=[99], n_paths=999)


SERIES, TIMES = 20, 250


def every_time(series: int = SERIES, times: int = TIMES) -> np.ndarray:
    return np.tile(np.arange(times), (series, 1))


def errors(common: np.ndarray, random: np.random.Generator, series: int = SERIES) -> np.ndarray:
    """Return errors (series, time, 1) of unit variance; ``common``: its share, by time."""
    shared = np.sqrt(common) * random.normal(size=len(common))
    own = np.sqrt(1 - common) * random.normal(size=(series, len(common)))
    return (shared + own)[:, :, None]


def correlation(units: np.ndarray) -> float:
    return float(np.corrcoef(units[:, :, 0])[np.triu_indices(len(units), 1)].mean())


def changed(before: float, after: float) -> np.ndarray:
    """Return a share of common variance that changes thirty times before now."""
    return np.where(np.arange(TIMES) < TIMES - 30, before, after)


@pytest.mark.parametrize(("before", "after"), [(0.2, 0.7), (0.6, 0.1)])
def test_series_move_together_more_like_lately(before, after):
    """At least a quarter of the way: the forecast is shrunk towards the average."""
    units = errors(changed(before, after), np.random.default_rng(0))
    found, average = correlation(scaled_to_now(units, every_time())), correlation(units)
    assert abs(found - after) < 0.75 * abs(average - after)


def walks(common: np.ndarray) -> dict[str, np.ndarray]:
    """Return values by series, whose changes have this common share."""
    moves = 0.01 * errors(common, np.random.default_rng(5), 6)[:, :, 0]
    return {f"s{row}": 100 * np.exp(np.cumsum(one)) for row, one in enumerate(moves)}


@pytest.mark.slow
@pytest.mark.parametrize(("column", "wider"), rest_slow([("close", True), ("y", False)]))
def test_paths_of_prices_and_no_others_follow_the_factor(column, wider, monkeypatch):
    common = np.where(np.arange(400) < 375, 0.1, 0.9)
    days = pd.bdate_range("2020-01-01", periods=400)
    panel = fc.load_panel(long(walks(common), days, column))
    config = fc.Config(horizon=1, hidden=4, members=1, epochs=2, lookback=20)
    model = fc.fit(panel, config)

    def deviation_of_sums() -> float:
        paths = fc.simulate(model, panel, 1000)
        return float(paths.groupby("sample_id")["LSTM"].sum().std())

    ours = deviation_of_sums()
    monkeypatch.setattr(simulating, "scaled_to_now", lambda units, positions: units)
    assert (ours > 1.05 * deviation_of_sums()) == wider
    assert wider or ours == deviation_of_sums()
