"""An evaluation from end to end: its files, its verdict, its report, and traps for leaks."""

import dataclasses
import json
import shutil

import numpy as np
import pandas as pd
import pytest

import forecaster as fc
from forecaster.errors import DataError, UsageError
from forecaster.evaluation import (
    BacktestOptions,
    Evaluation,
    caveats,
    comparison,
    evaluate_to_folder,
)
from forecaster.evaluation.cutoffs import cutoffs_in
from forecaster.ingest import Membership
from tests.conftest import error, run
from tests.messages import refuses


@pytest.fixture(scope="module")
def evaluation(panel, config, tmp_path_factory) -> Evaluation:
    folder = tmp_path_factory.mktemp("evaluation") / "evaluation"
    return evaluate_to_folder(folder, panel, config, BacktestOptions(30, 2, ("empirical",), seed=1))


def test_what_is_written_is_what_the_parts_say(panel, config, evaluation):
    again = Evaluation.read(evaluation.folder)
    assert again.scores.equals(evaluation.scores) and again.tests.equals(evaluation.tests)
    frame = again.forecasts(["LSTM", "LSTM-lo-80", "LSTM-hi-80", "Naive", "Empirical"])
    expected = fc.cross_validation(panel, config, 30, 2, level=[80], seed=1)
    assert frame[["unique_id", "ds", "cutoff", "y"]].equals(expected.iloc[:, :4])
    for name in ("LSTM", "LSTM-lo-80", "Naive"):
        np.testing.assert_allclose(frame[name], expected[name], rtol=1e-5)
    assert frame["y"].dtype == np.float64 and frame["LSTM"].dtype == np.float32
    scores = fc.evaluate(expected, by_horizon=True, panel=panel)
    for name in ("mae", "mase", "coverage-80"):
        expected_scores = scores.query("model == 'LSTM'")[name].to_numpy()
        written = again.scores.query("model == 'LSTM'")[name].to_numpy()
        np.testing.assert_allclose(expected_scores, written, rtol=1e-5)
    summary = json.loads((evaluation.folder / "summary.json").read_text())
    assert summary["models"] == ["Empirical", "LSTM", "Naive"] and summary["cutoffs"] == 30
    assert summary["config"] == dataclasses.asdict(config) and summary["seed"] == 1
    assert set(summary["seconds"]["baselines"]) == {"naive", "empirical"}


def test_an_evaluation_is_never_overwritten_by_chance(panel, config, tmp_path, evaluation):
    copy = tmp_path / "copy"
    shutil.copytree(evaluation.folder, copy)
    before = (copy / "summary.json").read_bytes()
    with refuses(UsageError):
        evaluate_to_folder(copy, panel, config, BacktestOptions(3))
    (copy / "notes.txt").write_text("mine")
    with refuses(UsageError):
        evaluate_to_folder(copy, panel, config, BacktestOptions(3), overwrite=True)
    (copy / "notes.txt").unlink()
    with refuses(UsageError):
        evaluate_to_folder(copy / "summary.json", panel, config, BacktestOptions(3), overwrite=True)
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis.tex").write_text("all of it")
    with refuses(UsageError):
        evaluate_to_folder(precious, panel, config, BacktestOptions(3), overwrite=True)
    assert (copy / "summary.json").read_bytes() == before and (precious / "thesis.tex").exists()

    def interrupt(done, total):
        raise KeyboardInterrupt

    quick = dataclasses.replace(config, epochs=1)
    with pytest.raises(KeyboardInterrupt):
        evaluate_to_folder(
            copy, panel, quick, BacktestOptions(3, 29), overwrite=True,
            on_forecast=interrupt,
        )  # fmt: skip
    assert (copy / "summary.json").read_bytes() == before
    evaluate_to_folder(copy, panel, quick, BacktestOptions(3, 29), overwrite=True)
    assert json.loads((copy / "summary.json").read_text())["cutoffs"] == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy", "precious"]


@pytest.mark.slow
def test_nothing_beats_naive_on_a_random_walk(tmp_path):
    random = np.random.default_rng(3)
    steps = random.normal(0, 0.01, (12, 700))
    frame = pd.DataFrame(
        {
            "unique_id": np.repeat([f"walk {n}" for n in range(12)], 700),
            "ds": np.tile(pd.bdate_range("2020-01-01", periods=700), 12),
            "y": np.exp(np.cumsum(steps, axis=1)).ravel() * 100,
        }
    )
    config = fc.Config(hidden=4, horizon=1, validation=100, epochs=15, transform="log_return")
    evaluation = evaluate_to_folder(
        tmp_path / "walks",
        fc.Panel.from_frame(frame),
        config,
        BacktestOptions(100, 1, ("drift", "empirical")),
    )
    rows = comparison(evaluation, 1).to_dict("records")
    compared = {(row["score"], row["model"]): row for row in rows}
    point = compared["mae", "Naive"]
    assert point["significantly_better"] == 0 and 0.985 < point["ratio"] < 1.02
    # The naive band is the truth here: normal steps of constant variance.
    assert compared["crps", "Naive"]["ratio"] > 0.995


