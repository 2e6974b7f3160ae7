"""The GPU script runs in its quick form on several devices of the CPU."""

import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "benchmarks" / "gpu.py"


@pytest.mark.slow
def test_numbers_agree_and_everything_is_timed(tmp_path):
    flags = "--xla_force_host_platform_device_count=4"
    done = subprocess.run(
        [sys.executable, SCRIPT, "--quick", "--minutes", "30", "--output", tmp_path],
        env={**os.environ, "XLA_FLAGS": flags}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    numbers = pd.read_csv(tmp_path / "gpu_numbers.csv")
    assert numbers["right"].all() and (numbers["difference"] < 1e-4).all() and len(numbers) == 22
    speed = pd.read_csv(tmp_path / "gpu_speed.csv")
    assert {"published job", "1 networks", "4 networks"} <= set(speed["work"])
    assert (speed["seconds_per_model_epoch"] > 0).all()
    ours = speed[speed["method"] == "ours"]
    assert (ours["ratio_to_ours"] == 1).all()
    assert (tmp_path / "gpu.txt").read_text().startswith("4 x cpu")
