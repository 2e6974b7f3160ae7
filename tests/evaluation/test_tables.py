"""Scores, tests and daily losses of batches, by hand."""

import numpy as np
import pandas as pd
import pytest

import forecaster as fc
from forecaster.evaluation.backtest import joined
from forecaster.evaluation.scores import tables as significance
from forecaster.evaluation.scores.tables import Tables

DAYS = pd.bdate_range("2024-01-01", periods=70)


def values(number: int) -> np.ndarray:
    return 100 + np.cumsum(np.random.default_rng(number).normal(size=70))


@pytest.fixture(scope="module")
def panel() -> fc.Panel:
    parts = [pd.DataFrame({"unique_id": n, "ds": DAYS, "y": values(i)}) for i, n in enumerate("ab")]
    return fc.Panel.from_frame(pd.concat(parts))


@pytest.fixture(scope="module")
def frame(panel) -> pd.DataFrame:
    """25 cutoffs, two steps ahead; ``M`` has bands, ``Naive`` the latest value alone."""
    parts = []
    for number, name in enumerate("ab"):
        y = values(number)
        for cutoff in range(43, 68):
            ahead = np.array([1, 2])
            middle = y[cutoff] + 0.1 * ahead
            parts.append(
                pd.DataFrame(
                    {
                        "unique_id": name, "ds": DAYS[cutoff + ahead], "cutoff": DAYS[cutoff],
                        "y": y[cutoff + ahead], "M": middle, "M-lo-90": middle - 1.5,
                        "M-hi-90": middle + 1.5, "Naive": y[cutoff],
                    }
                )
            )  # fmt: skip
    return pd.concat(parts, ignore_index=True)


@pytest.fixture(scope="module")
def made(frame, panel) -> Tables:
    return Tables.of_batch(frame, panel, "M", 1)


def test_ours_is_tested_against_the_others_with_the_lags_of_the_horizon(made, frame):
    rows = made.tests[made.tests["test"] == "mae_against"]
    assert set(rows["model"]) == {"Naive"} and len(rows) == 2 * 3  # two horizons, and both together
    assert "crps_against" not in set(made.tests["test"])  # Naive has no bands
    two = frame[frame["unique_id"] == "b"].groupby("cutoff").nth(1)
    ours, naive = ((two["y"] - two[name]).abs().to_numpy() for name in ("M", "Naive"))
    row = rows[(rows["unique_id"] == "b") & (rows["horizon"] == 2)].iloc[0]
    expected = significance.diebold_mariano(ours, naive, lags=1)
    assert (row["statistic"], row["p_value"]) == pytest.approx(tuple(expected))
    assert row["value"] == float(ours.mean() < naive.mean())
    assert row["difference"] == pytest.approx(ours.mean() / naive.mean() - 1)


def test_over_all_horizons_each_counts_relative_to_the_other_models_error(made, frame):
    own = frame[frame["unique_id"] == "b"]
    ours, naive = (
        (own["y"] - own[name]).abs().to_numpy().reshape(-1, 2) for name in ("M", "Naive")
    )  # (cutoff, horizon)
    ours, naive = (part / naive.mean(0) for part in (ours, naive))
    expected = significance.diebold_mariano(ours.mean(1), naive.mean(1), lags=1)
    rows = made.tests.query("unique_id == 'b' and horizon == 0 and test == 'mae_against'")
    (row,) = rows.to_dict("records")
    assert (row["statistic"], row["p_value"]) == pytest.approx(tuple(expected))
    assert row["difference"] == pytest.approx(ours.mean() - 1)
    assert row["value"] == float(ours.mean() < 1)


def test_one_step_ahead_value_at_risk_is_tested(made, frame):
    first = frame[frame["unique_id"] == "a"].groupby("cutoff").nth(0)
    rows = made.tests[(made.tests["unique_id"] == "a") & (made.tests["model"] == "M")]
    rows = rows.set_index("test")
    assert set(rows.index) == {"kupiec-0.05", "christoffersen-0.05"}
    exceeded = (first["y"] < first["M-lo-90"]).to_numpy()
    assert rows.loc["kupiec-0.05", "value"] == exceeded.mean()
    assert rows.loc["kupiec-0.05", "p_value"] == significance.kupiec(exceeded, 0.05).p_value


def test_daily_losses_are_in_units_of_the_naives_over_all_series_and_horizons(made, frame, panel):
    halves = [
        Tables.of_batch(part.reset_index(drop=True), panel, "M", 1)
        for _, part in frame.groupby("unique_id")
    ]
    combined = joined(halves)
    pd.testing.assert_frame_equal(combined.daily, joined([made]).daily)
    errors = []
    for number in range(2):
        y = values(number)
        for ahead in (1, 2):
            changes = y[43 + ahead : 68 + ahead] - y[43:68]
            unit = np.sqrt((changes**2).mean())
            errors.append(abs(y[50 + ahead] - y[50] - 0.1 * ahead) / unit)
    row = combined.daily[combined.daily["cutoff"] == DAYS[50]].query("model == 'M'")
    assert row["mae"].item() == pytest.approx(np.mean(errors))


def test_p_values_are_adjusted_over_series_for_each_test_apart(made):
    combined = joined([made])
    for _, rows in combined.tests.groupby(["horizon", "test", "model"]):
        expected = significance.false_discovery(rows["p_value"].to_numpy())
        np.testing.assert_array_equal(rows["p_adjusted"], expected)
