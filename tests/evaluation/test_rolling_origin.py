"""Cutoffs, entries and files of a rolling origin; forecasts themselves are in test_scores.py."""

import dataclasses
import warnings

import numpy as np
import pandas as pd
import pytest

import forecaster as fc
from forecaster.errors import DataError, ForecasterWarning, UsageError
from forecaster.evaluation import BacktestOptions, Origins, evaluate_to_folder
from forecaster.evaluation.comparing import caveats
from forecaster.evaluation.cutoffs import cutoffs_in
from tests.messages import refuses, warns
from tests.slow import slow

DAYS = pd.bdate_range("2024-01-01", periods=10)


@pytest.fixture
def panel() -> fc.Panel:
    """Two series of ten and of six days; the second was not observed on the eighth."""
    whole = pd.DataFrame({"unique_id": "a", "ds": DAYS, "y": np.arange(10.0)})
    part = pd.DataFrame({"unique_id": "b", "ds": DAYS[3:], "y": np.arange(13.0, 20)})
    return fc.Panel.from_frame(pd.concat([whole, part.drop(index=4)]))


def test_the_last_cutoff_is_a_horizon_before_the_end(panel):
    assert cutoffs_in(panel.times, 2, 3, 1).tolist() == [5, 6, 7]
    assert cutoffs_in(panel.times, 1, 3, 2).tolist() == [4, 6, 8]
    with refuses(DataError):
        cutoffs_in(panel.times, 1, 4, 3)
    with refuses(UsageError):
        cutoffs_in(panel.times, 1, 0, 1)


def test_entries_are_in_order_of_series_cutoff_and_horizon(panel):
    keys = Origins.from_panel(panel, np.array([6, 8]), 2).keys
    rows = [
        ("a", 7, 6, 7.0), ("a", 8, 6, 8.0), ("a", 9, 8, 9.0),
        ("b", 8, 6, 18.0), ("b", 9, 6, 19.0), ("b", 9, 8, 19.0),
    ]  # fmt: skip
    expected = [(name, DAYS[ds], DAYS[cutoff], y) for name, ds, cutoff, y in rows]
    assert list(keys.itertuples(index=False, name=None)) == expected


def test_a_series_is_not_forecast_from_a_cutoff_it_was_not_observed_at(panel):
    assert set(Origins.from_panel(panel, np.array([7]), 1).keys["unique_id"]) == {"a"}
    assert set(Origins.from_panel(panel, np.array([1]), 1).keys["unique_id"]) == {"a"}


@pytest.mark.slow
def test_each_series_is_forecast_towards_its_own_end_where_times_count_rows(config):
    rows = {"long": 260, "short": 200}
    values = np.random.default_rng(0).normal(size=260).cumsum() + 50
    parts = [
        pd.DataFrame({"unique_id": name, "ds": np.arange(1, count + 1), "y": values[:count]})
        for name, count in rows.items()
    ]
    panel = fc.Panel.from_frame(pd.concat(parts))
    frame = fc.cross_validation(panel, config, 2, 1, seed=1)
    assert frame.groupby("unique_id")["ds"].max().to_dict() == rows
    for name, count in rows.items():
        own = frame[frame["unique_id"] == name]
        assert sorted(own["cutoff"].unique()) == [count - 4, count - 3]
        np.testing.assert_array_equal(own["y"], values[own["ds"] - 1])
        alone = fc.cross_validation(panel.only([name]).until(count), config, 2, 1, seed=1)
        np.testing.assert_allclose(own["LSTM"], alone["LSTM"], rtol=1e-6)
    common = fc.cross_validation(panel, config, 2, 1, seed=1, ends="common")
    assert set(common["unique_id"]) == {"long"}


SMALL = fc.Config(
    hidden=2, lookback=5, burn_in=2, horizon=5, validation=20, epochs=1, batch_size=8, members=1
)
ROWS, FIRST = 120, 105  # and 10 cutoffs from there


def fallen(column: str, at: int, value: float, length: int = ROWS) -> fc.Panel:
    """Two random walks; the first is ``value`` for ``length`` rows from a position on."""
    random = np.random.default_rng(3)
    walks = 30 * np.exp(np.cumsum(random.normal(0, 0.02, (2, ROWS)), axis=1))
    walks[0, at : at + length] = value
    days = pd.bdate_range("2024-01-01", periods=ROWS)
    return fc.Panel.from_frame(
        pd.concat(pd.DataFrame({"unique_id": f"s{row}", "ds": days, column: walk})
                  for row, walk in enumerate(walks))
    )  # fmt: skip