@pytest.mark.slow
def test_one_cutoff_and_a_baseline_that_fails_on_all_still_make_a_report(
    panel, config, tmp_path, monkeypatch
):
    from forecaster.evaluation.baselines import simple
    from forecaster.report import build_report, write_figures, write_tables

    monkeypatch.setattr(simple, "drift", lambda *job: 1 / 0)
    quick = dataclasses.replace(config, epochs=1)
    options = BacktestOptions(1, 1, ("drift",))
    evaluation = evaluate_to_folder(tmp_path / "one", panel, quick, options)
    assert evaluation.summary.models == ("LSTM", "Naive")
    assert set(evaluation.summary.failed["drift"]) == set(panel.ids)
    assert any("drift failed on 5 series" in line for line in caveats(evaluation))
    page = build_report(evaluation).read_text()
    assert "ZeroDivisionError" in page and "No series was skipped" not in page
    written = [*write_figures(evaluation), *write_tables(evaluation)]
    assert all(path.stat().st_size for path in written)


def test_the_commands_evaluate_and_report(tmp_path, settings):
    output, home = tmp_path / "evaluation", tmp_path / "home"
    tickers = tmp_path / "tickers.txt"
    tickers.write_text("AAPL\nXOM\n")
    small = ("--config", settings, "--start", "2023-01-01", "--epochs", 1, "--windows", 59)
    source = ("--source", "simulated", "--tickers", tickers, "--home", home)
    sectors, others = tmp_path / "sectors.csv", tmp_path / "others.csv"
    sectors.write_text("ticker,group\naapl,Tech\nKO,Drinks\n")
    others.write_text("ticker,group\nXOM,Energy\naapl,Tech\n")
    done = run(
        "evaluate", *source, *small, "--baselines", "ewma", "--output", output, "--groups", sectors
    )  # fmt: skip
    assert done.exit_code == 0, done.stderr
    assert "2 series 1 to 3 steps ahead from 59 cutoffs" in done.stdout
    assert "Without a group, 1: XOM" in done.stdout
    assert "not real" in done.stderr
    assert {"report.html", "coverage.csv", "figures"} < {path.name for path in output.iterdir()}
    assert set(pd.read_csv(output / "groups.csv")["group"]) == {"Tech", "(no group)"}
    again = run("report", output, "--home", home, "--output", tmp_path / "again.html")
    assert again.exit_code == 0 and (tmp_path / "again.html").stat().st_size > 10_000
    assert "Without a group, 1: XOM" in again.stdout  # as evaluated
    other = run("report", output, "--groups", others, "--output", tmp_path / "new.html")
    assert other.exit_code == 0 and "Without a group" not in other.stdout
    assert f"Groups: {tmp_path / 'new-groups.csv'}" in other.stdout
    groups = pd.read_csv(tmp_path / "new-groups.csv")
    assert set(groups["group"]) == {"Energy", "Tech"} and (groups["series"] == 1).all()
    others.write_text("ticker,group\nKO,Drinks\n")
    assert "no group for any of the 2 series" in error(
        "evaluate", *source, *small, "--groups", others, "--output", tmp_path / "x", code=2
    )
    assert "run `forecaster evaluate` first" in error("report", "--home", home, code=2)
    for name in ("2024-01-01T00-00-00-000", "2023-12-31T00-00-00-000"):
        shutil.copytree(output, home / "evaluations" / name)
    latest = run("report", "--home", home)
    assert "evaluations/2024-01-01T00-00-00-000/report.html" in latest.stdout.replace("\n", "")
    assert "holds no evaluation" in error("report", tmp_path, code=2)
    assert not (tmp_path / "x").exists()


@pytest.mark.slow
@pytest.mark.usefixtures("as_for_users")
def test_a_score_does_not_depend_on_the_series_beside_it(panel, config, tmp_path, monkeypatch):
    """One that joins the universe late is scaled by its changes up to the evaluation's start."""
    late, *others = panel.ids
    days = pd.DatetimeIndex(panel.times)
    panel = panel.without(
        *np.nonzero(np.outer(np.array(panel.ids) == others[-1], days.day_of_week != 2))
    )
    spans = pd.DataFrame(
        {"unique_id": panel.ids, "start": [days[-12], *[days[0]] * len(others)], "end": days[-1]}
    )
    quick = dataclasses.replace(config, epochs=1)
    options = BacktestOptions(20, 1, (), membership=Membership(spans))
    scores = []
    for series in (64, 1):
        monkeypatch.setattr("forecaster.evaluation.rolling_origin.AT_ONCE", series)
        made = evaluate_to_folder(tmp_path / f"by {series}", panel, quick, options)
        keys = ["unique_id", "horizon", "model"]
        scores.append(made.scores.sort_values(keys, ignore_index=True))
    pd.testing.assert_frame_equal(*scores, check_exact=True)
    first = cutoffs_in(panel.times, config.horizon, 20, 1)[0]
    known = panel.mask[0] & (np.arange(len(days)) <= first)
    y = panel.channel(panel.target)[0, known]
    ours = scores[1][scores[1]["unique_id"] == late]
    np.testing.assert_allclose(ours["mae"] / ours["mase"], np.abs(y[5:] - y[:-5]).mean())


def test_a_universe_without_members_is_refused_and_leaves_nothing(panel, config, tmp_path):
    spans = pd.DataFrame({"unique_id": ["KO"], "start": ["1999-01-04"], "end": ["1999-12-31"]})
    dates = {"start": "datetime64[ns]", "end": "datetime64[ns]"}
    options = BacktestOptions(3, 29, membership=Membership(spans.astype(dates)))
    quick = dataclasses.replace(config, epochs=1)
    with refuses(DataError):
        evaluate_to_folder(tmp_path / "none", panel.only(panel.ids[3:]), quick, options)
    assert not list(tmp_path.iterdir())
