"""Errors of models beside each other, and what is said of them, against arithmetic written out."""

import dataclasses
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from forecaster.errors import UsageError
from forecaster.evaluation import (
    ALL,
    caveats,
    comparison,
    differences,
    excess,
    in_volatility,
    lack_of_tests,
    relative,
    strongest,
    value_at_risk,
    verdict,
    volatility,
)
from tests.evaluation.handmade import SERIES, evaluation, of_counts, outcomes, scores_of
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


@pytest.fixture
def plain(tmp_path):
    """Better on two of four series, significantly on one; significantly worse on another."""
    tests = outcomes(Naive=[1, 1, 0, 0], p=[0.01, 0.2, 0.3, 0.02])
    return evaluation(tmp_path, scores_of(LSTM=OURS, Naive=NAIVE), tests)


def test_a_comparison_is_means_over_series(plain):
    (row,) = comparison(plain).to_dict("records")
    ratios = [1 / 2, 2 / 2.5, 3 / 3, 4 / 2]
    assert (row["score"], row["model"], row["series"]) == ("crps", "Naive", 4)
    assert row["ratio"] == pytest.approx(sum(ratios) / 4)
    assert row["median_ratio"] == pytest.approx((0.8 + 1.0) / 2)
    assert row["better"] == 0.5 and row["known"] == 1.0
    assert row["significantly_better"] == 0.25  # 2 * 0.01 < 0.05
    assert row["significantly_worse"] == 0.25  # 2 * 0.02 < 0.05


def test_how_much_of_a_gain_is_drift_is_said_beside_it(tmp_path):
    plain = compared(tmp_path, {"Naive": 0.5, "GARCH": 0.8})
    assert "drift" not in verdict(plain)[2]
    assert comparison(plain)["driftless"].isna().all()
    moved = plain.scores["crps"].where(plain.scores["model"] != "LSTM", 0.9 * plain.scores["crps"])
    made = dataclasses.replace(plain, scores=plain.scores.assign(crps_driftless=moved))
    table = comparison(made).set_index(["score", "model"])["driftless"]
    assert table["crps", "Naive"] == pytest.approx(0.9 * 0.5)
    assert table["crps", "GARCH"] == pytest.approx(0.9 * 0.8) and np.isnan(table["mae", "GARCH"])
    assert verdict(made)[2].endswith(
        "; with every median moved to the latest price, so without drift, 0.450 and 0.720."
    )


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


def compared(folder, factors: dict[str, float], **changes):
    """An evaluation with ours at these multiples of the others' errors, on every series."""
    others: dict[str, Any] = {name: np.divide(OURS, factor) for name, factor in factors.items()}
    wins: dict[str, Any] = {name: [float(factor < 1)] * 4 for name, factor in factors.items()}
    tests = pd.concat([outcomes(f"{score}_against", **wins) for score in ("mae", "crps")])
    bands = {"coverage-80": [0.7, 0.8, 0.8, 0.9], "coverage-95": 0.9, "coverage-50": 0.5}
    scores = [
        scores_of(h, LSTM=OURS, **others).assign(**{k: np.resize(v, 4 * (1 + len(others)))
                                                    for k, v in bands.items()})
        for h in (1, 2)
    ]  # fmt: skip
    return evaluation(folder, pd.concat(scores), tests, **changes)


def test_the_verdict_is_five_sentences_over_all_horizons(tmp_path):
    made = compared(tmp_path, {"Naive": 0.5, "EWMA": 0.8, "GARCH": 1.25})
    first, point, whole, bands, ends = verdict(made)
    assert first == (
        "LSTM forecast 4 series 1 to 2 steps ahead from 40 cutoffs, 2024-01-02 to 2024-02-28, "
        "beside Naive, EWMA, GARCH; all figures are means over these steps."
    )
    assert point == (
        "Point forecasts: 0.500 times the error of 'unchanged' (0.500 one step ahead, 0.500 at 2), "
        "better on 100% of 4 series (significantly on 0%, significantly worse on 0%)."
    )
    assert "a CRPS 0.500 times that of 'unchanged'" in whole
    assert "1.250 times that of GARCH, the strongest of the others, better on 0%" in whole
    assert bands == (
        "Bands: those of 80 % covered 80.0% of the outcomes (80.0% to 80.0% by horizon), those of "
        "95 % covered 90.0% of the outcomes (90.0% to 90.0% by horizon)."
    )
    assert "does best on a (CRPS 0.500) and worst on " in ends
    assert all(line.endswith(".") for line in verdict(made)) and caveats(made) == [
        "Unusually far below the error of 'unchanged': look for something in the data that was not "
        "known at the time."
    ]


def test_the_strongest_model_is_the_one_that_ours_is_least_better_than(tmp_path):
    assert strongest(compared(tmp_path, {"Naive": 0.9, "GARCH": 1.1, "EWMA": 1.0})) == "GARCH"
    assert strongest(compared(tmp_path, {"Naive": 0.9, "PyTorch": 1.2})) == "Naive"
    assert strongest(compared(tmp_path, {"PyTorch": 1.2})) == "PyTorch"


