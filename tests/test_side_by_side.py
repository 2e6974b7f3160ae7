"""Shards without networks are fitted by several processes, with the bits of one."""

import os
import signal

import numpy as np
import pandas as pd
import pytest

import forecaster as fc
from forecaster.files import Home
from forecaster.pipeline import fit_run as training
from tests.conftest import error, run
from tests.frames import long

SERIES, SHARD = 12, 4


@pytest.fixture
def source(tmp_path):
    random = np.random.default_rng(0)
    steps = pd.date_range("2020-01-01", periods=30, freq="MS")
    values = {f"s{k:02d}": 50 + random.normal(size=30) for k in range(SERIES)}
    long(values, steps).to_csv(tmp_path / "y.csv", index=False)
    return f"files:{tmp_path / 'y.csv'}"


@pytest.fixture
def in_processes(monkeypatch):
    """Make shards of four series; return the numbers of processes that fits ask for."""
    asked = []
    fit_side_by_side = training.fit_side_by_side

    def watched(shards, processes):
        asked.append(processes)
        return fit_side_by_side(shards, processes)

    monkeypatch.setattr("forecaster.pipeline.beginning.MOST_PER_SHARD", SHARD)
    monkeypatch.setattr("forecaster.pipeline.fit_run.WORTH_PROCESSES", 1)
    monkeypatch.setattr("forecaster.pipeline.fit_run.fit_side_by_side", watched)
    for room in ("beginning", "fit_run"):
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
        patch.setattr("forecaster.pipeline.fit_run.cores", lambda: 1)
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
