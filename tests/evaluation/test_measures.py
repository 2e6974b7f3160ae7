"""Errors of different series beside each other, against arithmetic written out."""

from typing import Any, cast

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from forecaster.errors import UsageError
from forecaster.evaluation import ALL, differences, excess, in_volatility, relative, volatility
from tests.evaluation.handmade import SERIES, evaluation, outcomes, scores_of
from tests.messages import refuses

OURS, NAIVE = [1.0, 2.0, 3.0, 4.0], [2.0, 2.5, 3.0, 2.0]


@pytest.fixture
def two_steps(tmp_path):
    near = scores_of(1, 2.0, LSTM=OURS, Naive=NAIVE)
    far = scores_of(2, 9.0, LSTM=np.multiply(3, OURS), Naive=np.multiply(2, NAIVE))
    return evaluation(tmp_path, pd.concat([near, far]))


def test_each_measure_is_a_mean_over_horizons_of_values_at_each(two_steps):
    ours, naive = np.array(OURS), np.array(NAIVE)
    at_one, less = ours / naive, ours - naive
    for horizon, ratio, difference in (
        (ALL, 1.25 * at_one, (less + 3 * ours - 2 * naive) / 2),
        (2, 1.5 * at_one, 3 * ours - 2 * naive),
    ):
        np.testing.assert_allclose(relative(two_steps, "crps", horizon)["LSTM"], ratio)
        np.testing.assert_array_equal(relative(two_steps, "crps", horizon)["Naive"], 1)
        np.testing.assert_allclose(excess(two_steps, "crps", horizon)["LSTM"], difference)
    assert relative(two_steps, "crps").index.tolist() == list(SERIES)
    assert volatility(two_steps).tolist() == [2.0] * 4  # the naive's squared error of one step
    table = in_volatility(two_steps, "mae")  # twice the CRPS
    np.testing.assert_allclose(table["LSTM"], 2 * ours * (1 + 3) / 2 / 2)
    np.testing.assert_allclose(in_volatility(two_steps, "crps", 2)["Naive"], naive)


def test_a_mean_over_some_of_the_horizons_is_none(tmp_path):
    holes = scores_of(2, LSTM=[np.nan, *OURS[1:]], Naive=[*NAIVE[:3], 0.0])
    made = evaluation(tmp_path, pd.concat([scores_of(1, 0.0, LSTM=OURS, Naive=NAIVE), holes]))
    assert relative(made, "crps")["LSTM"].isna().tolist() == [True, False, False, True]
    assert in_volatility(made, "crps").isna().all().all()  # series that never change


def test_an_interval_holds_zero_where_the_test_does_not_reject(tmp_path):
    """Its degrees of freedom are those of the test: six, not 39."""
    tests = outcomes(Naive=[1, 1, 1, 0], p=0.9).assign(degrees=6.0)
    tests["statistic"] = stats.t.ppf(0.975, 6) * np.array([0.9, 0.99, 1.01, 1.1])
    table = differences(evaluation(tmp_path, scores_of(LSTM=OURS, Naive=NAIVE), tests), "crps")
    assert (table["low"] * table["high"] < 0).tolist() == [True, True, False, False]


def test_scores_and_horizons_are_those_of_the_evaluation(two_steps):
    for measure in (relative, in_volatility, excess, differences):
        for score in ("maee", None, "model", "horizon"):
            with refuses(UsageError):
                measure(two_steps, cast(Any, score))
        for horizon in (3, -1, "x"):
            with refuses(UsageError):
                measure(two_steps, "mae", cast(Any, horizon))
