"""Measure the value of knowing earnings dates, on simulated markets whose distribution is known.

    python scripts/accuracy/events.py [--tickers 20] [--output events.csv] [--quick]

Each ticker has the volatility of a GARCH(1,1) and Student-t moves with six degrees of freedom. The
moves are four times as wide on the days of its earnings, which are some 63 days apart. Such a day
does not raise the volatility of later days. One day ahead, 250 cutoffs, three markets. A row per
market, forecast and kind of days: ``score``, the mean pinball loss over thirteen quantiles,
relative to the price; ``of_truth``, this score divided by the loss of the true distribution;
``coverage-80``.
"""

import argparse
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import t as student

import forecaster as fc

ROWS, CUTOFFS, QUARTER, WIDER, FREEDOM = 1_500, 250, 63, 4.0, 6
LEVELS = [20, 40, 60, 80, 90, 95]
DAYS = pd.bdate_range("2015-01-01", periods=ROWS + 5)


def simulated(tickers: int, seed: int) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Return prices, the list of earnings, and the true scale of each day's move."""
    rng = np.random.default_rng(seed)
    prices: list[pd.DataFrame] = []
    listed: list[pd.DataFrame] = []
    scales: list[pd.DataFrame] = []
    for number in range(tickers):
        name = f"T{number:02d}"
        days = np.arange(rng.integers(QUARTER), len(DAYS), QUARTER)
        days = np.clip(days + rng.integers(-3, 4, len(days)), 0, len(DAYS) - 1)
        wide = np.isin(np.arange(ROWS), days)
        noise = rng.standard_t(FREEDOM, ROWS) * np.sqrt((FREEDOM - 2) / FREEDOM)
        variance, scale = 1.0, np.zeros(ROWS)
        for step in range(ROWS):
            scale[step] = 0.015 * np.sqrt(variance) * (WIDER if wide[step] else 1.0)
            variance = 0.05 + 0.08 * variance * noise[step] ** 2 + 0.87 * variance
        own = {"unique_id": name, "ds": DAYS[:ROWS]}
        prices.append(pd.DataFrame(own | {"close": 100 * np.exp(np.cumsum(scale * noise))}))
        scales.append(pd.DataFrame(own | {"scale": scale, "event": wide}))
        listed.append(pd.DataFrame({"unique_id": name, "ds": DAYS[days]}))
    return pd.concat(prices), pd.concat(listed), pd.concat(scales)


def quantiles_of(made: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Return the probabilities and the quantiles of forecasts, (row, quantile)."""
    columns = {0.5: "LSTM"}
    for level in LEVELS:
        columns[0.5 - level / 200], columns[0.5 + level / 200] = (
            f"LSTM-{side}-{level}" for side in ("lo", "hi")
        )
    order = sorted(columns)
    return np.array(order), made[[columns[one] for one in order]].to_numpy()


def scores(actual: np.ndarray, share: np.ndarray, value: np.ndarray) -> tuple[float, float]:
    error = actual[:, None] - value
    loss = np.maximum(share * error, (share - 1) * error).mean(1) / actual
    low, high = (value[:, np.argmin(np.abs(share - one))] for one in (0.1, 0.9))
    return float(loss.mean()), float(((actual >= low) & (actual <= high)).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description="The value of knowing earnings dates.")
    parser.add_argument("--tickers", type=int, default=20)
    parser.add_argument("--output", type=Path, default=Path(__file__).with_suffix(".csv"))
    parser.add_argument("--quick", action="store_true", help="a try; writes to a temporary folder")
    options = parser.parse_args()
    markets, cutoffs = (1, 5) if options.quick else (3, CUTOFFS)
    if options.quick:
        options.tickers = 3
        options.output = Path(tempfile.mkdtemp()) / options.output.name
    warnings.simplefilter("ignore")
    rows: list[dict[str, Any]] = []
    for seed in range(markets):
        prices, listed, scales = simulated(options.tickers, seed)
        panel = fc.load_panel(prices)
        before = prices.assign(last=prices.groupby("unique_id")["close"].shift())
        for name, one in (("not known", panel), ("known", panel.with_future(listed))):
            made = fc.cross_validation(one, fc.Config(horizon=1), cutoffs, level=LEVELS)
            made = made.merge(scales, on=["unique_id", "ds"]).merge(
                before[["unique_id", "ds", "last"]], on=["unique_id", "ds"]
            )
            share, value = quantiles_of(made)
            unit = made["scale"].to_numpy() * np.sqrt((FREEDOM - 2) / FREEDOM)
            true = made["last"].to_numpy()[:, None] * np.exp(
                unit[:, None] * student.ppf(share, FREEDOM)
            )
            actual, event = made["y"].to_numpy(), made["event"].to_numpy()
            for days, kept in (("events", event), ("others", ~event), ("all", event | ~event)):
                score, coverage = scores(actual[kept], share, value[kept])
                best, _ = scores(actual[kept], share, true[kept])
                row = {"seed": seed, "events": name, "days": days, "score": round(score, 6)}
                rows.append(row | {"of_truth": round(score / best, 4), "coverage-80": coverage})
                print(*rows[-1].values(), flush=True)
    table = pd.DataFrame(rows).round(4)
    table.to_csv(options.output, index=False)
    print(table.groupby(["events", "days"])[["of_truth", "coverage-80"]].mean().round(3))


if __name__ == "__main__":
    main()
