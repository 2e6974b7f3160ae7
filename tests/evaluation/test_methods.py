"""An evaluation says what the forecasts of each series rest on, in its frames and in words."""

import json

import numpy as np
import pandas as pd
import pytest

import forecaster as fc
from forecaster.evaluation import BacktestOptions, Evaluation, caveats, evaluate_to_folder, verdict
from forecaster.forecasting import FORECAST_BY, Method
from forecaster.report import build_report
from tests.conftest import run
from tests.forecasting.test_methods import ODD, frame_of, trends
from tests.report.browsing import data_of

SMALL = fc.Config(horizon=4, hidden=2, members=1, epochs=1, lookback=20)
OPTIONS = BacktestOptions(5, baselines=("ets", "theta", "seasonal_naive"))
EXPECTED = {
    "constant": Method.LAST_VALUE,
    "fourteen": Method.COMBINATION,
    "thirty": Method.COMMON,
    **{f"s{n:02d}": Method.OWN for n in range(4)},
}
COUNTS = "4 by own networks, 1 by common network, 1 by combination, 1 by last value"


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    """Four series long enough for networks of their own, and three that are not."""
    walk = 90 + np.random.default_rng(1).normal(size=30).cumsum()
    others = {"constant": [3.0] * 60, "fourteen": list(walk[:14]), "thirty": list(walk)}
    return pd.concat([trends(60, count=4), frame_of(others)], ignore_index=True)


@pytest.fixture(scope="module")
def evaluation(frame, tmp_path_factory) -> Evaluation:
    folder = tmp_path_factory.mktemp("rungs") / "evaluation"
    return evaluate_to_folder(folder, fc.load_panel(frame), SMALL, OPTIONS)


def rungs_in(table: pd.DataFrame) -> dict[str, str]:
    assert (table.groupby("unique_id")[FORECAST_BY].nunique() == 1).all()
    each = table.drop_duplicates("unique_id").set_index("unique_id")[FORECAST_BY]
    return {str(name): str(rung) for name, rung in each.items()}


def test_a_series_changes_its_rung_from_cutoff_to_cutoff(frame):
    made = fc.cross_validation(frame, SMALL, 3, step_size=12, refit=True)
    by_cutoff = made[made["unique_id"] == "s00"].groupby("cutoff")[FORECAST_BY].first()
    assert by_cutoff.to_list() == [Method.COMBINATION, Method.COMBINATION, Method.OWN]
    latest = fc.evaluate(made).query("unique_id == 's00'")[FORECAST_BY]
    assert set(latest) == {Method.OWN}


@pytest.mark.slow
def test_an_evaluation_has_the_column_in_its_files_and_counts_in_words(evaluation):
    assert rungs_in(evaluation.scores) == EXPECTED
    stored = evaluation.forecasts([FORECAST_BY, "LSTM"])
    assert rungs_in(stored) == EXPECTED and stored["LSTM"].dtype == np.float32
    assert rungs_in(pd.concat(evaluation.batches([FORECAST_BY]))) == EXPECTED
    said = json.loads((evaluation.folder / "summary.json").read_text())
    assert said["forecast_by"] == {
        "own networks": 4, "common network": 1, "combination": 1, "last value": 1,
    }  # fmt: skip
    assert (
        f"7 series ({COUNTS}) 1 to 4 steps ahead from 5 cutoffs before the end of each"
        in (verdict(evaluation)[0])
    )
    assert not evaluation.summary.skipped and not evaluation.summary.failed


@pytest.mark.slow
def test_the_page_says_it_of_each_series_and_in_words(evaluation, tmp_path):
    page = build_report(evaluation, tmp_path / "r.html").read_text(encoding="utf-8")
    data = data_of(tmp_path / "r.html")
    assert dict(zip(data["ids"], data["rungs"], strict=True)) == EXPECTED
    assert page.count(COUNTS) == 3  # at the top, in the verdict, and where all this comes from
    assert "“Forecast by” says what" in page


@pytest.mark.slow
def test_odd_series_are_evaluated_beside_all_baselines(tmp_path):
    odd = {name: y for name, y in ODD.items() if len(y) > 2 and name != "large"}
    fast = ("drift", "seasonal_naive", "empirical", "ewma", "ets", "theta", "ces")
    made = evaluate_to_folder(
        tmp_path / "odd", fc.load_panel(frame_of(odd)), SMALL, BacktestOptions(4, baselines=fast)
    )
    assert set(made.scores["unique_id"]) == set(odd) and not made.summary.skipped
    assert made.scores["mae"].notna().all()
    lost = {(baseline, name) for baseline, of in made.summary.failed.items() for name in of}
    assert {baseline for baseline, _ in lost} <= set(fast)
    scored = made.scores.drop_duplicates(["model", "unique_id"])
    assert len(scored) >= len(odd) * (2 + len(fast)) - len(lost)
    assert build_report(made).exists()
    assert len(caveats(made)) >= len(made.summary.failed)


@pytest.mark.slow
def test_a_series_that_falls_to_zero_is_evaluated_after_the_next_training(tmp_path):
    y = np.r_[np.linspace(9, 12, 24), 0, 3, 1, 2, 4, 3, 2, 1, 2, 3]
    frame = frame_of({"falls": list(y), "stays": list(y + 1)})
    options = BacktestOptions(8, baselines=("drift", "ets"), refit=2)
    made = evaluate_to_folder(tmp_path / "falls", fc.load_panel(frame), SMALL, options)
    assert set(made.scores["unique_id"]) == {"falls", "stays"}
    assert made.scores["mae"].notna().all() and set(made.summary.failed) <= {"LSTM"}


@pytest.mark.slow
def test_a_series_that_begins_after_the_first_cutoff_is_named(tmp_path):
    late = frame_of({"late": [3.0, 4, 5, 4, 6, 5]}).assign(ds=lambda table: table["ds"] + 54)
    frame = pd.concat([frame_of({"long": list(np.arange(60) % 7.0)}), late])
    frame["ds"] = pd.Timestamp("2024-01-01") + pd.to_timedelta(frame["ds"], unit="D")
    frame.to_csv(tmp_path / "p.csv", index=False)
    source = f"files:{tmp_path / 'p.csv'}"
    done = run("evaluate", "--source", source, "--horizon", 3, "--windows", 9, "--baselines",
               "naive,har", "--home", tmp_path / "home")  # fmt: skip
    assert done.exit_code == 3, done.output
    assert "late: no rows up to the first cutoff, 2024-02-18" in done.stderr
    assert "har failed on 1:\n  long: ValueError: 48 changes before" in done.stderr
