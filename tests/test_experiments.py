"""The experiments run in their quick form, and write the files that they promise."""

import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

SCRIPTS = Path(__file__).parents[1] / "scripts" / "experiments"
NAMES = [
    path.stem for path in sorted(SCRIPTS.glob("*.py")) if path.stem not in ("harness", "torch_mlp")
]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_an_experiment_runs(name, tmp_path):
    pytest.importorskip("sklearn")
    pytest.importorskip("torch")
    done = subprocess.run(
        [sys.executable, SCRIPTS / f"{name}.py", "--quick", "--output", tmp_path],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    table = pd.read_csv(tmp_path / f"{name}.csv")
    assert {"versions", "cores", "seed", "date", "device"} <= set(table) and len(table)
    assert (tmp_path / f"{name}.png").stat().st_size > 5000


@pytest.mark.slow
def test_networks_are_compared(real_data, tmp_path):
    script = SCRIPTS.parent / "accuracy_networks.py"
    done = subprocess.run(
        [sys.executable, script, "--quick", "--output", tmp_path], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    table = pd.read_csv(tmp_path / "accuracy_networks.csv")
    assert list(table["panel"].unique()) == ["stocks", "m4_weekly", "m4_hourly"]
    assert table["crps"].between(0.5, 2).all() and (table["parameters"] > 100).all()
    assert {"versions", "cores", "seed", "date"} <= set(table)


@pytest.mark.parametrize("name", NAMES)
def test_results_are_beside_their_script(name):
    assert (SCRIPTS / f"{name}.csv").exists() and (SCRIPTS / f"{name}.png").exists()
    assert f"`{name}.py`" in (SCRIPTS.parent / "README.md").read_text()
