"""On a sample of real prices, the README's claims hold. Skipped without the data."""

import os
import shutil
import subprocess
import sys

import pandas as pd
import pytest

import forecaster as fc


@pytest.mark.slow
def test_bands_hold_and_points_match_naive_on_a_held_back_year(real_data):
    """Train 40 of 400 tickers before 2015, and test them on 2015."""
    frame = pd.read_parquet(real_data / "us_stocks_2000_2015.parquet")
    some = sorted(frame["ticker"].unique())[::10]
    panel = fc.load_panel(frame[frame["ticker"].isin(some) & (frame["date"].astype(str) > "2008")])
    config = fc.Config(epochs=40)
    scores = fc.evaluate(fc.cross_validation(panel, config, n_windows=247), by_horizon=True)
    ours = scores[scores["model"] == "LSTM"].groupby("horizon")
    for level in (80, 95):
        # A few tickers move together: 2 points of tolerance for all of them, 3 for this sample.
        assert (ours[f"coverage-{level}"].mean() - level / 100).abs().max() < 0.03
    assert ours["mae_relative_to_naive"].median().between(0.98, 1.01).all()


@pytest.mark.slow
def test_the_main_job_on_all_505_tickers(real_data, tmp_path):
    """No ticker is lost silently, none depends on others, and the bits are the same again."""
    shutil.copy(real_data / "sp500_2013_2018.parquet", tmp_path / "prices.parquet")
    environment = os.environ | {"FORECASTER_HOME": str(tmp_path / "home")}

    def command(*args):
        call = [sys.executable, "-m", "forecaster", *args]
        return subprocess.run(
            call, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
        )

    everyone = pd.read_parquet(tmp_path / "prices.parquet", columns=["ticker"])["ticker"].unique()
    forecasts = []
    for tickers in (everyone, everyone, everyone[1:]):
        (tmp_path / "t.txt").write_text("\n".join(tickers))
        fit = command(
            "fit", "--source", "files:prices.parquet", "--tickers", "t.txt",
            "--start-from", "independent",
        )  # fmt: skip
        assert fit.returncode == 0, fit.stderr  # the shortest has 44 rows and its own networks
        out = command("predict", "--all", "--format", "csv").stdout
        forecasts.append(set(out.splitlines()))
        assert len(forecasts[-1]) == 1 + 5 * len(tickers)
    assert forecasts[0] == forecasts[1] > forecasts[2]
