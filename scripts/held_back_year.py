"""How well bands hold and how points compare with "unchanged", on a year that was held back.

    python scripts/held_back_year.py PRICES.parquet [--tickers N] [--sessions 252]

Trains on everything before the last sessions (the latest 252 of that for early stopping and
calibration), forecasts from every one of them, and writes one row per horizon to
``held_back_year.csv`` beside this script: coverage over all tickers and days, and quantiles over
tickers of the mean absolute error relative to the last price.
"""

import argparse
import platform
import resource
import time
from datetime import date
from pathlib import Path

import pandas as pd

import forecaster as fc


def main() -> None:
    options = arguments()
    began = time.perf_counter()
    panel = fc.load_panel(f"files:{options.prices}")
    if options.tickers:
        panel = panel.only(panel.ids[:: max(1, len(panel.ids) // options.tickers)])
    config = fc.Config()
    frame = fc.cross_validation(panel, config, n_windows=options.sessions - config.horizon)
    table = summary(frame)
    table["series"] = frame["unique_id"].nunique()
    table["first_cutoff"], table["last_cutoff"] = frame["cutoff"].min(), frame["cutoff"].max()
    table["seconds"] = round(time.perf_counter() - began, 1)
    table["peak_gb"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2)
    table["data"] = options.prices.name
    table["version"], table["python"] = fc.__version__, platform.python_version()
    table["date"] = date.today().isoformat()
    print(table.T.to_string())  # noqa: T201
    table.to_csv(Path(__file__).with_suffix(".csv"), index=False)


def summary(frame: pd.DataFrame) -> pd.DataFrame:
    scores = fc.evaluate(frame, by_horizon=True).query("model == 'LSTM'")
    by = scores.groupby("horizon")
    table = by[["coverage-80", "coverage-95"]].mean().round(4)
    relative = by["mae_relative_to_naive"].quantile([0.1, 0.5, 0.9]).unstack().round(4)
    relative.columns = [f"mae_relative_to_naive_q{int(q * 100)}" for q in relative]
    return table.join(relative).reset_index()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("prices", type=Path, help="a CSV, Parquet file or folder")
    parser.add_argument("--tickers", type=int, help="about so many, evenly picked; default all")
    parser.add_argument("--sessions", type=int, default=252)
    return parser.parse_args()


if __name__ == "__main__":
    main()
