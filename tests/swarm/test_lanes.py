"""The devices that members train on."""

import os
import subprocess
import sys

import pytest


@pytest.mark.slow
def test_cores_that_stay_idle_are_said_once_at_the_callers_line(tmp_path):
    script = tmp_path / "late.py"
    script.write_text(
        "import jax, optax\n"
        "jax.devices()\n"
        "from forecaster.swarm import Swarm\n"
        "line = (lambda key: jax.numpy.zeros(3)), (lambda params, x: x @ params)\n"
        "Swarm(line, ['a', 'b'], loss=optax.squared_error)\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    if (os.cpu_count() or 1) > 1:
        assert done.stderr.count("SwarmWarning") == 1
        assert f"{script}:5: SwarmWarning: JAX was already running" in done.stderr