def test_without_bands_or_others_it_says_so(tmp_path):
    scores = scores_of(LSTM=OURS, Naive=NAIVE).drop(columns="crps")
    made = evaluation(tmp_path, scores, outcomes("mae_against", Naive=[1, 1, 0, 0]))
    assert "without bands there is nothing to compare" in verdict(made)[2]
    assert verdict(made)[3] == "Bands: there are none to check."


def test_failures_and_few_cutoffs_are_caveats(tmp_path):
    made = compared(tmp_path, {"Naive": 1.0}, cutoffs=8, failed={"garch": {"x": "no"}})
    failed, few = caveats(made)
    assert failed == "garch failed on 1 series, which are not compared with it."
    assert few.startswith("No test of significance: it needs at least 20 cutoffs; there are 8")
    assert caveats(compared(tmp_path, {"Naive": 0.5}, target="y")) == []
    month = compared(tmp_path, {"Naive": 1.0}, horizon=21)
    assert caveats(month) == [
        "No test of significance over 21 steps, whose forecasts overlap: it needs at least 210 "
        "cutoffs; there are 40 (--windows)."
    ]
    assert lack_of_tests(month, 1) is None
    apart = compared(tmp_path, {"Naive": 1.0}, horizon=21, step_size=6)
    assert caveats(apart) == []  # each forecast overlaps with the next three


@pytest.mark.parametrize("factor", [1.0, 1 / 9])
def test_networks_of_pytorch_are_compared_series_by_series(tmp_path, factor):
    made = compared(tmp_path, {"Naive": 1.0, "PyTorch": factor}, series=4, torch_series=2)
    steps = np.divide([5.0, 6.0, 7.0, 8.0], OURS)  # errors that spread
    scores = made.scores
    spread = scores["model"].isin(["LSTM", "PyTorch"])
    scores.loc[spread, ["crps", "mae"]] *= np.resize(steps, spread.sum())[:, None]
    line = verdict(made)[-1]
    assert line.startswith("PyTorch: the same networks have errors that cannot be told apart")
    assert f"{factor:.4f} times theirs" in line


@pytest.fixture
def sparse(tmp_path):
    return of_counts(tmp_path)


def test_where_ratios_do_not_exist_sums_over_all_series_are_compared(sparse):
    table = comparison(sparse).set_index(["score", "model"])
    assert table["summed"].all() and (table["compared"] == 4).all()
    for score in ("mae", "crps"):
        row: Any = table.loc[(score, "Naive")]
        assert row["ratio"] == pytest.approx(11 / 18)
        assert (row["better"], row["equal"], row["series"]) == (0.5, 0.5, 4)
    lines = verdict(sparse)
    assert lines[1] == (
        "Point forecasts: 0.611 times the error of 'unchanged', summed over 4 series, better on "
        "50% and equal on 50% of 4 series."
    )
    assert "0.611 times that of 'unchanged', summed over 4 series and 0.670 times" in lines[2]
    assert lines[4].endswith("half of the 2 series compared are below 0.625.")
    assert any(line.startswith("Errors are summed over series") for line in caveats(sparse))


def test_a_mean_of_ratios_to_errors_near_zero_decides_nothing(tmp_path):
    """A mean of ratios says the opposite of the sums: (0.3 / 0.01 + 3 * 0.5) / 4 is 7.9."""
    ours, sba = [0.3, 0.5, 4.0, 5.0], [0.01, 1.0, 8.0, 10.0]
    scores = scores_of(LSTM=ours, Naive=[1.0, 2.0, 9.0, 20.0], SBA=sba)
    scores.loc[(scores["model"] == "Naive") & (scores["unique_id"] == "a"), "mae"] = 0
    tests = outcomes(p=np.nan, Naive=[1] * 4, SBA=[0, 1, 1, 1])
    made = evaluation(tmp_path, scores, tests, target="y")
    row: Any = comparison(made).set_index("model").loc["SBA"]
    assert row["ratio"] == pytest.approx(sum(ours) / sum(sba))
    assert strongest(made) == "SBA"  # the largest ratio of sums
    assert "0.516 times that of SBA, the strongest of the others" in verdict(made)[2]


def test_a_few_series_without_ratios_are_counted_in_words(tmp_path):
    scores = scores_of(LSTM=OURS, Naive=[2.0, 0.0, 3.0, 2.0])
    tests = pd.concat([outcomes(f"{s}_against", Naive=[1, 0, 0, 0]) for s in ("mae", "crps")])
    prices = evaluation(tmp_path, scores, tests)
    mean = np.mean([1 / 2, 3 / 3, 4 / 2])
    row = comparison(prices).iloc[0]
    assert not row["summed"] and (row["compared"], row["series"]) == (3, 4)
    assert row["ratio"] == pytest.approx(mean)
    assert f"{mean:.3f} times the error of 'unchanged', on 3 of 4 series," in verdict(prices)[1]
    assert f"{mean:.3f} times that of 'unchanged', on 3 of 4 series," in verdict(prices)[2]
