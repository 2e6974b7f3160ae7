"""The numbers that figures show, against small evaluations made by hand."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from forecaster.report import numbers
from tests.evaluation.handmade import SERIES, evaluation, outcomes, scores_of

OURS, NAIVE = [1.0, 2.0, 3.0, 4.0], [2.0, 2.5, 3.0, 2.0]
DAYS = pd.bdate_range("2024-01-01", periods=40)


def forecasts(y: list[float], ahead: list[float] | None = None) -> pd.DataFrame:
    """One series; every cutoff's first step is of ``y``, its second of ``ahead``."""
    rows = [
        {"unique_id": "a", "ds": DAYS[day + h + 1], "cutoff": DAYS[day], "y": value,
         "LSTM": 0.0, "LSTM-lo-80": -1.0, "LSTM-hi-80": 1.0, "LSTM-lo-95": -2.0, "LSTM-hi-95": 2.0}
        for day, values in enumerate(zip(y, ahead or y, strict=True))
        for h, value in enumerate(values)
    ]  # fmt: skip
    return pd.DataFrame(rows)


def test_the_pit_counts_outcomes_between_quantiles_one_step_ahead(tmp_path):
    y = [-3.0, -1.5, -1.5, -0.5, 0.5, 0.5, 1.5, 9.0]
    made = evaluation(
        tmp_path,
        scores_of(LSTM=OURS),
        forecasts=forecasts(y, [100.0] * len(y)),
        levels=["80", "95"],
    )
    edges, shares = numbers.pit(made)
    np.testing.assert_allclose(edges, [0, 0.025, 0.1, 0.5, 0.9, 0.975, 1])
    np.testing.assert_allclose(shares, np.array([1, 2, 1, 2, 1, 1]) / 8)


def test_a_calibrated_model_has_a_flat_pit(tmp_path):
    random = np.random.default_rng(0)
    y = random.uniform(0, 1, 4000)
    frame = pd.DataFrame(
        {"unique_id": "a", "ds": np.arange(1, 4001), "cutoff": np.arange(4000), "y": y,
         "LSTM": 0.5, "LSTM-lo-80": 0.1, "LSTM-hi-80": 0.9, "LSTM-lo-95": 0.025,
         "LSTM-hi-95": 0.975}
    )  # fmt: skip
    edges, shares = numbers.pit(evaluation(tmp_path, scores_of(LSTM=OURS), forecasts=frame))
    np.testing.assert_allclose(shares / np.diff(edges), 1, atol=0.2)


def test_without_bands_there_is_no_pit(tmp_path):
    edges, shares = numbers.pit(evaluation(tmp_path, scores_of(LSTM=OURS), levels=[]))
    assert not len(edges) and not len(shares)


def test_scores_are_scaled_at_each_horizon(tmp_path):
    scores = pd.concat([scores_of(1, 2.0, LSTM=OURS), scores_of(2, 4.0, LSTM=OURS)])
    table = numbers.scaled_by_horizon(evaluation(tmp_path, scores), "crps")
    assert table.loc[("c", 1), "LSTM"] == 3 / 2 and table.loc[("c", 2), "LSTM"] == 3 / 4


def test_relative_by_horizon_is_a_mean_of_ratios(tmp_path):
    scores = [scores_of(h, LSTM=np.multiply(h, OURS), Naive=NAIVE) for h in (1, 2)]
    table = numbers.relative_by_horizon(evaluation(tmp_path, pd.concat(scores)))
    ratio = np.mean([1 / 2, 2 / 2.5, 3 / 3, 4 / 2])
    np.testing.assert_allclose(table["LSTM"], [ratio, 2 * ratio])
    np.testing.assert_array_equal(table["Naive"], 1)


def test_relative_by_date_is_a_ratio_of_means_of_21_cutoffs(tmp_path):
    ours, naive = np.arange(1.0, 41), np.full(40, 2.0)
    daily = pd.concat(
        pd.DataFrame({"cutoff": DAYS, "model": model, "crps": values})
        for model, values in (("LSTM", ours), ("Naive", naive))
    )
    table = numbers.relative_by_date(evaluation(tmp_path, scores_of(LSTM=OURS), daily=daily))
    assert table["LSTM"].iloc[0] == 1 / 2
    assert table["LSTM"].iloc[30] == pytest.approx(ours[10:31].mean() / 2)


