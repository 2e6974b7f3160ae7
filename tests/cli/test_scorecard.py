"""``predict`` records its forecasts, and ``scorecard`` scores them."""

import json
import shutil

import pandas as pd
import pytest

from forecaster.files import Home
from tests.conftest import error, run
from tests.record.made import forecast, store, table


@pytest.fixture
def recorded(tmp_path):
    home = Home(tmp_path / "home")
    source = store(home, table().groupby("ticker").head(61))
    for until in (50, 60):
        forecast(home, source, until)
    return home


def copied(home, tmp_path) -> Home:
    return Home(shutil.copytree(home, tmp_path / "home", ignore=lambda *_: ["record"]))


def test_every_prediction_is_kept_once_but_sample_paths_are_not(home, tmp_path):
    home = copied(home, tmp_path)
    for arguments in (("KO",), ("KO",), ("KO", "AAPL"), ("KO", "--paths", 5)):
        assert run("predict", *arguments, "--home", home).exit_code == 0
    assert len(home.recorded()) == 2
    kept = pd.read_parquet(home.recorded()[0])
    said = json.loads(run("predict", "KO", "--format", "json", "--home", home).stdout)
    assert kept["forecast-lo-80"].tolist() == pytest.approx([row["LSTM-lo-80"] for row in said])
    assert set(kept["source"]) == {"simulated"} and set(kept["run"]) == {home.runs()[0].name}
    card = run("scorecard", "--home", home)
    assert "Simulated prices" in card.stderr
    assert "2 forecasts of 2 series were made, with 6 values: 0 have come, 6" in card.stdout
    assert "`forecaster ingest` fetches what has come since" in card.stdout


def test_a_home_that_cannot_be_written_to_still_answers(home, tmp_path):
    home = copied(home, tmp_path)
    home.record.write_text("in the way")
    done = run("predict", "KO", "--format", "csv", "--home", home)
    assert done.exit_code == 0 and len(done.stdout.splitlines()) == 4
    assert done.stderr.count("Warning: not in the record") == 1


def test_scores_are_shown_by_series_and_for_all(recorded):
    shown = run("scorecard", "--home", recorded)
    assert shown.exit_code == 0 and not shown.stderr
    row = next(line for line in shown.stdout.splitlines() if line.startswith("│ AAA"))
    assert row.split("│")[2:5] == [f"{n:>{w}} " for n, w in ((2, 10), (3, 9), (1, 5))]
    assert "│ all " in shown.stdout and "too few to judge by" in shown.stdout
    one = run("scorecard", "brk.b", "--home", recorded).stdout
    assert "AAA" not in one and "2 forecasts of 1 series" in one


def test_what_is_not_in_the_record(recorded, tmp_path):
    assert "`forecaster predict` makes some" in run("scorecard", "--home", tmp_path / "no").stdout
    assert "no forecast of NOPE" in error("scorecard", "NOPE", "--home", recorded, code=2)
    said = error("scorecard", "--run", "x", "--home", recorded, code=2)
    assert "no forecast of a run 'x'" in said
    (recorded.record / "20240101-000000-000-000000000000.parquet").write_bytes(b"no")
    shown = run("scorecard", "--home", recorded)
    assert shown.exit_code == 0 and "left out, since it cannot be read" in shown.stderr
