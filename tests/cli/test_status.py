"""``status``, ``runs`` and ``prune``: what is in a home, and what nothing there needs."""

import json
import os
import re
import shutil
import time

import pandas as pd
import pytest

import forecaster as fc
from forecaster.files import FolderLock, Home
from forecaster.record import read_record
from tests.conftest import error, run
from tests.record.made import forecast, store, table

RUNS = [f"2024010{day}-000000-000-lstm" for day in range(1, 5)]


@pytest.fixture
def saved(model, tmp_path):
    """Make a home with a model saved by the library, which has no source."""
    return fc.save(model, tmp_path / "home" / "models" / "20260101-000000-000-lstm")


def test_a_model_of_the_library_is_shown(saved, home):
    shutil.copytree(home, saved.parents[1], dirs_exist_ok=True)
    shown = run("status", "--home", saved.parents[1])
    assert shown.exit_code == 0 and shown.stderr == ""
    assert shown.stdout.count("LSTM 4") == 2 and shown.stdout.count("unknown") == 2


@pytest.mark.parametrize("words", [("predict", "KO"), ("predict", "--all")])
def test_a_model_of_the_library_cannot_be_forecast_from_stored_prices(saved, words):
    said = error(*words, "--home", saved.parents[1], code=1)
    assert "does not say where its data are" in said and "fc.predict(fc.load(" in said
    assert "None" not in said


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


@pytest.fixture
def cluttered(home, tmp_path):
    """A home with four runs and one with a name, old programs, an unread store, and a record."""
    copied = Home(tmp_path / "home")
    shutil.copytree(home / "prices", copied.prices)
    (saved,) = (home / "models").iterdir()
    for name in [*RUNS, "20240101-000000-001.weekly"]:
        shutil.copytree(saved, copied.models / name)
    copied.cache.mkdir()
    for name in ("old", "new"):
        (copied.cache / name).write_bytes(b"0" * 1000)
    source = store(copied, table())
    for until in (60, 61, 70):
        forecast(copied, source, until)
    other = tmp_path / "other"
    other.mkdir()
    store(Home(other / "home"), table())
    theirs, ours = other / "home" / "prices", copied.prices
    shutil.copytree(theirs, ours, dirs_exist_ok=True)
    past = time.time() - 40 * 86_400
    for path in [copied.cache / "old", *_files_of_store(copied, str(other))]:
        os.utime(path, (past, past))
    return copied


def _files_of_store(home, source):
    from forecaster.ingest import Store

    (found,) = [one.folder for one in Store.all_of(home) if source in one.source]
    return list(found.glob("*"))


def content(home):
    return sorted(path for path in home.folder.rglob("*") if not path.name.startswith(".lock"))


def test_it_lists_what_it_would_remove_and_removes_that_when_told(cluttered):
    before = content(cluttered)
    shown = run("prune", "--runs", 2, "--home", cluttered)
    assert shown.exit_code == 0 and content(cluttered) == before
    for text in (
        f"run {RUNS[0]} (", f"run {RUNS[1]} (", "1 files of the cache (0.00 MB): not used for 30",
        "store of files:", "Nothing has been removed",
    ):  # fmt: skip
        assert text in shown.stdout
    assert RUNS[2] not in shown.stdout and "weekly" not in shown.stdout
    frames = read_record(cluttered).frames
    for folder in cluttered.stores():
        (cluttered.downloads / folder.name / "files").mkdir(parents=True)
    assert run("prune", "--runs", 2, "--yes", "--home", cluttered).exit_code == 0
    copies = {path.name for path in cluttered.downloads.iterdir()}
    assert copies == {folder.name for folder in cluttered.stores()}
    left = {path.name for path in cluttered.models.iterdir()}
    assert left == {*RUNS[2:], "20240101-000000-001.weekly"}
    assert [path.name for path in cluttered.cache.iterdir()] == ["new"]
    assert len(cluttered.stores()) == 2
    for source, frame in read_record(cluttered).frames.items():
        pd.testing.assert_frame_equal(frame, frames[source], check_categorical=False)
    again = run("prune", "--runs", 2, "--home", cluttered)
    assert "Nothing to remove" in again.stdout


def test_what_is_in_use_stays(cluttered):
    unfinished = cluttered.unfinished / RUNS[0]
    unfinished.mkdir(parents=True)
    (unfinished / "request.json").write_text("{}")
    lock = FolderLock(cluttered.models / RUNS[1])
    assert lock.try_acquire()
    try:
        shown = run("prune", "--runs", 1, "--yes", "--home", cluttered).stdout
    finally:
        lock.release()
    assert {path.name for path in cluttered.models.iterdir()} >= set(RUNS[:2])
    assert RUNS[2] in shown and "store of" not in shown and unfinished.exists()
    cluttered.daily.mkdir()
    lock = FolderLock(cluttered.daily)
    assert lock.try_acquire()
    done = run("prune", "--yes", "--days", 0, "--home", cluttered)
    lock.release()
    assert done.exit_code == 1 and "a daily run" in done.stderr
    assert (cluttered.cache / "new").exists()


def test_a_damaged_run_keeps_the_stores(cluttered):
    (cluttered.models / RUNS[3] / "model.json").write_text("{")
    shown = run("prune", "--runs", 9, "--home", cluttered).stdout
    assert "store of" not in shown and "run " not in shown
