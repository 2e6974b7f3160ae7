"""The command ``explain``, on a fitted home."""

import re

import numpy as np
import pandas as pd
import pytest

import forecaster as fc
from tests.conftest import TICKERS, error, run


def test_a_band_is_explained_by_the_numbers_of_predict(home, tmp_path):
    file, table = tmp_path / "forecasts.csv", tmp_path / "factors.parquet"
    assert run("predict", "AAPL", "--output", file, "--home", home).exit_code == 0
    made = run("explain", "AAPL", "--output", table, "--home", home)
    assert made.exit_code == 0, made.output
    row, factors = pd.read_csv(file).iloc[0], pd.read_parquet(table)
    first = factors[(factors["step"] == 1) & (factors["of"] == "band")].set_index("factor")
    width = np.log(row["LSTM-hi-80"] / row["LSTM-lo-80"])
    assert first.loc["total", "value"] == pytest.approx(width, rel=1e-9)
    assert first["value"].drop("total").prod() == pytest.approx(width, rel=1e-9)
    said = made.stdout.splitlines()[0]
    assert said.startswith(f"AAPL: the 80 % band is {100 * width:.2f} % wide, ")
    assert re.search(r" (than|as)( was forecast)? on 20", said)
    for name in ("own volatility", "level and step", "EWMA", "GARCH", "realised, 20 rows"):
        assert f"\n{name}" in made.stdout


def test_every_series_has_a_sentence_and_rows(home, tmp_path):
    made = run("explain", "--all", "--home", home)
    assert made.exit_code == 0
    said = made.stdout.splitlines()
    assert sorted(line.partition(":")[0] for line in said) == sorted(TICKERS)
    made = run("explain", "--all", "--output", tmp_path / "factors.csv", "--home", home)
    factors = pd.read_csv(tmp_path / "factors.csv")
    assert made.stdout == "" and set(factors["unique_id"]) == set(TICKERS)
    assert {"value", "usual", "percentile", "then", "change", "share", "run", "since"} <= set(
        factors
    )
    total = factors.query("of == 'band' and factor == 'total' and step == 1").set_index("unique_id")
    assert (total[["EWMA", "GARCH", "realised, 20 rows"]] > 0).all(axis=None)
    assert factors["EWMA"].notna().sum() == len(TICKERS)


def test_a_past_day_is_explained_as_predict_from_it(home, tmp_path):
    days = pd.read_csv(_forecasts(home, tmp_path, "--end", "2024-06-28"))
    made = run("explain", "KO", "--at", "2024-06-28", "--since", "2024-06-03", "--home", home)
    assert made.exit_code == 0
    row = days.iloc[0]
    assert f"band {row['LSTM-lo-80']:.6g} to {row['LSTM-hi-80']:.6g}" in made.stdout
    assert "on 2024-06-03" in made.stdout
    assert "was fitted on rows after 2024-06-03; no run of that time is kept" in made.stdout


@pytest.mark.parametrize(
    "asked", ["--level nan", "--level 0", "--level 100", "--since 2027-01-01", "--step 99"]
)
def test_what_cannot_be_explained_is_refused(home, asked):
    made = run("explain", "KO", *asked.split(), "--home", home)
    assert made.exit_code == 2 and asked.split()[0].strip("-") in made.stderr


def _forecasts(home, folder, *options):
    file = folder / "forecasts.csv"
    assert run("predict", "KO", *options, "--output", file, "--home", home).exit_code == 0
    return file


def test_what_options_imply_stands_beside(home, tmp_path):
    (tmp_path / "implied.csv").write_text("ticker,implied\nKO,31\n")
    for given in ("KO=31", tmp_path / "implied.csv"):
        made = run("explain", "KO", "--implied", given, "--home", home)
        line = next(line for line in made.stdout.splitlines() if line.startswith("implied"))
        assert "31.0 %" in line
    for wrong in ("KO", "KO=much", "KO=0.31", tmp_path / "none.csv"):
        message = error("explain", "KO", "--implied", wrong, "--home", home, code=2)
        assert f"--implied {wrong}" in message
    made = run("explain", "KO", "--implied", "KOO=31", "--home", home)
    assert made.exit_code == 3 and "--implied KOO: not among the series" in made.stderr


