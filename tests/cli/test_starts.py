"""Tests of the modules that commands load: those that need no JAX do not load it."""

import json
import subprocess
import sys

from forecaster.swarm.native import kernel_status
from forecaster.swarm.recurrence import processor_status, products_of

LOADED = """
import json, sys
from click.testing import CliRunner
from forecaster.cli import main
results = [CliRunner().invoke(main, words) for words in json.loads(sys.argv[1])]
for result in results:
    assert result.exit_code == 0, result.output
print(json.dumps(list(sys.modules)))
"""


def loaded_by(*commands: tuple) -> set[str]:
    """Return the modules that a process has loaded after some commands."""
    words = json.dumps([[str(word) for word in command] for command in commands])
    done = subprocess.run(
        [sys.executable, "-c", LOADED, words], capture_output=True, text=True, check=True
    )
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_what_is_stored_and_trained_is_shown_without_jax(home, tmp_path):
    place = "--home", home
    loaded = loaded_by(
        ("status", *place), ("runs", *place), ("export", "--output", tmp_path / "x.csv", *place)
    )
    assert "pandas" in loaded
    assert not loaded & {"jax", "jaxlib", "flax", "optax", "scipy", "matplotlib", "yfinance"}


def test_a_forecast_loads_no_more_than_it_needs(home):
    loaded = loaded_by(("predict", "AAPL", "--home", home))
    assert "jax" in loaded
    unneeded = {
        "flax", "optax", "scipy.stats", "scipy.signal", "matplotlib",
        "pyarrow.dataset", "yfinance", "requests", "IPython",
        "forecaster.swarm.training.loop", "forecaster.ingest.sources.yahoo",
        "forecaster.report.page",
    }  # fmt: skip
    assert sorted(loaded & unneeded) == []


def test_the_processor_is_asked_without_jax_and_says_the_same():
    assert processor_status() == (kernel_status(), products_of("bfloat16"))
