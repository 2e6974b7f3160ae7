"""Tests of the number of series in memory at a time: budgets, and free memory."""

import re
import subprocess
import sys
import tracemalloc
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from forecaster import machine
from forecaster.errors import UsageError
from forecaster.files import Home
from forecaster.forecasting import bytes_of_combining, bytes_of_sample, bytes_of_series
from forecaster.forecasting.config import Config
from forecaster.forecasting.fitting import common as sampling
from forecaster.ingest import Store
from forecaster.pipeline import beginning as memory
from forecaster.series.combination.blend import combine
from forecaster.series.combination.components import (
    Blend,
    Combination,
    fit_components,
)
from forecaster.series.combination.counts import NO_PRIOR, count_forecasts
from forecaster.series.combination.nature import Nature
from tests.conftest import error, prices, run
from tests.messages import refuses


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """Write a file of seven series."""
    path = tmp_path_factory.mktemp("budgets") / "p.csv"
    parts = [prices(f"S{number}", 300 - 5 * number) for number in range(7)]
    pd.concat(parts).to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def store(file):
    home = Home(file.parent / "home")
    assert run("ingest", "--source", f"files:{file}", "--home", file.parent / "home").exit_code == 0
    (store,) = Store.all_of(home)
    return store


def test_what_is_free_is_that_of_the_container(tmp_path, monkeypatch):
    assert machine.free_memory() > 2**26
    monkeypatch.setattr(machine, "_GROUP", tmp_path)
    before = machine.free_memory()
    (tmp_path / "memory.max").write_text("3000000\n")
    (tmp_path / "memory.current").write_text("1000000\n")
    (tmp_path / "memory.stat").write_text("anon 900000\ninactive_file 50000\n")
    assert machine.free_memory() == 2_050_000  # cached pages of files count as free
    (tmp_path / "memory.max").write_text("max\n")
    assert machine.free_memory() > before / 2
    assert memory.parse_memory("1.5 GiB") == 3 * 2**29 and memory.parse_memory("2gb") == 2 * 10**9


def test_a_budget_decides_how_many_are_trained_at_a_time(store, monkeypatch):
    monkeypatch.setattr(memory, "MOST_PER_SHARD", 2_000)
    monkeypatch.setattr(memory, "_FEWEST", 1)
    each = bytes_of_series(Config(), 300, len(store.channels("S0")))
    room = memory._PROGRAM + 3 * each
    assert memory.portions(store, store.ids, Config(), room)[0] == 3
    assert memory.portions(store, store.ids, Config(), room + 4 * each)[0] is None
    assert memory.portions(store, store.ids, Config(), None)[0] is None


def test_a_budget_that_is_too_small_is_refused_with_the_smallest_that_works(
    file, store, monkeypatch, tmp_path
):
    monkeypatch.setattr(sampling, "MOST_SERIES", 1_000)
    sample = bytes_of_sample(Config(), 10**6, 5_000, 1)
    assert sample > 20 * bytes_of_series(Config(), 5_000, 1)  # a few series by themselves would fit
    assert sample == bytes_of_sample(Config(), 10**5, 5_000, 1)  # however many series there are
    monkeypatch.setattr(
        "forecaster.pipeline.beginning.bytes_of_sample", lambda *size: 1_234 * 10**6
    )
    least = f"{(memory._PROGRAM + 1_234e6) / 1e9:.1f}GB"
    message = error(
        "fit", "--source", f"files:{file}", "--memory", "1GB", "--home", tmp_path, code=2
    )
    assert "--memory of 1.00GB is too little for 7 series" in message
    assert f"--memory {least} or more" in message
    assert "the networks that all start from" in message
    with refuses(UsageError):
        memory.portions(store, store.ids, Config(), memory._PROGRAM + 1_233 * 10**6)
    memory.portions(store, store.ids, Config(), memory.parse_memory(least))


def long_store(rows: int) -> Any:
    index = SimpleNamespace(series={"minutes": SimpleNamespace(rows=rows)})
    return SimpleNamespace(index=index, ids=["minutes"], channels=lambda name: ("y",))


@pytest.mark.parametrize(
    ("rows", "taken"),
    [(60_000, 1.065e9), (100_000, 1.639e9), (150_000, 1.588e9), (600_000, 4.152e9)],
)
def test_the_size_that_is_named_is_enough_for_one_long_series(rows, taken):
    """``taken``: the measured peak of a fit of 60 steps ahead; of 100,000 rows, of counts."""
    store, config = long_store(rows), Config(horizon=60)
    with refuses(UsageError) as caught:
        memory.portions(store, store.ids, config, memory._PROGRAM + 10**6)
    named = re.findall(r"--memory ([\d.]+GB) or more", str(caught.value))[0]
    assert taken <= 1.1 * memory.parse_memory(named)
    memory.portions(store, store.ids, config, memory.parse_memory(named))


def test_a_series_that_does_not_fit_into_the_free_memory_is_refused(monkeypatch):
    monkeypatch.setattr(memory, "free_memory", lambda: 11 * 10**9)
    store, config = long_store(2_000_000), Config(horizon=60)
    with refuses(UsageError) as caught:
        memory.portions(store, store.ids, config, None)
    named = re.findall(r"--memory ([\d.]+GB) or more", str(caught.value))[0]
    memory.portions(store, store.ids, config, memory.parse_memory(named))
    memory.portions(store, store.ids, Config(horizon=12), None)


@pytest.mark.parametrize(
    ("seasons", "counts"), [((60, 1440), True), ((60, 1440), False), ((), False)]
)
def test_forecasts_of_a_long_series_take_no_more_than_is_named(seasons, counts):
    z = np.random.default_rng(0).poisson(1.0, 10_000) + float(not counts)
    kind, horizon = Combination.for_rows(len(z), len(z), seasons, None, sparse=False), 60
    (components,), each = fit_components([z], [kind], {}, horizon), len(kind.names)
    blend = Blend((1 / each,) * each, 1.0, 0.5)
    known = Nature(seasons=kind.seasons, components=components, blend=blend, counts=counts)
    tracemalloc.start()
    for base, *_ in combine([z], [known], horizon):
        if counts:
            count_forecasts(z, base, NO_PRIOR)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    whole = 16 * len(z) * horizon  # what the forecasts of all series are collected in
    assert peak + whole < 0.85 * bytes_of_combining(Config(horizon=horizon), len(z))


@pytest.mark.slow
def test_a_fit_takes_at_most_a_tenth_more_than_was_named(tmp_path):
    rows = 40_000
    times = pd.date_range("2024-01-01", periods=rows, freq="min")
    day = 20 + 5 * np.sin(np.arange(rows) * 2 * np.pi / 1440)
    noise = np.random.default_rng(0).normal(size=rows)
    table = pd.DataFrame({"unique_id": "minutes", "ds": times, "y": day + noise})
    table.to_parquet(tmp_path / "m.parquet")
    fit = ["fit", "--source", f"files:{tmp_path / 'm.parquet'}", "--horizon", "60", "--epochs", "1"]
    refused = error(*fit, "--memory", "0.9GB", "--home", tmp_path, code=2)
    named = re.findall(r"--memory ([\d.]+GB) or more", refused)[0]
    code = (
        "import resource, sys; from forecaster.cli import main;"
        "main(sys.argv[1:], standalone_mode=False);"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *fit, "--memory", named, "--home", tmp_path],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    peak = int(done.stdout.split()[-1]) * (1 if sys.platform == "darwin" else 1024)
    assert peak <= 1.1 * memory.parse_memory(named)
