"""Sums of groups: those of the same paths, with the bands of series that move together."""

import numpy as np
import pandas as pd
import pytest

import forecaster as fc
from forecaster.errors import ModelError, UsageError
from tests.forecasting.test_simulating import CONFIG, HORIZON, market
from tests.messages import refuses

LEVEL = (80, 95)


@pytest.fixture(scope="module")
def fitted() -> tuple[fc.Model, fc.Panel]:
    panel = fc.load_panel(market(series=6, rows=400, seed=1))
    return fc.fit(panel, CONFIG), panel


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
