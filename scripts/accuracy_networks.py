"""Measure the accuracy of each network against its time and size, on the same panels.

    python scripts/accuracy_networks.py [--series 16] [--epochs 40] [--quick]

Trains every network, a few of them with several layers, on a sample of three panels in the folder
that FORECASTER_TEST_DATA names: prices (us_stocks_2000_2015, ten years, the last one withheld), M4
weekly and M4 hourly (the last cutoffs withheld). All networks of a panel have the same settings,
which were not chosen for any of them. Writes ``accuracy_networks.csv`` beside this script, a row
per panel and network:

- ``parameters``: number of parameters of one series' network
- ``crps``, ``mae``: scores of forecasts at withheld cutoffs, relative to the LSTM with one layer
  and to the last value; geometric means over series
- ``coverage_80``, ``better``: coverage of the band; share of series with a CRPS below the LSTM's
- ``epochs``: mean number of epochs until training stopped
- ``seconds``, ``per_epoch``: processor time of one core to train one network, in seconds, and per
  epoch in milliseconds, without compilation; other work on the machine hardly affects it
- ``seconds_to_compile``: additional time of the first fit and its forecasts, by the clock
"""

import argparse
import dataclasses
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).parent / "experiments"))
import harness

import forecaster as fc

NETWORKS = (
    ("lstm", 1), ("lstm", 2), ("lstm", 3), ("gru", 1), ("transformer", 1), ("transformer", 2),
    ("mlp", 1),
)  # fmt: skip
LEVELS = (10, 20, 30, 40, 50, 60, 70, 80, 90)


class Job(NamedTuple):
    """A panel, the settings of its networks, and the cutoffs that they forecast from."""

    panel: fc.Panel
    config: fc.Config
    n_windows: int
    step_size: int


def main() -> None:
    options = arguments()
    rows = []
    for name, job in jobs(options):
        reference = None
        for model, layers in NETWORKS[: 2 if options.quick else None]:
            config = {"model": model, "layers": layers, "epochs": options.epochs}
            row, crps = measure(
                job._replace(config=dataclasses.replace(job.config, **config)), options.seed
            )
            reference = crps if reference is None else reference
            ratio = crps / reference
            row |= {"crps": geometric(ratio), "better": float((ratio < 1).mean())}
            rows.append({"panel": name, "network": model, "layers": layers, **row})
            print(pd.DataFrame(rows[-1:]).round(3).to_string(header=len(rows) == 1), flush=True)
        harness.write(options, pd.DataFrame(rows))


def arguments() -> argparse.Namespace:
    parser = harness.parser(__doc__, series=16, epochs=40)
    options = parser.parse_args()
    if options.quick:
        options.series, options.epochs = 3, 2
    elif options.output is None:
        options.output = Path(__file__).parent
    if not Path(os.environ.get("FORECASTER_TEST_DATA") or "-").is_dir():
        raise SystemExit("FORECASTER_TEST_DATA: expected a folder with the real data; see --help")
    return options


def jobs(options: argparse.Namespace) -> Iterator[tuple[str, Job]]:
    folder = Path(os.environ["FORECASTER_TEST_DATA"])
    prices = pd.read_parquet(folder / "us_stocks_2000_2015.parquet")
    prices = prices[pd.to_datetime(prices["date"]) >= "2005"]
    chosen = sample(prices, "ticker", 2700, options.series)
    config = fc.Config()
    yield "stocks", Job(fc.load_panel(chosen), config, 50, 5)
    config = fc.Config(horizon=13)
    yield "m4_weekly", Job(m4(folder / "m4_weekly_train.parquet", 500, options), config, 4, 13)
    config = fc.Config(horizon=48)
    yield "m4_hourly", Job(m4(folder / "m4_hourly_train.parquet", 700, options), config, 3, 48)


def m4(path: Path, least: int, options: argparse.Namespace) -> fc.Panel:
    """Return series with at least ``least`` rows, shifted to end at the same time."""
    table = sample(pd.read_parquet(path), "unique_id", least, options.series)
    table = table.assign(unique_id=table["unique_id"].astype(str))
    latest = table.groupby("unique_id")["ds"].transform("max")
    return fc.load_panel(table.assign(ds=3000 + table["ds"].astype(int) - latest.astype(int)))


def sample(table: pd.DataFrame, name: str, least: int, count: int) -> pd.DataFrame:
    """Return ``count`` series with at least ``least`` rows, evenly picked."""
    sizes = table.groupby(name, observed=True).size()
    long = sorted(sizes.index[sizes >= least])
    return table[table[name].isin(long[:: max(1, len(long) // count)][:count])]


def measure(job: Job, seed: int) -> tuple[dict[str, float], pd.Series]:
    """Measure a network's training and accuracy; return its row, and the CRPS of each series."""
    panel, config = job.panel, job.config
    cutoff = len(panel.times) - 1 - config.horizon - (job.n_windows - 1) * job.step_size
    known = panel.until(panel.times[cutoff])
    began = time.perf_counter()
    frame = fc.cross_validation(
        panel, config, job.n_windows, job.step_size, level=LEVELS, seed=seed
    )
    first, began = time.perf_counter() - began, time.process_time()
    model = fc.fit(known, config, seed)  # the second fit does not compile
    seconds = time.process_time() - began
    scores = fc.evaluate(frame).set_index(["model", "unique_id"])
    own, epochs = scores.loc[config.column], model.report["epochs"].sum()
    row = {
        "series": len(model.ids),
        "parameters": sum(leaf[0].size for leaf in jax.tree.leaves(model.params)),
        "mae": geometric(own["mae_relative_to_naive"]),
        "coverage_80": float(own["coverage-80"].mean()),
        "epochs": float(epochs / len(model.ids)),
        "seconds": seconds / len(model.ids),
        "per_epoch": 1e3 * seconds / float(epochs),
        "seconds_to_compile": max(0.0, first - seconds / len(jax.devices())),
    }
    return row, own["crps"]


def geometric(ratios: pd.Series) -> float:
    """Return the geometric mean."""
    return float(np.exp(np.log(ratios).mean()))


if __name__ == "__main__":
    main()
