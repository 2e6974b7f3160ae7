"""The command ``evaluate``: interrupted and resumed, beyond the memory, and beyond float32."""

import json
import sys
from typing import Any
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest

import forecaster as fc
from forecaster.evaluation import backtest
from forecaster.files import Home
from forecaster.swarm.execution.schedule import Schedule
from tests.conftest import error, prices, run
from tests.test_sharded import NAMES, SETTINGS

pytestmark = pytest.mark.usefixtures("quick_collections")

OPTIONS = ("--windows", 24, "--step", 2, "--baselines", "naive,drift", "--refit", 12)
TABLES = ("forecasts", "scores", "tests", "daily")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Series of unequal length, of which one is too short and one ends early, and settings."""
    folder = tmp_path_factory.mktemp("evaluated")
    rows = dict(zip(NAMES, [300, 280, 320, 260, 40, 300, 290], strict=True))
    pd.concat([prices(name, rows[name]) for name in NAMES]).to_csv(folder / "p.csv", index=False)
    (folder / "c.toml").write_text(SETTINGS)
    return folder


def evaluating(folder):
    source = f"files:{folder / 'p.csv'}"
    return ("evaluate", "--source", source, "--config", folder / "c.toml", *OPTIONS)


def same(one, other):
    """Tables are the same bits, as is what summaries say but for the times."""
    for name in TABLES:
        first, second = (pd.read_parquet(folder / f"{name}.parquet") for folder in (one, other))
        pd.testing.assert_frame_equal(first, second, check_exact=True)
    said: list[dict[str, Any]] = []
    for folder in (one, other):
        said.append(json.loads((folder / "summary.json").read_text()))
        del said[-1]["created"], said[-1]["seconds"]
    assert said[0] == said[1]


def test_an_interrupted_evaluation_ends_as_one_that_was_not(data, tmp_path, monkeypatch):
    done = run(*evaluating(data), "--home", tmp_path / "whole", "--output", tmp_path / "one")
    assert done.exit_code == 3, done.output
    assert "Skipped 2" in done.stderr and done.stderr.count("end early, and are scored") == 1
    command = (*evaluating(data), "--home", tmp_path, "--output", tmp_path / "out")
    with monkeypatch.context() as patch:  # after all trainings
        patch.setattr(backtest, "_measure", Mock(side_effect=KeyboardInterrupt))
        message = error(*command, code=130)
    assert "`forecaster evaluate --resume`" in message and not (tmp_path / "out").exists()
    assert "leave out --windows" in error(
        "evaluate", "--resume", "--windows", 3, "--home", tmp_path, code=2
    )
    advance, trained = Schedule.advance, list[int]()

    def watched(self):
        trained.append(len(self.state.epoch))
        advance(self)

    monkeypatch.setattr(Schedule, "advance", watched)
    again = run("evaluate", "--resume", "--home", tmp_path)
    assert again.exit_code == 3, again.output
    assert set(trained) == {2}  # only the two pooled networks: those of the series were finished
    same(tmp_path / "one", tmp_path / "out")
    assert (tmp_path / "out" / "figures").is_dir() and not Home(tmp_path).unfinished.exists()


def test_series_that_do_not_fit_into_memory_together_are_refused(data, tmp_path, monkeypatch):
    monkeypatch.setattr("forecaster.pipeline.beginning.free_memory", lambda: 10**4)
    message = error(*evaluating(data), "--home", tmp_path, code=2)
    assert "7 series, the longest of 320 rows, take up to" in message and "--tickers" in message
    assert "--memory is gone; all series" in error("evaluate", "--memory", "2GB", code=2)


def test_prices_are_compared_with_a_garch_or_the_first_line_says_how(data, tmp_path, monkeypatch):
    source, usual = f"files:{data / 'p.csv'}", backtest.BacktestOptions(baselines=None)
    monkeypatch.setattr(backtest, "has", lambda library: library == "arch")
    settled = usual.settled(fc.load_panel(source))
    assert settled.runner_names == ["naive", "drift", "ewma", "garch"]
    sold = fc.load_panel(pd.DataFrame({"unique_id": "a", "ds": range(9), "y": range(9)}))
    assert usual.settled(sold).runner_names == ["naive", "drift", "ewma"]
    for module in ("evaluation.backtest", "cli.evaluate"):
        monkeypatch.setattr(sys.modules[f"forecaster.{module}"], "has", lambda library: False)
    given = ("--source", source, "--config", data / "c.toml")
    done = run("evaluate", *given, "--windows", 3, "--home", tmp_path)
    assert done.exit_code == 3, done.output
    assert done.stdout.startswith("Not compared with GARCH, the usual rival: `pip install ")
    assert "EWMA" in done.stdout and "GARCH" not in done.stdout.split("\n", 1)[1]


@pytest.mark.slow
def test_forecasts_beyond_float32_are_written_as_they_are(data, tmp_path):
    """Stored as float32 they would be infinite, and the evaluation lost."""
    frame = pd.read_csv(data / "p.csv")
    columns = ["open", "high", "low", "close"]
    frame.loc[frame["ticker"] == NAMES[-1], columns] *= 1e200
    frame.to_csv(tmp_path / "p.csv", index=False)
    (tmp_path / "c.toml").write_text(SETTINGS)
    done = run(*evaluating(tmp_path), "--home", tmp_path / "home", "--output", tmp_path / "ev")
    assert done.exit_code == 3, done.output
    forecasts = pd.read_parquet(tmp_path / "ev" / "forecasts.parquet")
    numbers = forecasts.drop(columns=["unique_id", "ds", "cutoff", "forecast_by"], errors="ignore")
    assert np.isfinite(numbers).all(axis=None) and (numbers.dtypes == np.float64).all()
    vast = forecasts["unique_id"] == NAMES[-1]
    assert (numbers[vast] > 1e200).all(axis=None) and (numbers[~vast] < 1e10).all(axis=None)
