"""Shards without networks are fitted by several processes, with the bits of one."""

import os
import signal
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

import forecaster as fc
from forecaster.errors import Kind, NoSeries, Skipped
from forecaster.files import Home
from forecaster.pipeline import training
from forecaster.storage import read_part
from tests.conftest import error, run

SERIES, SHARD = 12, 4


@pytest.fixture
def source(tmp_path):
    random = np.random.default_rng(0)
    steps = pd.date_range("2020-01-01", periods=30, freq="MS")
    frames = [
        pd.DataFrame({"unique_id": f"s{k:02d}", "ds": steps, "y": 50 + random.normal(size=30)})
        for k in range(SERIES)
    ]
    pd.concat(frames).to_csv(tmp_path / "y.csv", index=False)
    return f"files:{tmp_path / 'y.csv'}"


@pytest.fixture
def in_processes(monkeypatch):
    """Make shards of four series; return the numbers of processes that fits ask for."""
    asked = []
    fit_side_by_side = training.fit_side_by_side

    def watched(shards, processes):
        asked.append(processes)
        return fit_side_by_side(shards, processes)

    monkeypatch.setattr("forecaster.pipeline.memory.MOST_PER_SHARD", SHARD)
    monkeypatch.setattr("forecaster.pipeline.training.WORTH_PROCESSES", 1)
    monkeypatch.setattr("forecaster.pipeline.training.fit_side_by_side", watched)
    for room in ("memory", "training"):
        monkeypatch.setattr(f"forecaster.pipeline.{room}.cores", lambda: 2)
    return asked


def fitted(source, home):
    done = run("fit", "--source", source, "--horizon", "3", "--home", home)
    assert done.exit_code == 0, done.output
    assert f"{SERIES} by combination" in done.stdout
    return fc.load(Home(home).latest_run())


def assert_alike(several: fc.Model, one: fc.Model, source: str) -> None:
    """A process of its own may add in another order, so that last bits differ."""
    assert several.ids == one.ids
    panel = fc.load_panel(source)
    frames = [fc.predict(model, panel).set_index(["unique_id", "ds"]) for model in (several, one)]
    width = frames[1]["LSTM-hi-80"] - frames[1]["LSTM-lo-80"]
    for name in ("LSTM", "LSTM-lo-80", "LSTM-hi-80"):
        assert ((frames[0][name] - frames[1][name]).abs() < 1e-6 * width).all()


def test_they_forecast_as_one_process_does(source, tmp_path, in_processes):
    several = fitted(source, tmp_path / "several")
    assert in_processes == [2]
    in_processes.clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("forecaster.pipeline.training.cores", lambda: 1)
        one = fitted(source, tmp_path / "one")
    assert not in_processes
    assert_alike(several, one, source)


@pytest.mark.slow
def test_a_killed_process_is_named_as_the_cause(source, tmp_path, in_processes, monkeypatch):
    """Before anything is written, the system kills a process, as it does for want of memory."""
    killed = []
    submit = training.concurrent.futures.ProcessPoolExecutor.submit

    def submit_and_kill(pool, *args):
        future = submit(pool, *args)
        if not killed:
            killed.append(next(iter(pool._processes)))
            os.kill(killed[0], signal.SIGKILL)
        return future

    executor = training.concurrent.futures.ProcessPoolExecutor
    monkeypatch.setattr(executor, "submit", submit_and_kill)
    said = error("fit", "--source", source, "--horizon", "3", "--home", tmp_path, code=1)
    assert killed and "ended unexpectedly" in said and "--memory" in said
    assert not Home(tmp_path).runs()


def test_a_shard_of_which_no_series_can_be_used_is_written_with_the_reasons(monkeypatch, tmp_path):
    def fit_part(*_, **__):
        raise NoSeries({"a": Skipped(Kind.NOT_FINITE)})

    monkeypatch.setattr(training, "fit_part", fit_part)
    shard = training.Shard(None, ["a"], None, 0, False, (), tmp_path / "0000")  # pyright: ignore
    part, written = shard.finish(), read_part(shard.folder)
    assert written and written.empty and list(written.skipped) == ["a"] == list(part.skipped)


SCRIPT = """
import sys
from pathlib import Path
import forecaster as fc
from forecaster.files import Home
from forecaster.ingest import open_source
from forecaster.pipeline import DataRequest, fit_to_home, memory, training
memory.MOST_PER_SHARD, training.WORTH_PROCESSES = 4, 1
memory.cores = training.cores = lambda: 2
home, source = Home(Path(sys.argv[1])), open_source(sys.argv[2])
fit_to_home(home, DataRequest(source), fc.Config(horizon=3), 0)
"""


@pytest.mark.slow
def test_a_script_without_a_guard_is_told_to_have_one(source, tmp_path):
    """Each process that starts reads the script, and would wait for the fit that it began."""
    script = tmp_path / "fitting.py"
    script.write_text(SCRIPT)
    command = [sys.executable, str(script), str(tmp_path / "home"), source]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 1 and "guard the script" in done.stderr
