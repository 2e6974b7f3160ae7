"""Tables of evaluations, and the tests in them."""

import itertools

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import forecaster as fc
from forecaster.evaluation.backtest import joined
from forecaster.evaluation.scores import tables as significance
from forecaster.evaluation.scores.tables import FEWEST, Tables

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


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(0)


def overlapping(random: np.random.Generator, cutoffs: int, steps: int, *shape: int) -> np.ndarray:
    """Draw losses (cutoff, ...) of this many steps, all but one of them also the next cutoff's."""
    shocks = random.standard_t(4, size=(cutoffs + steps, *shape)).cumsum(0)
    return shocks[steps:] - shocks[:-steps]


def test_diebold_mariano_by_its_formulas_written_out(random):
    """The mean over its standard error by the slowest cosines, three where four of 60 overlap."""
    losses, others = random.normal(size=(2, 60)) ** 2
    difference, waves = losses - others, 3
    cosines = [
        sum(np.sqrt(2) * np.cos(np.pi * j * (t + 0.5) / 60) * difference[t] for t in range(60)) / 60
        for j in range(1, waves + 1)
    ]
    statistic = difference.mean() / np.sqrt(np.square(cosines).mean())
    got = significance.diebold_mariano(losses, others, lags=3)
    np.testing.assert_allclose(got, (statistic, 2 * stats.t.sf(abs(statistic), waves)))
    swapped = significance.diebold_mariano(others, losses, lags=3)
    assert swapped.statistic == -got.statistic and swapped.p_value == got.p_value


@pytest.mark.parametrize(
    ("cutoffs", "steps"), [(20, 1), (60, 1), (250, 1), (60, 6), (250, 10), (210, 21), (250, 21)]
)
def test_equal_forecasts_are_called_different_as_often_as_the_level_says(random, cutoffs, steps):
    """At five per cent; and one of a hundred series in at most a tenth of evaluations."""
    losses = overlapping(random, cutoffs, steps, 60, 100)
    p = np.array(
        [
            [significance.diebold_mariano(d, 0 * d, steps - 1).p_value for d in each]
            for each in losses.transpose(1, 2, 0)
        ]
    )
    assert 0.035 < (p < 0.05).mean() < 0.07
    any_of_a_hundred = [(significance.false_discovery(each) < 0.05).any() for each in p]
    assert np.mean(any_of_a_hundred) < 0.1 + 2 * np.sqrt(0.1 * 0.9 / 60)  # of sixty evaluations


@pytest.mark.parametrize("size", [1e-9, 1.0, 1e9])
def test_losses_that_differ_by_rounding_alone_do_not_differ(random, size):
    losses = size * random.normal(size=60) ** 2
    for other in (losses * (1 + 3e-16), losses + 0.1 * size):  # the same difference each time
        assert np.isnan(significance.diebold_mariano(other, losses)).all()
    other = losses * (1 + 1e-6)
    assert significance.diebold_mariano(losses, other).p_value < 0.01


def test_what_cannot_be_tested_has_no_p_value(random):
    few = random.normal(size=FEWEST - 1)
    assert np.isnan(significance.diebold_mariano(few, 2 * few).p_value)
    same = random.normal(size=50)
    assert np.isnan(significance.diebold_mariano(same, same).p_value)
    assert np.isnan(significance.diebold_mariano(same, np.full(50, np.nan)).p_value)
    assert np.isnan(significance.kupiec(few < 0, 0.1).p_value)
    assert np.isnan(significance.christoffersen(np.zeros(50, bool)).p_value)
    some = significance.false_discovery(np.array([np.nan, 0.01, 0.04]))
    np.testing.assert_allclose(some, [np.nan, 0.02, 0.04])
    assert np.isnan(significance.false_discovery(np.array([np.nan]))).all()


def test_value_at_risk_tests_by_likelihoods_written_out(random):
    exceeded = random.random(300) < 0.08
    hits, count, p = exceeded.sum(), 300, 0.05
    ratio = 2 * np.log(
        ((1 - hits / count) / (1 - p)) ** (count - hits) * (hits / count / p) ** hits
    )
    got = significance.kupiec(exceeded, p)
    np.testing.assert_allclose(got, (ratio, stats.chi2.sf(ratio, 1)))
    pairs = np.zeros((2, 2))
    for before, now in itertools.pairwise(exceeded):
        pairs[int(before), int(now)] += 1
    share = pairs[:, 1] / pairs.sum(1)
    together = pairs[:, 1].sum() / pairs.sum()
    log = lambda share, row: row[0] * np.log(1 - share) + row[1] * np.log(share)  # noqa: E731
    ratio = 2 * (log(share[0], pairs[0]) + log(share[1], pairs[1]) - log(together, pairs.sum(0)))
    np.testing.assert_allclose(significance.christoffersen(exceeded).statistic, ratio)