def test_another_step_and_level_are_those_of_predict(home, tmp_path):
    row = pd.read_csv(_forecasts(home, tmp_path, "--level", "95")).iloc[2]
    made = run("explain", "KO", "--step", 3, "--level", 95, "--home", home)
    assert f"band {row['LSTM-lo-95']:.6g} to {row['LSTM-hi-95']:.6g}" in made.stdout
    assert made.stdout.startswith("KO: the 95 % band is ")
    assert "step: expected 1 to " in error("explain", "KO", "--step", 99, "--home", home, code=2)


def test_the_run_of_a_past_day_is_named_alone(settings, tmp_path):
    fit = "fit", "--tickers", "AAPL,KO", "--source", "simulated", "--start", "2023-01-01"
    for options in (("--end", "2024-05-31", "--run", "past"), ("--run", "later")):
        made = run(*fit, "--config", settings, "--home", tmp_path, *options)
        assert made.exit_code == 0, made.output
    made = run("explain", "KO", "--at", "2024-06-28", "--home", tmp_path)
    said = [line for line in made.stderr.splitlines() if line.startswith("Run: ")]
    assert len(said) == 1 and "Run: past " in said[0] and "no row after 2024-06-28" in said[0]


def test_times_may_be_whole_numbers(tmp_path):
    rows = tmp_path / "rows.csv"
    values = 50 + np.random.default_rng(0).normal(0, 1, 40).cumsum()
    pd.DataFrame({"unique_id": "A", "ds": range(40), "y": values}).to_csv(rows, index=False)
    home = tmp_path / "home"
    assert run("fit", "--source", f"files:{rows}", "--home", home).exit_code == 0
    made = run("explain", "A", "--at", 35, "--since", 30, "--home", home)
    assert made.exit_code == 0, made.output
    assert "For 36, from 35: " in made.stdout and " on 30" in made.stdout
    for option, time in (("--at", "2024-06-28"), ("--since", "2024-06-28")):
        assert "whole number" in error("explain", "A", option, time, "--home", home, code=2)


@pytest.mark.parametrize("whose", ["source", "adjust"])
def test_a_split_is_named_and_no_fall(settings, tmp_path, whose):
    """Once the source has applied it to earlier prices, and once ``adjust`` has."""
    prices = fc.load_panel("simulated", ["KO"], start="2023-01-01").to_frame()
    last = prices["ds"].max()
    columns = ["open", "high", "low", "close"]
    if whose == "source":
        prices["splits"] = np.where(prices["ds"] == last, 4.0, 0.0)
    else:
        prices.loc[prices["ds"] < last, columns] *= 4
    rows = tmp_path / "prices.csv"
    prices[["unique_id", "ds", *columns, *prices.columns[-1:]]].to_csv(rows, index=False)
    fit = "fit", "--source", f"files:{rows}", "--config", settings, "--home", tmp_path / "home"
    assert run(*fit).exit_code == 0
    day = str(last.date())
    if whose == "adjust":
        by = "adjust", "KO", "--factor", 0.25, "--before", day
        assert run(*by, "--home", tmp_path / "home").exit_code == 0
    made = run("explain", "KO", "--home", tmp_path / "home")
    said = f"KO: prices before {day} are multiplied by 0.25 for a split"
    assert made.exit_code == 0 and said in made.stdout
    assert "fall of 7" not in made.stdout


def test_what_is_not_known_is_named(home):
    message = error("explain", "--home", home, code=2)
    assert "name tickers, or use --all" in message
    made = run("explain", "KO", "NOBODY", "--home", home)
    assert made.exit_code == 3 and "NOBODY" in made.stderr
    message = error(
        "explain", "KO", "--at", "2024-06-28", "--since", "2024-06-28", "--home", home, code=2
    )
    assert "--since must lie before --at" in message
