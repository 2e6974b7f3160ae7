"""The verdict and its tables, against arithmetic written out."""

import numpy as np
import pandas as pd
import pytest

from forecaster.evaluation import comparison, coverage, scaled, value_at_risk, verdict
from tests.evaluation.handmade import evaluation, outcomes, scores_of

OURS, NAIVE = [1.0, 2.0, 3.0, 4.0], [2.0, 2.5, 3.0, 2.0]


@pytest.fixture
def plain(tmp_path):
    """Better on two of four series, significantly on one; significantly worse on another."""
    tests = outcomes(Naive=[1, 1, 0, 0], p=[0.01, 0.2, 0.3, 0.02])
    return evaluation(tmp_path, scores_of(LSTM=OURS, Naive=NAIVE), tests)


def test_a_comparison_is_means_over_series(plain):
    (row,) = comparison(plain, 1).to_dict("records")
    ratios = [1 / 2, 2 / 2.5, 3 / 3, 4 / 2]
    assert (row["score"], row["model"], row["series"]) == ("crps", "Naive", 4)
    assert row["ratio"] == pytest.approx(sum(ratios) / 4)
    assert row["median_ratio"] == pytest.approx((0.8 + 1.0) / 2)
    assert row["better"] == 0.5 and row["known"] == 1.0
    assert row["significantly_better"] == 0.25  # 2 * 0.01 < 0.05
    assert row["significantly_worse"] == 0.25  # 2 * 0.02 < 0.05


def test_series_that_cannot_be_compared_do_not_count(tmp_path):
    tests = outcomes(Naive=[1, np.nan, 0, 0], Failed=np.full(4, np.nan), p=[0.01, 0.2, np.nan, 0.3])
    scores = scores_of(LSTM=OURS, Naive=[2.0, np.nan, 0.0, 2.0])
    (row,) = comparison(evaluation(tmp_path, scores, tests), 1).to_dict("records")
    assert row["series"] == 3 and row["better"] == pytest.approx(1 / 3)
    assert row["known"] == pytest.approx(2 / 3)
    assert row["ratio"] == pytest.approx((1 / 2 + 4 / 2) / 2)  # neither NaN nor a division by zero


def test_other_tests_and_horizons_are_no_comparison(tmp_path):
    tests = pd.concat([outcomes(test="direction", Naive=[1] * 4), outcomes(horizon=2, Naive=OURS)])
    assert comparison(evaluation(tmp_path, scores_of(LSTM=OURS), tests), 1).empty


def test_coverage_is_the_mean_over_series_in_order_of_levels(tmp_path):
    scores = scores_of(LSTM=OURS).assign(
        **{"coverage-95": [1.0, 0.9, 1.0, 0.9], "coverage-80": [0.7, 0.8, 0.9, 1.0]}
    )
    table = coverage(evaluation(tmp_path, pd.concat([scores, scores_of(Naive=NAIVE)])))
    assert table["level"].tolist() == [80.0, 95.0] and set(table["model"]) == {"LSTM"}
    np.testing.assert_allclose(table["held"], [0.85, 0.95])


def test_value_at_risk_counts_exceedances_and_rejections(tmp_path):
    tests = [
        outcomes("kupiec-0.05", LSTM=[0.05, 0.1, 0.0, 0.05], p=[0.9, 0.01, 0.02, 0.9]),
        outcomes("christoffersen-0.05", LSTM=[0.05, 0.1, 0.0, 0.05], p=[0.9, 0.01, np.nan, 0.9]),
        outcomes("kupiec-0.025", LSTM=[0.0, 0.1, 0.0, 0.1], p=np.nan),
    ]
    table = value_at_risk(evaluation(tmp_path, scores_of(LSTM=OURS), pd.concat(tests)))
    wide, narrow = table.sort_values("probability", ascending=False).to_dict("records")
    assert (wide["probability"], narrow["probability"]) == (0.05, 0.025)
    assert wide["exceeded"] == pytest.approx(0.05)
    assert wide["kupiec"] == pytest.approx(2 / 4)
    assert wide["christoffersen"] == pytest.approx(1 / 3)  # one has no p-value
    assert narrow["exceeded"] == pytest.approx(0.05)
    assert np.isnan(narrow["kupiec"])


def test_scaled_is_the_mean_over_horizons_in_units_of_changes(tmp_path):
    scores = pd.concat([scores_of(1, 2.0, LSTM=OURS), scores_of(2, 4.0, LSTM=OURS)])
    table = scaled(evaluation(tmp_path, scores), "crps")
    np.testing.assert_allclose(table["LSTM"], [(v / 2 + v / 4) / 2 for v in OURS])
    np.testing.assert_allclose(
        scaled(evaluation(tmp_path, scores), "mae")["LSTM"], 2 * table["LSTM"]
    )


def test_the_verdict_puts_the_comparisons_into_words(tmp_path):
    tests = [outcomes(test, Naive=[1, 1, 0, 0], EWMA=[1] * 4, GARCH=[0] * 4, p=0.5) for test in
             ("mae_against", "crps_against")]  # fmt: skip
    scores = scores_of(LSTM=OURS, Naive=NAIVE, EWMA=np.multiply(2, OURS), GARCH=OURS)
    made = evaluation(tmp_path, scores, pd.concat(tests), failed={"garch": {"x": "no"}})
    heading, point, garch, naive, ewma, failed = verdict(made)
    assert heading == "4 series, 40 cutoffs from 2024-01-02 to 2024-02-28, one step ahead:"
    assert point.startswith("Point forecasts: better than Naive on 50% of 4 series, significantly")
    assert "GARCH on 0% of 4 series" in garch and "Naive" in naive
    assert "EWMA on 100% of 4 series, significantly on 0% (worse on 0%)" in ewma
    assert "0.5000" in ewma
    assert failed == "garch failed on 1 series, which are not compared with it."


def test_bands_few_cutoffs_and_forecasts_too_good_are_spoken_of(tmp_path):
    scores = scores_of(LSTM=OURS, Naive=np.multiply(2, OURS)).assign(
        **{"coverage-80": 0.75, "coverage-95": 0.9, "coverage-50": 0.5}
    )
    tests = outcomes("mae_against", Naive=[1] * 4, p=np.nan)
    made = evaluation(tmp_path, scores, tests, cutoffs=8)
    lines = verdict(made)
    assert lines[2] == "Bands hold 75.0% of 80 % and 90.0% of 95 %."
    assert lines[3].startswith("No test of significance: it needs at least 20 cutoffs; there are 8")
    assert lines[4].startswith("Unusually far below the error of 'unchanged'")
    assert "significantly" not in lines[1]
    assert "Unusually" not in verdict(evaluation(tmp_path, scores, tests, target="y"))[-1]


@pytest.mark.parametrize(("factor", "words"), [(1.0, "cannot be told apart"), (9.0, "differ from")])
def test_networks_of_pytorch_are_compared_as_distributions(tmp_path, factor, words):
    scores = scores_of(LSTM=OURS, PyTorch=np.multiply(factor, OURS))
    made = evaluation(tmp_path, scores, series=4, torch_series=2)
    line = verdict(made)[-1]
    assert words in line and f"mean ratio {1 / factor:.4f}" in line
    assert "3.0 times" in line  # 12 s for 2 networks, 8 s for 4
