"""All methods reach the same losses, and their results are readable."""

import dataclasses
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from forecaster.benchmark import METHODS, Job, compare
from forecaster.errors import UsageError
from tests.conftest import error, run
from tests.messages import refuses

SMALL = Job(hidden=5, lookback=6, batch=8, features=2, windows=40, members=3, epochs=4)


@pytest.mark.parametrize(
    ("network", "layers", "against"),
    [
        pytest.param("lstm", 1, METHODS[1:], marks=pytest.mark.slow),
        ("lstm", 2, ["torch"]),
        ("mlp", 2, ["torch", "vmap"]),
    ],
)
def test_every_method_does_the_same_work(network, layers, against):
    pytest.importorskip("torch")
    job = dataclasses.replace(SMALL, network=network, layers=layers)
    results = compare(job, against, repeats=1)
    assert [result.method for result in results] == ["ours", *against]
    for result in results:
        # Each member's loss after 20 steps of Adam from the same weights.
        assert result.loss_difference < 1e-4
        assert result.seconds_per_model_epoch > 0 and result.gflops > 0
    assert results[0].ratio_to_ours == 1 and results[0].loss_difference == 0


@pytest.mark.slow
def test_all_multiply_in_bfloat16_where_the_job_does(units):
    pytest.importorskip("torch")
    job = dataclasses.replace(SMALL, precision="bfloat16")
    ours, full, torch = compare(job, ["ours-float32", "torch"], repeats=1)
    assert [ours.precision, full.precision, torch.precision] == ["bfloat16", "float32", "bfloat16"]
    assert 0 < full.loss_difference < 1e-2 and 0 < torch.loss_difference < 3e-2
    in_full = compare(SMALL, ["torch"], repeats=1)[1]
    assert abs(full.loss_difference) > in_full.loss_difference  # so bfloat16 was really used


def test_the_work_is_counted_by_hand():
    job = Job(hidden=4, lookback=3, batch=2, features=1, windows=5, layers=2)
    assert job.steps == 2  # the fifth window does not fill a batch
    each_step = 2 * (1 + 4) * 16 + 2 * (4 + 4) * 16
    assert job.flops == 3 * each_step * 3 * 2 * 2
    mlp = Job("mlp", hidden=4, lookback=3, batch=2, features=1, windows=5, layers=2)
    assert mlp.flops == 3 * (2 * 3 * 4 + 2 * 4 * 4) * 2 * 2
    assert len(set(job.order().ravel())) == 4


def test_unlike_training_would_be_noticed(monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.setattr("forecaster.benchmark.with_torch.BENCHMARK_LEARNING_RATE", 2e-3)
    torch = compare(SMALL, ["torch"], repeats=1)[1]
    assert torch.loss_difference > 1e-3


def test_the_command_writes_what_it_measures(tmp_path):
    output = tmp_path / "b.csv"
    small = ("--hidden", 5, "--lookback", 6, "--batch", 8, "--windows", 40, "--members", 3)
    result = run("benchmark", *small, "--repeats", 1, "--against", "vmap", "--output", output)
    assert result.exit_code == 0, result.stderr
    table = pd.read_csv(output)
    assert list(table) == [
        "method", "members", "hidden", "lookback", "batch", "features",
        "precision", "seconds_per_model_epoch", "gflops", "ratio_to_ours",
    ]  # fmt: skip
    assert list(table["method"]) == ["ours", "vmap"] and "vmap" in result.stdout
    np.testing.assert_allclose(table["ratio_to_ours"][0], 1)


@pytest.mark.slow
def test_without_torch_the_rest_is_measured(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    small = ("--hidden", 3, "--lookback", 3, "--batch", 4, "--windows", 8, "--members", 2)
    result = run("benchmark", *small, "--repeats", 1, "--epochs", 1)
    assert result.exit_code == 0 and "vmap" in result.stdout and "torch" not in result.stdout
    assert 'pip install "forecaster-swarm[torch]"`' in result.stderr


@pytest.mark.slow
def test_looking_for_a_gpu_leaves_all_cores_to_train():
    code = (
        "from forecaster.benchmark import available; available(['vmap'])\n"
        "import jax, os; assert jax.local_device_count() == len(os.sched_getaffinity(0))"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


def test_bad_options_are_one_clear_error(tmp_path):
    (tmp_path / "b.csv").touch()
    before = error("benchmark", "--suite", "--output", tmp_path / "b.csv", code=2)
    assert "b.csv exists" in before
    assert "at least one batch" in error("benchmark", "--windows", 3, code=2)
    half = error("benchmark", "--network", "mlp", "--precision", "bfloat16", code=2)
    assert "expected float32 with --network mlp" in half
    with refuses(UsageError):
        compare(SMALL, ["tensorflow"])
