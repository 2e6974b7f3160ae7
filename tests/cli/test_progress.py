"""Tests of the output while a command works."""

import dataclasses
import os
import subprocess
import sys

import numpy as np
from rich.console import Console
from rich.progress import Progress

from forecaster import swarm
from forecaster.cli.output import Bars


def test_the_bar_says_that_it_compiles_before_it_trains():
    bar = Progress(console=Console(quiet=True))
    bars = Bars(bar)
    now = swarm.Progress(3, 0, 0, 30, np.full(3, np.nan), 0.1, compiling=True)
    bars.training(now)
    assert [task.description for task in bar.tasks] == ["Compiling"]
    bars.training(dataclasses.replace(now, compiling=False, epochs_done=3))
    assert [task.description for task in bar.tasks] == ["Training"]


def test_what_the_compiler_writes_does_not_reach_the_user():
    """XLA is made to complain about a folder that it cannot create."""
    code = "import jax; jax.jit(lambda x: x + 1)(1.0)"
    quiet = {k: v for k, v in os.environ.items() if k != "TF_CPP_MIN_LOG_LEVEL"}
    said = [
        subprocess.run(
            [sys.executable, "-c", before + code], capture_output=True, text=True, check=True,
            env=quiet | {"XLA_FLAGS": "--xla_dump_to=/proc/nope"},
        ).stderr
        for before in ("", "import forecaster; ")
    ]  # fmt: skip
    assert "Could not create directory" in said[0] and said[1] == ""