@pytest.mark.parametrize("column", ["y", slow("close")])
@pytest.mark.parametrize(("value", "length"), [(0.0, ROWS), slow(-37.63, 1)])
def test_outcomes_of_zero_or_below_are_scored(column, value, length):
    """From the first of them on a price cannot be forecast, which is said."""
    bad = FIRST + 10  # the last cutoff is one row before
    panel = fallen(column, bad, value, length)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ForecasterWarning)  # not those of libraries
        frame = fc.cross_validation(panel, SMALL, 10)
    own = frame[frame["unique_id"] == "s0"]
    assert len(own) == 50
    assert (own["y"] <= 0).sum() == (15 if length == ROWS else 5)
    scores = fc.evaluate(frame).set_index(["unique_id", "model"])
    errors = (own["y"] - own["LSTM"]).abs()
    assert scores.loc[("s0", "LSTM"), "mae"] == pytest.approx(errors.mean())

    cutoff = FIRST + 6
    panel = fallen(column, cutoff, value, length)
    if column == "y":  # any level can be forecast
        later = fc.cross_validation(panel, SMALL, 10)
        assert len(later) == 100
        before = later["cutoff"] < panel.times[cutoff]
        later = later[before | (later["unique_id"] == "s1")]
    else:
        with warns(ForecasterWarning):
            later = fc.cross_validation(panel, SMALL, 10)
    own = later[later["unique_id"] == "s0"]
    assert len(own) == 30 and own["cutoff"].max() < panel.times[cutoff]
    assert len(later[later["unique_id"] == "s1"]) == 50
    # What happens later moves no forecast made before.
    both = frame.merge(later, on=["unique_id", "cutoff", "ds"])
    assert len(both) == 80
    np.testing.assert_allclose(both["LSTM_x"], both["LSTM_y"], rtol=1e-6)


@pytest.mark.parametrize("value", [1e151, 1e90])
def test_an_absurd_outcome_takes_no_forecast_from_the_scores_that_came_before(value):
    """The first is too large for squares, the second too far from earlier values for logarithms."""
    frames = []
    for bad in (FIRST + 6, ROWS):
        panel = fallen("y", bad, value)
        if value > 1e100:  # a series without logarithms
            values = panel.values - panel.values[:, :1]
            values[0, bad:] = value
            panel = dataclasses.replace(panel, values=values)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            frames.append(fc.cross_validation(panel, SMALL, 10))
        said = " ".join(str(one.message) for one in caught)
        assert ("s0: no forecasts from 4 of 10 cutoffs: y is 1e+" in said) == (bad < ROWS)
    later, whole = frames
    own = later[later["unique_id"] == "s0"]
    assert len(own) == 30 and own["LSTM"].notna().all() and (own["y"] == value).sum() == 15
    both = whole.merge(later, on=["unique_id", "cutoff", "ds"])
    np.testing.assert_allclose(both["LSTM_x"], both["LSTM_y"], rtol=1e-6)


@pytest.mark.slow
def test_an_evaluation_counts_the_cutoffs_without_forecasts(tmp_path):
    panel = fallen("close", FIRST + 6, 0.0)
    options = BacktestOptions(10, 1, ("empirical", "ewma"))
    evaluation = evaluate_to_folder(tmp_path / "e", panel, SMALL, options)
    assert set(evaluation.summary.failed) == {"LSTM"}
    (reason,) = evaluation.summary.failed["LSTM"].values()
    assert reason.startswith("no forecasts from 4 of 10 cutoffs: close is 0 on ")
    frame = evaluation.forecasts(["LSTM", "Naive", "EWMA"])
    own = frame[frame["unique_id"] == "s0"]
    assert len(own) == 30 and (own["y"] == 0).sum() == 15 and own.notna().all(axis=None)
    of_series = evaluation.scores[evaluation.scores["unique_id"] == "s0"]
    assert set(of_series["model"]) == {"LSTM", "Naive", "Empirical", "EWMA"}
    assert any("LSTM could not forecast 1 series" in line for line in caveats(evaluation))


def test_a_series_that_ends_after_the_first_step_has_scores_of_that_step_alone(tmp_path):
    whole = fallen("close", FIRST, 1.0)
    rows = whole.mask.copy()
    rows[1, FIRST + 2 :] = False
    panel = dataclasses.replace(whole, mask=rows)
    with warns(ForecasterWarning):
        evaluation = evaluate_to_folder(tmp_path / "e", panel, SMALL, BacktestOptions(10, 1, ()))
    of_s1 = evaluation.scores[evaluation.scores["unique_id"] == "s1"]
    assert set(of_s1["horizon"]) == {1} < set(evaluation.scores["horizon"])


def test_a_series_without_any_forecast_says_why(tmp_path):
    panel = fallen("close", FIRST, 0.0)
    evaluation = evaluate_to_folder(tmp_path / "e", panel, SMALL, BacktestOptions(10, 1, ()))
    assert str(evaluation.summary.skipped["s0"]).startswith("close is 0 on ")
    assert "s0" not in set(evaluation.scores["unique_id"])


@pytest.mark.parametrize("as_file", [False, True])
def test_series_that_the_fit_skips_are_named(tmp_path, as_file):
    whole = fallen("close", FIRST, 1.0)
    values = whole.values.copy()
    values[1] = 5.0  # never changes
    panel = dataclasses.replace(whole, values=values)
    with warns(ForecasterWarning):
        if as_file:
            fc.cross_validation_to_parquet(tmp_path / "f.parquet", panel, SMALL, 10)
        else:
            fc.cross_validation(panel, SMALL, 10)
