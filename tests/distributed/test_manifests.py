"""The RayJob in the docs runs a command that there is."""

from pathlib import Path

import pytest

yaml = pytest.importorskip("yaml")
ASSETS = Path(__file__).parents[2] / "docs" / "assets"


def read(name):
    return yaml.safe_load((ASSETS / name).read_text())


def test_the_job_runs_a_command_that_there_is():
    from forecaster.cli import main

    words = read("rayjob.yaml")["spec"]["entrypoint"].split()
    assert words[0] == "forecaster" and words[1] in main.commands
    options = {option for each in main.commands[words[1]].params for option in each.opts}
    assert {word for word in words if word.startswith("--")} <= options
