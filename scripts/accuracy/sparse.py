"""Compare forecasts of the mean of sparse demand, by rolling origin over the car parts.

    python scripts/accuracy/sparse.py [--output sparse.csv] [--quick]

``FORECASTER_TEST_DATA`` names the folder with ``small_panels.parquet``. From nine cutoffs, 15 to 39
months after the first month, each method forecasts the mean of the next twelve months. All methods
get the same distribution around this mean: a negative binomial distribution, with mean and variance
shrunk to those of the panel much as in ``forecaster.series.combination.counts``. In addition to
Croston's method, SBA, TSB and ADIDA, there are the running means of that module, here without the
combination of other models.

A row per cutoff and method: ``wql``, the weighted quantile loss at 0.1 to 0.9 and 0.95; ``mse``,
the squared error of the mean; ``coverage``, the coverage of the 80 % bands, in which a bound counts
by its share (randomised PIT).
"""

import argparse
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

from forecaster.classical import INTERMITTENT
from forecaster.forecasting.bands.counted import probability_up_to, smallest_count
from forecaster.series.causal import decayed_mean

CUTOFFS, HORIZON = range(15, 40, 3), 12
QUANTILES = np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95])
# Months of the variance; number of months that the panel's variance counts for.
MEMORY, PRIOR = 20, 10.0
MOST_WEIGHT = 5.0  # maximum weight of the panel's mean, in months

METHODS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    **{f"mean {w}": lambda z, w=w: decayed_mean(z, 1 - w) for w in (0.05, 0.1, 0.2)},
    **INTERMITTENT,
    "mean 0.1 and adida": lambda z: (decayed_mean(z, 0.9) + INTERMITTENT["adida"](z)) / 2,
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Forecasts of sparse demand, on the car parts.")
    parser.add_argument("--output", type=Path, default=Path(__file__).with_suffix(".csv"))
    parser.add_argument("--quick", action="store_true", help="a try; writes to a temporary folder")
    options = parser.parse_args()
    if options.quick:
        options.output = Path(tempfile.mkdtemp()) / options.output.name
    frame = pd.read_parquet(Path(os.environ["FORECASTER_TEST_DATA"]) / "small_panels.parquet")
    frame = frame[frame["panel"].astype(str) == "carparts"]
    table = frame.astype({"unique_id": str}).pivot(index="unique_id", columns="ds", values="y")
    y = table.dropna().to_numpy(float)
    rows = [
        {"cutoff": cutoff, "method": name, "series": len(y), **scored(y, cutoff, method)}
        for cutoff in (CUTOFFS[:1] if options.quick else CUTOFFS)
        for name, method in METHODS.items()
    ]
    made = pd.DataFrame(rows)
    made.to_csv(options.output, index=False)
    ratios = made.pivot(index="cutoff", columns="method", values="wql")
    ratios = ratios.div(ratios["mean 0.1"], axis=0)[list(METHODS)]
    print("weighted quantile loss over that of 'mean 0.1':", ratios.round(3), sep="\n")
    print(made.groupby("method")["coverage"].agg(["min", "max"]).loc[list(METHODS)])


def scored(y: np.ndarray, cutoff: int, method: Callable) -> dict[str, float]:
    known, came = y[:, :cutoff], y[:, cutoff : cutoff + HORIZON]
    mean, variance = (part[:, None] for part in moments(known, method(known)))
    quantiles = smallest_count(QUANTILES, mean, variance)[:, None]
    error = came[..., None] - quantiles
    loss = 2 * np.where(error > 0, QUANTILES * error, (QUANTILES - 1) * error)
    low, high = (probability_up_to(came - below, mean, variance) for below in (1, 0))
    share = (np.minimum(high, 0.9) - np.maximum(low, 0.1)) / np.maximum(high - low, 1e-300)
    return {
        "wql": round(float(loss.mean(-1).sum() / came.sum()), 5),
        "mse": round(float(np.square(came - mean).mean()), 4),
        "coverage": round(float(np.clip(share, 0, 1).mean()), 4),
    }


def moments(known: np.ndarray, made: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the latest mean of each series and the variance around it, shrunk to the panel's.

    ``made``: the forecasts made at each step
    """
    steps, latest = known.shape[1], made[:, -1]
    rows = (1 - 0.9**steps) / 0.1  # number of rows that a running mean of weight 0.1 rests on
    own = np.square(known - latest[:, None]).mean(1)
    dispersion = max(own.sum() / latest.sum(), 1.0)
    between = max(latest.var() - (own / rows).mean(), 1e-12)
    weight = min(dispersion * latest.mean() / between, MOST_WEIGHT)
    mean = (rows * latest + weight * latest.mean()) / (rows + weight)
    mean = np.maximum(mean, 1 / (steps + 2) / rows)  # parts that were never sold may still be sold
    squares = np.square(known[:, 1:] - made[:, :-1])[:, -MEMORY:].mean(1)
    count = min(steps, MEMORY)
    return mean, (squares * count + PRIOR * dispersion * mean) / (count + PRIOR)


if __name__ == "__main__":
    main()
