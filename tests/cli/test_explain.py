"""The command ``explain``, on a fitted home."""

import numpy as np
import pandas as pd
import pytest

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
    assert " than on 20" in said or "as wide as on 20" in said
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
    assert {"value", "usual", "percentile", "then", "change", "share"} <= set(factors)


def test_a_past_day_is_explained_as_predict_from_it(home, tmp_path):
    days = pd.read_csv(_forecasts(home, tmp_path, "--end", "2024-06-28"))
    made = run("explain", "KO", "--at", "2024-06-28", "--since", "2024-06-03", "--home", home)
    assert made.exit_code == 0
    row = days.iloc[0]
    assert f"band {row['LSTM-lo-80']:.6g} to {row['LSTM-hi-80']:.6g}" in made.stdout
    assert "on 2024-06-03" in made.stdout
    assert "was fitted on rows after 2024-06-03; no run of that time is kept" in made.stdout


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


def test_without_the_library_of_garch_the_command_that_installs_it_is_shown(home, monkeypatch):
    monkeypatch.setattr("forecaster.pipeline.explain_run.has", lambda library: False)
    made = run("explain", "KO", "--home", home)
    assert made.exit_code == 0 and 'GARCH: `pip install "forecaster-swarm[garch]"`' in made.stdout


def test_what_is_not_known_is_named(home):
    message = error("explain", "--home", home, code=2)
    assert "name tickers, or use --all" in message
    made = run("explain", "KO", "NOBODY", "--home", home)
    assert made.exit_code == 3 and "NOBODY" in made.stderr
    message = error(
        "explain", "KO", "--at", "2024-06-28", "--since", "2024-06-28", "--home", home, code=2
    )
    assert "--since must lie before --at" in message
