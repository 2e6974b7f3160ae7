"""Tests of the commands on series that are not prices: daily loads, and few months."""

import re

import numpy as np
import pandas as pd
import pytest

from tests.cli.desk import Desk


def test_forecasts_say_what_they_rest_on(tmp_path):
    random = np.random.default_rng(0)
    values = {
        "months": 50 + random.normal(size=30).cumsum(),
        "new": np.array([4.0, 6.0]),
        "still": np.full(12, 5.0),
        "weeks": 80 + random.normal(size=30).cumsum(),
        "years": 20 + random.normal(size=12).cumsum(),
    }
    parts = [
        pd.DataFrame({"unique_id": name, "ds": np.arange(len(y)), "y": y})
        for name, y in values.items()
    ]
    desk = Desk(tmp_path)
    desk.write(pd.concat(parts))
    fitted = desk("fit", "--source", f"files:{desk.path}", "--horizon", 3)
    assert "3 by combination, 2 by last value" in fitted.stdout, fitted.output
    one = desk("predict", "months", "new")
    assert "forecast by combination" in one.stdout and "forecast by last value" in one.stdout
    every = desk("predict", "--all")
    assert every.exit_code == 0 and "1 series never changed, so that" in every.stderr
    assert re.search(r"5\.00 │ 5\.00 to 5\.00 │ 5\.00 to 5\.00 │ +0%", every.stdout), every.stdout
    drawn = desk("predict", "still", "weeks", "--paths", 5)
    assert "bands have hardly any width: still\n" in drawn.stderr
    page = tmp_path / "f.html"
    assert desk("predict", "--all", "--report", page).exit_code == 0
    assert "5 series (3 by combination, 2 by last value)" in page.read_text("utf-8")
    table = desk.forecasts("--all").groupby("unique_id")["forecast_by"].first()
    assert table["new"] == table["still"] == "last value" and table["years"] == "combination"


def test_counts_are_forecast_by_a_named_model_with_the_stock_for_a_service_level(tmp_path):
    random, months = np.random.default_rng(0), pd.date_range("2022-01-31", periods=36, freq="ME")
    parts = [
        pd.DataFrame({"unique_id": f"part {n}", "ds": months, "y": random.poisson(0.6, 36)})
        for n in range(6)
    ]
    desk = Desk(tmp_path)
    desk.write(pd.concat(parts))
    source = "--source", f"files:{desk.path}"
    fitted = desk("fit", *source, "--horizon", 3, "--model", "theta")
    assert fitted.exit_code == 0 and "none; the model is theta" in fitted.stdout, fitted.output
    assert "6 by theta" in fitted.stdout
    shown = desk("predict", "--all", "--quantile", 0.95)
    assert "quantile 0.95" in shown.stdout and "theta" in shown.stdout
    made = desk.forecasts("--all", "--quantile", 0.95)
    assert made["THETA-q-0.95"].between(1, 6).all()
    assert (made["THETA-q-0.95"] % 1 == 0).all() and (made["forecast_by"] == "theta").all()
    for wrong in (["--quantile", 95], ["--quantile", 0.9, "--paths", 10]):
        assert desk("predict", "--all", *wrong).exit_code == 2
    refused = desk("fit", *source, "--model", "ets", "--tune")
    assert refused.exit_code == 2 and "no settings to search" in refused.stderr
    shown = desk("evaluate", *source, "--model", "ets", "--baselines", "ets")
    assert shown.exit_code == 2 and "baseline ets is the model itself" in shown.stderr


MONTHS = pd.date_range("2022-01-01", periods=30, freq="MS")


@pytest.fixture(scope="module")
def counts(tmp_path_factory):
    """A home with a run on monthly counts: of some series few rows, or none of the latest."""
    random, desk = np.random.default_rng(0), Desk(tmp_path_factory.mktemp("counts"))
    values = {f"part{n}": random.poisson(0.6, 30) for n in range(9)}
    values |= {"ended": values["part0"][:20], "never": np.zeros(30, int)}
    parts = [
        pd.DataFrame({"unique_id": name, "ds": MONTHS[: len(y)], "y": y})
        for name, y in values.items()
    ]
    parts.append(pd.DataFrame({"unique_id": "new", "ds": MONTHS[-3:], "y": [0, 0, 3]}))
    desk.write(pd.concat(parts))
    return desk.fit("--horizon", 3)


@pytest.mark.parametrize("names", [("ended",), ("ended", "part1"), ("part2", "ended", "new")])
def test_a_series_that_ended_before_the_fit_is_said_to_whichever_are_asked_for(counts, names):
    done = counts("predict", *names)
    assert done.exit_code == 0, done.output
    said = "1 series had ended before the fit; each is forecast from its end: ended\n"
    assert said in done.stderr and "end before the others" not in done.stderr


def test_counts_of_few_rows_are_not_said_to_be_forecast_by_their_last_value(counts):
    frame = counts.forecasts("new")
    assert (frame["forecast_by"] == "shrunken mean").all() and (frame["LSTM"] < 3).all()
    shown = counts("predict", "new")
    assert "forecast by shrunken mean" in " ".join(shown.stdout.split())
    assert "10 by combination, 2 by shrunken mean" in counts("status").stdout


def test_paths_of_series_that_end_at_different_times_are_not_added(counts):
    one = counts("predict", "new", "part1", "--paths", 300)
    assert one.exit_code == 0 and "sum of 2" in one.stdout, one.output
    assert "Values 3 steps ahead, 300 paths" in one.stdout
    assert not re.search("price|close|risk|session", one.output, re.I)
    assert "different times" not in one.stderr
    two = counts("predict", "new", "ended", "--paths", 300)
    assert two.exit_code == 0 and "ended" in two.stdout and "sum of" not in two.stdout, two.output
    assert "different times, 2023-11-01 to 2024-09-01. So there is no sum;" in two.stderr
