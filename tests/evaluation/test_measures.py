"""Errors of different series beside each other, against arithmetic written out."""

from typing import Any, cast

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from forecaster.errors import UsageError
from forecaster.evaluation import (
    caveats,
    comparison,
    confidence_set,
    coverage,
    differences,
    excess,
    in_volatility,
    ratios,
    ratios_of_sums,
    relative,
    strongest,
    value_at_risk,
    verdict,
    volatility,
)
from tests.evaluation.handmade import SERIES, evaluation, outcomes, scores_of

OURS, NAIVE = [1.0, 2.0, 3.0, 4.0], [2.0, 2.5, 3.0, 2.0]


@pytest.fixture
def two_steps(tmp_path):
    near = scores_of(1, 2.0, LSTM=OURS, Naive=NAIVE)
    far = scores_of(2, 9.0, LSTM=np.multiply(3, OURS), Naive=np.multiply(2, NAIVE))
    return evaluation(tmp_path, pd.concat([near, far]))


def test_relative_is_the_mean_over_horizons_of_ratios_at_each(two_steps):
    at_one = np.divide(OURS, NAIVE)
    table = relative(two_steps, "crps")
    np.testing.assert_allclose(table["LSTM"], (at_one + 1.5 * at_one) / 2)
    np.testing.assert_array_equal(table["Naive"], 1)
    np.testing.assert_allclose(relative(two_steps, "crps", 2)["LSTM"], 1.5 * at_one)
    assert table.index.tolist() == list(SERIES)


def test_sums_are_compared_on_the_series_that_both_models_have():
    sums = pd.DataFrame({"LSTM": [1, 2, np.nan], "Naive": [4, np.nan, 3], "SBA": [0, 0, np.nan]})
    ratio, series = ratios_of_sums(sums)
    np.testing.assert_array_equal(ratio, [1 / 4, 1, 0])
    assert series.tolist() == [1, 2, 1]
    ratio, series = ratios_of_sums(sums, "SBA")  # of zeros there is no ratio
    assert ratio.isna().all() and series.tolist() == [2, 1, 2]
    assert ratios_of_sums(sums.tail(1), "SBA").series.tolist() == [0, 0, 0]


def test_excess_is_the_mean_over_horizons_of_differences_at_each(two_steps):
    at_one, at_two = (
        np.subtract(OURS, NAIVE),
        np.subtract(np.multiply(3, OURS), np.multiply(2, NAIVE)),
    )
    np.testing.assert_allclose(excess(two_steps, "crps")["LSTM"], (at_one + at_two) / 2)
    np.testing.assert_array_equal(excess(two_steps, "crps")["Naive"], 0)
    np.testing.assert_allclose(excess(two_steps, "crps", 2)["LSTM"], at_two)


def test_volatility_is_the_naives_squared_error_one_step_ahead(two_steps):
    assert volatility(two_steps).tolist() == [2.0] * 4
    table = in_volatility(two_steps, "mae")  # twice the CRPS
    np.testing.assert_allclose(table["LSTM"], np.multiply(OURS, 2 * (1 + 3) / 2 / 2))
    np.testing.assert_allclose(in_volatility(two_steps, "crps", 2)["Naive"], NAIVE)


def test_a_trend_in_one_series_leaves_the_others_as_they_are(tmp_path):
    """What MASE got wrong: a series whose price has multiplied is a hundred times as large."""
    steep = scores_of(1, 1.0, LSTM=OURS, Naive=NAIVE)
    large = steep["unique_id"] == "d"
    steep.loc[large, ["crps", "mae", "rmse"]] *= 100
    made = evaluation(tmp_path, steep)
    plain = evaluation(tmp_path, scores_of(1, 1.0, LSTM=OURS, Naive=NAIVE))
    for measure in (relative, in_volatility):
        pd.testing.assert_frame_equal(measure(made, "crps"), measure(plain, "crps"))


def test_a_mean_over_some_of_the_horizons_is_none(tmp_path):
    holes = scores_of(2, LSTM=[np.nan, *OURS[1:]], Naive=[*NAIVE[:3], 0.0])
    made = evaluation(tmp_path, pd.concat([scores_of(1, LSTM=OURS, Naive=NAIVE), holes]))
    assert relative(made, "crps")["LSTM"].isna().tolist() == [True, False, False, True]


def test_a_series_that_never_changes_has_no_volatility(tmp_path):
    made = evaluation(tmp_path, scores_of(1, 0.0, LSTM=OURS, Naive=NAIVE))
    assert in_volatility(made, "crps").isna().all().all()


def test_ratios_are_to_any_other_model(tmp_path):
    made = evaluation(tmp_path, scores_of(LSTM=OURS, Naive=NAIVE, GARCH=np.multiply(2, OURS)))
    np.testing.assert_allclose(ratios(made, "crps", "GARCH"), 0.5)


def test_intervals_are_those_of_the_test(tmp_path):
    tests = outcomes(Naive=[1, 1, 0, 0], p=[0.01, 0.2, 0.3, 0.02])
    tests.loc[3, "statistic"] = np.nan
    table = differences(evaluation(tmp_path, scores_of(LSTM=OURS, Naive=NAIVE), tests), "crps")
    np.testing.assert_allclose(table["difference"], [-0.1, -0.1, 0.1, 0.1])
    half = np.full(4, 0.1 / 2 * stats.t.ppf(0.975, 39))  # a statistic of 2
    half[3] = np.nan
    np.testing.assert_allclose(table["high"] - table["difference"], half)
    np.testing.assert_allclose(table["difference"] - table["low"], half)


def test_an_interval_holds_zero_where_the_test_does_not_reject(tmp_path):
    """Its degrees of freedom are those of the test: six, not 39."""
    tests = outcomes(Naive=[1, 1, 1, 0], p=0.9).assign(degrees=6.0)
    tests["statistic"] = stats.t.ppf(0.975, 6) * np.array([0.9, 0.99, 1.01, 1.1])
    table = differences(evaluation(tmp_path, scores_of(LSTM=OURS, Naive=NAIVE), tests), "crps")
    assert (table["low"] * table["high"] < 0).tolist() == [True, True, False, False]


@pytest.mark.parametrize("given", [None, "folder", pd.DataFrame({"mae": [1.0]}), 3])
def test_only_an_evaluation_is_measured(given):
    for measure in (relative, in_volatility, excess, differences):
        with pytest.raises(UsageError, match="evaluation: expected an Evaluation, such as"):
            measure(given, "mae")
    for show in (comparison, confidence_set, coverage, value_at_risk, volatility, verdict, caveats,
                 strongest):  # fmt: skip
        with pytest.raises(UsageError, match="evaluation: expected an Evaluation, such as"):
            show(given)


def test_scores_and_horizons_are_those_of_the_evaluation(two_steps):
    for measure in (relative, in_volatility, excess, differences):
        for score in ("maee", None, ["mae"], "model", "horizon"):
            with pytest.raises(UsageError, match="score: expected one of crps, mae, rmse; got"):
                measure(two_steps, cast(Any, score))
        for horizon in (3, -1, "x", None, np.array(1)):
            with pytest.raises(UsageError, match="horizon: expected "):
                measure(two_steps, "mae", cast(Any, horizon))
    with pytest.raises(UsageError, match="horizon: expected 1 to 2, or 0 for all of them; got 3"):
        comparison(two_steps, 3)
