"""Scores of forecast frames, against the field's library and by hand."""

import dataclasses
import functools

import numpy as np
import pandas as pd
import pytest

import forecaster as fc
from forecaster.errors import DataError, ForecasterWarning, UsageError
from forecaster.evaluation.scores.scores import season_at
from forecaster.forecasting import KEYS
from tests.messages import refuses, warns


@pytest.fixture(scope="module")
def frame(panel, config) -> pd.DataFrame:
    return fc.cross_validation(panel, config, n_windows=30, step_size=2, seed=1)


def test_a_cross_validation_holds_every_cutoff_with_what_came(panel, config, frame):
    assert len(frame) == len(panel.ids) * 30 * config.horizon
    assert frame["cutoff"].nunique() == 30
    cutoffs = np.searchsorted(panel.times, np.sort(frame["cutoff"].unique()))
    assert (np.diff(cutoffs) == 2).all() and cutoffs[-1] == len(panel.times) - 1 - config.horizon
    actual = panel.to_frame().set_index(["unique_id", "ds"])["adj_close"]
    at = pd.MultiIndex.from_frame(frame[["unique_id", "ds"]])
    np.testing.assert_allclose(frame["y"], actual.loc[at])
    before = pd.MultiIndex.from_frame(frame[["unique_id", "cutoff"]])
    known = before.isin(actual.index)
    np.testing.assert_allclose(frame.loc[known, "Naive"], actual.loc[before[known]])
    assert (frame["ds"] > frame["cutoff"]).all()


def test_utilsforecast_takes_the_frame_as_it_is_and_has_the_same_scores(panel, frame):
    from utilsforecast.evaluation import evaluate
    from utilsforecast.losses import coverage, mae, mase, rmse, rmsse, smape

    known = panel.to_frame()
    known = known[known["ds"] <= frame["cutoff"].min()]
    known = known.rename(columns={"adj_close": "y"})[["unique_id", "ds", "y"]]
    metrics = [
        mae,
        rmse,
        smape,
        *(functools.partial(each, seasonality=5) for each in (mase, rmsse)),
    ]
    plain = frame.drop(columns="cutoff")
    reference = evaluate(plain, metrics=metrics, models=["LSTM"], train_df=known)
    held = evaluate(plain, metrics=[coverage], models=["LSTM"], level=[80])
    reference = pd.concat([reference, held]).pivot(
        index="unique_id", columns="metric", values="LSTM"
    )
    ours = fc.evaluate(frame, panel=panel).query("model == 'LSTM'").set_index("unique_id")
    ours = ours.assign(smape=ours["smape"] / 200)
    assert len(reference.columns) == 6
    for name in reference:
        score = ours[str(name).replace("coverage_level", "coverage-")]
        np.testing.assert_allclose(score, reference[name].loc[ours.index], rtol=1e-9)


def test_the_season_is_that_of_what_was_known_at_the_first_cutoff():
    """A Saturday after it makes no difference, and neither does a series of another frequency."""
    days = pd.bdate_range("2024-01-01", periods=40)
    y = np.random.default_rng(0).normal(size=40).cumsum()
    sessions = pd.DataFrame({"unique_id": "a", "ds": days, "y": y})
    cutoff = days[29]
    frame = sessions[sessions["ds"] > cutoff].assign(cutoff=cutoff, Naive=0.0)
    saturday = sessions.tail(1).assign(ds=days[-1] + pd.Timedelta(days=1))
    weeks = pd.DataFrame({"unique_id": "b", "ds": days[::5], "y": y[::5]})
    for later in (sessions, pd.concat([sessions, saturday])):
        panel = fc.Panel.from_frame(pd.concat([later, weeks, weeks.assign(unique_id="c")]))
        scores = fc.evaluate(frame, panel=panel.only(["a"])).iloc[0]
        expected = np.abs(y[5:30] - y[:25]).mean()
        np.testing.assert_allclose(scores["mae"] / scores["mase"], expected)
        scores = fc.evaluate(frame, panel=panel, season=1).iloc[0]
        np.testing.assert_allclose(
            scores["mae"] / scores["mase"], np.abs(np.diff(y[:30])).mean()
        )  # as of a part of the panel
        assert season_at(panel, cutoff) == 1


def test_without_drift_a_distribution_of_a_price_lies_around_the_latest_one():
    days = pd.bdate_range("2024-01-01", periods=30)
    prices = pd.DataFrame({"ticker": "a", "date": days, "close": np.arange(74.0, 104.0)})
    frame = pd.DataFrame({"unique_id": ["a"], "ds": days[-1:], "cutoff": days[-2:-1], "y": [103.0]})
    frame = frame.assign(**{"M": 102.0, "M-lo-80": 98.0, "M-hi-80": 106.0, "Naive": 100.0})
    (got, _) = fc.evaluate(frame, panel=fc.load_panel(prices)).to_dict("records")
    # The three quantiles, 0.1, 0.5 and 0.9, stand for 0.3, 0.4 and 0.3 of the probabilities.
    assert got["crps"] == pytest.approx(2 * (0.3 * 0.1 * 5 + 0.4 * 0.5 * 1 + 0.3 * 0.1 * 3))
    moved = 2 * (0.3 * 0.1 * (103 - 96) + 0.4 * 0.5 * (103 - 100) + 0.3 * 0.1 * (104 - 103))
    assert got["crps_driftless"] == pytest.approx(moved) == pytest.approx(1.68)
    y = prices.rename(columns={"ticker": "unique_id", "date": "ds", "close": "y"})
    assert "crps_driftless" not in fc.evaluate(frame, panel=fc.load_panel(y))
    assert "crps_driftless" not in fc.evaluate(
        frame.drop(columns="Naive"), panel=fc.load_panel(prices)
    )
    assert "crps_driftless" not in fc.evaluate(frame)


