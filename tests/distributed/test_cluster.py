"""A real cluster of two nodes on this machine gives the same bits, even if one node is killed."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest

from forecaster import distributed, swarm
from forecaster.swarm.execution.schedule import train_shard
from tests.conftest import run
from tests.swarm.test_fitting import HYPERPARAMS, TASKS, make_data, rows, same

pytest.importorskip("ray")
pytestmark = pytest.mark.slow
ROOT, TASK = Path(__file__).parents[2], TASKS["SmallLSTM"]
MANY = 120
IDS = [f"network {k}" for k in range(MANY)]
DATA = rows(make_data(), np.arange(MANY) % 11)
FIT = {"seed": 5, "epochs": 30, "patience": 10, "hyperparams": HYPERPARAMS}
SMALL = 100 * 2**20
KEPT = "unfinished/*/shards/0000.checkpoint.shard-*"


@pytest.fixture
def cluster():
    """Yield a cluster that consists of a head without cores."""
    from ray.cluster_utils import Cluster  # pyright: ignore[reportMissingImports]

    made = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 0, "object_store_memory": SMALL}
    )
    yield made
    made.shutdown()


def add(cluster, **environment):
    before = dict(os.environ)
    os.environ.update({"PYTHONPATH": str(ROOT)} | environment)
    try:
        return cluster.add_node(num_cpus=1, object_store_memory=SMALL)
    finally:
        os.environ.clear()
        os.environ.update(before)


@pytest.mark.skipif(jax.local_device_count() < 2, reason="one device rounds otherwise")
def test_a_node_that_is_killed_costs_no_result(cluster):
    # Long enough for the second node to be at work when it is killed, which takes a second.
    fit: dict[str, Any] = FIT | {"epochs": 2000, "patience": 2000}
    expected = swarm.fit(TASK, DATA, IDS, **fit)
    _, second = add(cluster), add(cluster)
    killed, said = [], []

    def kill(now):
        if now.stopped > 0 and not killed:
            cluster.remove_node(second, allow_graceful=False)
            killed.append(now.stopped)

    with distributed.Ray(cluster.address, members_per_shard=8, on_notice=said.append) as executor:
        result = swarm.fit(TASK, DATA, IDS, **fit, executor=executor, on_progress=kill)
        assert 0 < killed[0] < MANY and not result.failed
        assert any("it is done again" in line for line in said), said
        add(cluster)  # a node that joins later works, too
        again = swarm.fit(TASK, DATA, IDS, **fit, executor=executor)
    for other in (result, again):
        assert same(other.state, expected.state)
        for a, b in zip(other.losses, expected.losses, strict=True):
            np.testing.assert_array_equal(a, b)


def test_a_driver_that_is_killed_repeats_nothing(cluster, settings, tmp_path):
    add(cluster)
    add(cluster)
    args = ["fit", "--source", "simulated", "--start", "2023-01-01", "--tickers", "dow30.txt"]
    args += ["--config", settings]
    assert run(*args, "--home", tmp_path / "here").exit_code == 0
    home = tmp_path / "away"
    command = [sys.executable, "-m", "forecaster", *args, "--home", str(home)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    driver = subprocess.Popen([*command, "--ray", cluster.address], env=environment)
    while not (kept := list(home.glob(KEPT))):
        assert driver.poll() is None
        time.sleep(0.001)
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    kept = {file.name: file.stat().st_mtime_ns for file in home.glob(KEPT)}
    assert len(kept) > 0
    seen = {}

    class Looks(distributed.Ray):  # at what is on the disk before the rest is trained
        def run(self, function, *args, **options):
            for part, result in super().run(function, *args, **options):
                if function is train_shard:  # not of what is measured afterwards
                    seen[int(part.rows[0])] = len(part.rows)
                yield part, result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(distributed, "Ray", Looks)
        result = run("fit", "--resume", "--ray", cluster.address, "--home", home)
    assert result.exit_code == 0, result.output
    assert seen and not {int(name[-9:]) for name in kept} & seen.keys()
    models = [
        next(folder.glob("models/*/model.safetensors")) for folder in (home, tmp_path / "here")
    ]
    assert models[0].read_bytes() == models[1].read_bytes()


def test_baselines_and_pytorch_are_the_same_from_a_cluster(cluster, panel, config, tmp_path):
    from forecaster.evaluation import BacktestOptions, evaluate_to_folder
    from forecaster.evaluation.evaluation import FORECASTS

    pytest.importorskip("arch")
    pytest.importorskip("torch")
    add(cluster)
    add(cluster)
    options = BacktestOptions(5, 5, ("naive", "garch", "torch"))
    with distributed.Ray(cluster.address) as executor:
        away = evaluate_to_folder(tmp_path / "a", panel, config, options, executor=executor)
    here = evaluate_to_folder(tmp_path / "b", panel, config, options)
    frames = [pd.read_parquet(each.folder / FORECASTS) for each in (away, here)]
    differ = [name for name in frames[0] if not frames[0][name].equals(frames[1][name])]
    assert not differ and not away.summary.failed
    assert {"GARCH", "PyTorch"} <= {*away.summary.models}