def of_all_series(sizes: dict[str, float]) -> pd.DataFrame:
    rows = [
        {"unique_id": name, "ds": DAYS[day + 1], "cutoff": DAYS[day], "y": size * sign}
        for name, size in sizes.items()
        for day, sign in enumerate((1, -1))
    ]
    return pd.DataFrame(rows)


def test_volatility_is_the_mean_change_relative_to_the_mean_size(tmp_path):
    sizes = dict(zip(SERIES, (10.0, 20.0, 40.0, 0.0), strict=True))
    scores = pd.concat([scores_of(1, 2.0, LSTM=OURS), scores_of(2, 99.0, LSTM=OURS)])
    result = numbers.volatility(evaluation(tmp_path, scores, forecasts=of_all_series(sizes)))
    assert result.to_dict() == pytest.approx({"a": 0.2, "b": 0.1, "c": 0.05})  # d has no size


def test_relative_by_volatility_goes_from_the_calmest_to_the_wildest(tmp_path):
    sizes = dict(zip(SERIES, (10.0, 40.0, 20.0, 5.0), strict=True))
    scores = scores_of(LSTM=OURS, Naive=NAIVE)
    made = evaluation(tmp_path, scores, forecasts=of_all_series(sizes))
    table = numbers.relative_by_volatility(made)
    assert table.index.tolist() == [1, 2, 3, 4]
    np.testing.assert_allclose(table["LSTM"], [2 / 2.5, 3 / 3, 1 / 2, 4 / 2])  # b, c, a, d
    lonely = evaluation(tmp_path, scores, forecasts=of_all_series({"a": 1.0}))
    assert numbers.relative_by_volatility(lonely).empty


def test_widths_are_medians_in_order_of_levels(tmp_path):
    widths = {"width-95": [4.0, 6.0, 8.0, 100.0], "width-80": [2.0, 3.0, 4.0, 50.0]}
    scores = scores_of(1, 2.0, LSTM=OURS).assign(**widths)
    made = evaluation(
        tmp_path, pd.concat([scores, scores_of(2, LSTM=OURS), scores_of(Naive=NAIVE)])
    )
    result = numbers.median_widths(made, "LSTM")
    assert result.to_dict() == pytest.approx({0.8: 3.5 / 2, 0.95: 7 / 2})
    assert numbers.median_widths(made, "Naive").isna().all()


def against(**ratio: float) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Scores and tests in which ours has these ratios to others."""
    others: Any = {name: np.divide(OURS, r) for name, r in ratio.items()}
    better: Any = dict.fromkeys(ratio, [1] * 4)
    return scores_of(LSTM=OURS, **others), outcomes(**better)


def test_the_strongest_model_is_the_one_that_ours_is_least_better_than(tmp_path):
    made = evaluation(tmp_path, *against(Naive=0.9, GARCH=1.1, EWMA=1.0))
    assert numbers.strongest(made) == "GARCH"
    assert numbers.strongest(evaluation(tmp_path, *against(Naive=0.9, PyTorch=1.2))) == "Naive"
    assert numbers.strongest(evaluation(tmp_path, *against(PyTorch=1.2))) == "PyTorch"


def test_pairs_lay_scaled_scores_side_by_side(tmp_path):
    tests = outcomes(Naive=[1, 1, 0, 0], p=[0.01, 0.2, np.nan, 0.02])
    scores = scores_of(1, 2.0, LSTM=OURS, Naive=NAIVE)
    pairs = numbers.Pairs.of(evaluation(tmp_path, scores, tests), "Naive")
    np.testing.assert_allclose(pairs.ours, np.divide(OURS, 2))
    np.testing.assert_allclose(pairs.others, np.divide(NAIVE, 2))
    assert pairs.significant.tolist() == [True, False, False, True]


def test_tests_of_point_forecasts_are_used_where_there_are_no_bands(tmp_path):
    by_error, later = outcomes("mae_against", Naive=OURS), outcomes(horizon=2, Naive=OURS)
    made = evaluation(tmp_path, scores_of(LSTM=OURS), by_error)
    assert set(numbers.comparison_tests(made)["test"]) == {"mae_against"}
    made = evaluation(
        tmp_path, scores_of(LSTM=OURS), pd.concat([by_error, later, outcomes(Naive=OURS)])
    )
    rows = numbers.comparison_tests(made)
    assert set(rows["test"]) == {"crps_against"} and set(rows["horizon"]) == {1}