def test_a_stream_to_parquet_is_the_same_frame(panel, config, frame, tmp_path):
    path = fc.cross_validation_to_parquet(
        tmp_path / "cv.parquet", panel, config, n_windows=30, step_size=2, seed=1
    )
    pd.testing.assert_frame_equal(pd.read_parquet(path), frame)


@pytest.mark.slow
def test_refitting_learns_from_what_came(panel, config):
    quick = dataclasses.replace(config, epochs=2)
    frames = {
        refit: fc.cross_validation(panel, quick, 4, 20, refit=refit, seed=1) for refit in (False, 2)
    }
    assert frames[False][list(KEYS)].equals(frames[2][list(KEYS)])
    cutoffs = sorted(frames[2]["cutoff"].unique())
    first, later = (frames[2]["cutoff"].isin(part) for part in (cutoffs[:2], cutoffs[2:]))
    pd.testing.assert_frame_equal(frames[False][first], frames[2][first])
    assert not np.allclose(
        frames[False].loc[later, "LSTM-hi-80"], frames[2].loc[later, "LSTM-hi-80"]
    )
    # The refitted model is what a fit at that cutoff gives.
    alone = fc.cross_validation(panel, quick, 2, 20, seed=1)
    pd.testing.assert_frame_equal(frames[2][later].reset_index(drop=True), alone)
    with refuses(UsageError):
        fc.cross_validation(panel, quick, 2, refit=-1)


def by_hand() -> pd.DataFrame:
    """Forecasts one to three steps ahead from four cutoffs, each step with errors of its own."""
    cutoff, ahead = np.repeat([0, 1, 2, 3], 3), np.tile([1, 2, 3], 4)
    y = 10.0 + cutoff + ahead
    return pd.DataFrame(
        {
            "unique_id": "a", "ds": cutoff + ahead, "cutoff": cutoff, "y": y, "M": y + ahead,
            "M-lo-80": y - 1, "M-hi-80": y + 4, "Naive": 10.0 + cutoff,
        }
    )  # fmt: skip


def test_the_order_of_rows_does_not_change_their_horizons():
    expected = fc.evaluate(by_hand(), by_horizon=True)
    ours = expected.query("model == 'M'")
    assert ours["mae"].tolist() == ours["rmse"].tolist() == [1.0, 2.0, 3.0]
    assert (ours["mae_relative_to_naive"] == 1).all() and (ours["width-80"] == 5).all()
    assert ours["size"].tolist() == [12.5, 13.5, 14.5]
    np.testing.assert_allclose(ours["wql"], ours["crps"] / ours["size"])
    nothing = fc.evaluate(by_hand().assign(y=0.0)).query("model == 'M'")
    assert (nothing["size"] == 0).all() and np.isinf(nothing["wql"]).all()
    for shuffled in (by_hand().iloc[::-1], by_hand().sample(frac=1, random_state=1)):
        pd.testing.assert_frame_equal(fc.evaluate(shuffled, by_horizon=True), expected)


def test_a_model_without_some_of_its_bands_has_no_scores_of_bands():
    whole, lacking = by_hand(), by_hand()
    lacking.loc[3, "M-lo-80"] = np.nan
    expected, got = (
        fc.evaluate(frame).set_index("model").loc[["M"]].dropna(axis=1)
        for frame in (whole, lacking)
    )
    of_bands = {"crps", "wql", "coverage-80", "width-80", "winkler-80"}
    assert of_bands < {*expected.columns} and not of_bands & {*got.columns}
    pd.testing.assert_frame_equal(expected[["mae", "rmse", "smape"]], got[["mae", "rmse", "smape"]])


def test_forecasts_without_an_outcome_are_counted_in_a_warning():
    frame = by_hand()
    frame.loc[[0, 5], "y"] = np.nan
    with warns(ForecasterWarning):
        fc.evaluate(frame)


@pytest.mark.parametrize(
    "change",
    [
        lambda frame: None,
        lambda frame: frame.drop(columns="y"),
        lambda frame: frame.drop(columns="M-hi-80"),
        lambda frame: frame.drop(columns=[*frame][4:]),
        lambda frame: frame.assign(y="1"),
        lambda frame: frame.assign(M=1j),
        lambda frame: frame.assign(unique_id=[None, *"aaaaaaaaaaa"]),
        lambda frame: pd.concat([frame, frame[:1]]),
        lambda frame: pd.concat([frame, frame[["M"]]], axis=1),
        lambda frame: frame.rename(columns=lambda name: name.replace("80", "200")),
    ],
)
def test_a_frame_that_is_none_of_forecasts_is_refused(change):
    with refuses(DataError):
        fc.evaluate(change(by_hand()))


@pytest.mark.parametrize(
    "options",
    [
        {"season": 0},
        {"season": -1},
        {"season": 1.5},
        {"first_cutoff": "2024-01-01"},
        {"panel": None, "first_cutoff": 1},
        {"panel": by_hand()},
    ],
)
def test_options_that_are_none_are_refused(options):
    panel = fc.load_panel(pd.DataFrame({"unique_id": "a", "ds": range(9), "y": range(9)}))
    with refuses(UsageError) as caught:
        fc.evaluate(by_hand(), **{"panel": panel, **options})
    assert next(iter(options)).removeprefix("first_") in str(caught.value)
