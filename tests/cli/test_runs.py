"""Tests of ``runs``, and of the run that other commands choose."""

import json
import re
import shutil

import pytest

from forecaster.files import Home
from tests.conftest import error, run


@pytest.fixture
def two(home, tmp_path):
    """Make a home with the run ``real``, then ``demo`` on the same series, simulated."""
    shutil.copytree(home, tmp_path / "home")
    copied = Home(tmp_path / "home")
    (fitted,) = copied.runs()
    shutil.copytree(fitted, copied.models / "20210101-000000-000.demo")
    real = fitted.rename(copied.models / "20200101-000000-000.real")
    rest = json.loads((real / "model.json").read_text())
    rest["provenance"]["source"] = "files:/nowhere.csv"
    (real / "model.json").write_text(json.dumps(rest))
    return copied


def test_runs_are_listed_the_latest_last_and_marked(two):
    shown = run("runs", "--home", two).stdout
    assert shown.index("real") < shown.index("demo")
    for cell in ("2021-01-01", "files:/nowhere.csv", "simulated", "LSTM 4"):
        assert cell in shown
    assert "`forecaster predict --all` takes real; --run NAME takes another." in shown


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda text: "{", "model.json: cannot be read"),
        (lambda text: re.sub('"schema": [0-9]+', '"schema": 5', text), "model.json: schema"),
    ],
)
def test_no_runs_yet_and_damaged_ones(two, tmp_path, damage, why):
    assert "`forecaster fit` makes one" in run("runs", "--home", tmp_path / "none").stdout
    path = two.find_run("demo") / "model.json"
    path.write_text(damage(path.read_text()))
    listed = run("runs", "--home", two)
    assert listed.exit_code == 0 and "real" in listed.stdout
    assert f"20210101-000000-000.demo/{why}" in listed.stderr
    assert "forecaster runs remove demo" in listed.stderr


def test_runs_are_compared(two):
    shown = run("runs", "compare", "real", "demo", "--home", two).stdout
    assert "source" in shown and "files:/nowhere.csv" in shown and "simulated" in shown
    assert "hidden" not in shown  # this setting does not differ
    assert "'unchanged'" in shown and "real is better on 0 of the 5 series that both have" in shown
    same = run("runs", "compare", "demo", "demo", "--home", two).stdout
    assert "have the same settings and data" in same and "are of different days" not in same
    rest = two.find_run("demo") / "model.json"
    rest.write_text(rest.read_text().replace('"start": "2023-01-01"', '"start": "2024-01-01"'))
    shown = run("runs", "compare", "real", "demo", "--home", two).stdout
    assert "--start" in shown and "2024-01-01" in shown and "start from" not in shown
    rest.write_text(rest.read_text().replace('"horizon": 3', '"horizon": 4'))
    assert "are of different days" in run("runs", "compare", "real", "demo", "--home", two).stdout
    for name in ("AAPL", "MSFT", "KO", "IBM", "XOM"):
        rest.write_text(rest.read_text().replace(f'"{name}"', f'"{name}.X"'))
    shown = run("runs", "compare", "real", "demo", "--home", two).stdout
    assert "They have no series in common" in shown and "Validation span" not in shown


def test_runs_are_renamed_and_removed(two):
    assert "called mine" in run("runs", "--home", two, "rename", "real", "mine").stdout
    assert "already" in error("runs", "rename", "mine", "demo", "--home", two, code=2)
    assert "no run 'real'" in error("runs", "remove", "demo", "real", "--home", two, code=2)
    assert len(two.runs()) == 2  # either all or none are removed
    assert run("runs", "remove", "demo", "mine", "--home", two).exit_code == 0
    assert two.runs() == []


def test_the_home_before_a_subcommand_counts_also_beside_the_environment(two, monkeypatch):
    monkeypatch.setenv("FORECASTER_HOME", str(two))
    assert "no run 'real' under /none" in error("runs", "--home", "/none", "remove", "real", code=2)
    assert run("runs", "--home", "/none", "remove", "real", "--home", two).exit_code == 0


def test_predict_says_which_run_it_takes(two):
    shutil.copytree(two.find_run("demo"), two.models / "20200601-000000-000.old")
    rest = two.find_run("real") / "model.json"
    rest.write_text(rest.read_text().replace('"AAPL"', '"GONE"'))
    done = run("predict", "AAPL", "--format", "json", "--home", two)
    assert len(json.loads(done.stdout)) == 3  # and nothing else
    assert done.stderr.startswith("Run: demo (simulated, 5 series, horizon 3, fitted 2021-01-01")
    other = run("predict", "AAPL", "--run", "old", "--format", "json", "--home", two)
    assert other.stdout == done.stdout and "Run:" not in other.stderr
    assert "no run 'ol'" in error("predict", "AAPL", "--run", "ol", "--home", two, code=2)


def test_a_fit_with_a_name_that_is_taken_is_refused_before_anything_is_fetched(two):
    said = error("fit", "--source", "simulated", "--run", "demo", "--home", two, code=2)
    assert "there is a run 'demo' already" in said
    assert "leave out --run" in error("fit", "--resume", "--run", "x", "--home", two, code=2)


@pytest.mark.parametrize("width", [50, 80])
@pytest.mark.parametrize("command", ["runs", "status", "scorecard"])
def test_on_a_narrow_terminal_nothing_is_cut(two, monkeypatch, command, width):
    monkeypatch.setenv("COLUMNS", str(width))
    lines = [line for line in run(command, "--home", two).stdout.splitlines() if line[:1] in "┃│"]
    assert all(len(line) <= width and "…" not in line for line in lines)
    if command != "scorecard":
        cells = ["".join(part.strip() for part in column) for column in
                 zip(*(line.strip("│┃").replace("┃", "│").split("│") for line in lines
                       if line.count("│") > 6 or line.count("┃") > 6), strict=False)]  # fmt: skip
        assert any("files:/nowhere.csv" in cell for cell in cells), cells
