"""Tests of the functions from a source to a saved model and its forecasts."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest

import forecaster as fc
from forecaster.cli.forecasts import at_the_end
from forecaster.files import Home
from forecaster.ingest import open_source
from forecaster.pipeline import (
    Callbacks,
    DataRequest,
    fit_to_home,
    predict_from_home,
    predict_run,
)
from forecaster.series import Finding
from tests.conftest import run
from tests.frames import long

TICKERS = ["AAPL", "BRK-B", "XOM"]


@pytest.fixture(scope="module")
def data() -> DataRequest:
    return DataRequest(open_source("simulated"), TICKERS, start="2023-01-01")


@pytest.fixture(scope="module")
def calls() -> list[tuple[int, int]]:
    return []


@pytest.fixture(scope="module")
def home(tmp_path_factory, data, config, calls) -> Home:
    home = Home(tmp_path_factory.mktemp("home"))
    on_series = Callbacks(on_series=lambda done, total: calls.append((done, total)))
    fit_to_home(home, data, config, 0, callbacks=on_series)
    return home


def test_a_saved_fit_is_the_latest_run_and_says_where_it_came_from(home, config, calls):
    run = home.latest_run()
    provenance = fc.load(run).provenance
    assert provenance["source"] == "simulated" and provenance["start"] == "2023-01-01"
    assert provenance["end"] is None and provenance["last"] == "2025-12-31"
    assert not home.unfinished.exists()
    assert calls == [(1, 3), (2, 3), (3, 3)]


def test_two_fits_in_threads_of_one_process_are_two_runs(home, data, config, tmp_path):
    """Each is as it would be alone, and neither disturbs the other."""
    both = Home(tmp_path)
    with ThreadPoolExecutor(2) as pool:
        saved = list(pool.map(lambda seed: fit_to_home(both, data, config, seed), (0, 1)))
    assert both.runs() == sorted(fit.run.folder for fit in saved) and len(both.runs()) == 2
    assert not both.unfinished.exists()
    alone = home.latest_run() / "model.safetensors"
    assert (saved[0].run.folder / "model.safetensors").read_bytes() == alone.read_bytes()
    assert (saved[1].run.folder / "model.safetensors").read_bytes() != alone.read_bytes()


def test_a_series_that_changed_long_ago_is_not_constant(tmp_path):
    days = pd.date_range("2023-01-01", periods=400)
    moved = np.where(np.arange(400) < 100, 4.0, 5.0)
    rng = np.random.default_rng(0)
    values = {"moved": moved, "still": np.full(400, 5.0), "noise": rng.normal(50, 5, 400)}
    long(values, days).to_csv(tmp_path / "values.csv", index=False)
    home = Home(tmp_path / "home")
    source = open_source(f"files:{tmp_path / 'values.csv'}")
    fit_to_home(home, DataRequest(source, None), fc.Config(model="theta", horizon=2), 0)
    made = predict_from_home(home, None, (80,))
    assert list(made.found("constant")) == ["still"] and int(made.panel.mask.sum(1).max()) == 252


def test_groups_of_series_that_are_all_skipped_do_not_lose_the_evaluation(tmp_path):
    months = pd.date_range("2020-01-01", periods=40, freq="MS")
    y = 50 + np.random.default_rng(0).normal(size=40)
    frame = pd.DataFrame({"unique_id": "old", "ds": months, "y": y})
    frame = pd.concat([frame, frame[-2:].assign(unique_id="new")])  # begins after the first cutoff
    frame.to_csv(tmp_path / "y.csv", index=False)
    (tmp_path / "g.csv").write_text("ticker,group\nnew,young\n")
    done = run(
        "evaluate", "--source", f"files:{tmp_path / 'y.csv'}", "--model", "theta", "--horizon", 1,
        "--windows", 4, "--baselines", "naive", "--groups", tmp_path / "g.csv", "--home", tmp_path,
    )  # fmt: skip
    assert done.exit_code == 3 and "new" in done.stderr, done.output


def test_quoted_prices_do_not_depend_on_the_rows_that_a_prediction_keeps(tmp_path):
    """The factor from adjusted to quoted prices may come from a row that is not kept."""
    days = pd.bdate_range("2022-01-03", periods=300)
    close = 50 + np.cumsum(np.random.default_rng(0).normal(0, 0.3, len(days)))
    table = pd.DataFrame({"ticker": "A", "date": days, "close": close, "adj_close": close / 2})
    table = pd.concat([table, table.assign(ticker="B")])
    table.loc[table["date"] > days[-30], "close"] = np.nan
    table.to_parquet(tmp_path / "p.parquet")
    source, home = f"files:{tmp_path / 'p.parquet'}", tmp_path / "home"
    done = run("fit", "--source", source, "--model", "theta", "--home", home)
    assert done.exit_code == 0, done.output
    bare = run("predict", "--all", "--home", home).stdout
    picture = "--plot", tmp_path / "p.png"
    assert bare and run("predict", "--all", *picture, "--home", home).stdout == bare
    few, many = (
        predict_from_home(Home(home), None, (80,), n_paths=20, history=n) for n in (0, 252)
    )
    assert list(few.factors.values()) == pytest.approx([2.0, 2.0])
    returns = at_the_end(few)
    pd.testing.assert_frame_equal(returns, at_the_end(many), check_exact=True)
    assert returns.abs().to_numpy().max() < 0.5


def test_a_series_may_lack_as_many_sessions_as_are_allowed_and_no_more(panel):
    late = [Finding("late", panel.ids[0], rows=2), Finding("late", panel.ids[1], rows=3)]
    kept = predict_run._punctual(panel, late, 2)
    assert kept.ids == (panel.ids[0], *panel.ids[2:])
    assert str(kept.skipped[panel.ids[1]]) == (
        "the number of sessions that it lacks is 3; --max-late allows 2"
    )
    assert predict_run._punctual(panel, late, None).ids == panel.ids
