"""Measure the cost of a sweep over learning rates, beyond the cost of the training itself.

    python scripts/benchmarks/sweep.py [--series 50] [--rates 20] [--epochs 20] [--repeats 3]
        [--quick]

Trains the same swarm of small LSTMs twice in turn, on the same data: every series with each of the
learning rates, and the same number of members with one rate. Counts compiled programs, and writes
wall times and their ratio, pair by pair, to ``sweep.csv`` beside this script.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
from flax import nnx

from forecaster import swarm
from forecaster.swarm import LSTM

STEPS, FEATURES, HIDDEN, EXAMPLES = 30, 4, 16, 256


class Regressor(nnx.Module):
    """One LSTM layer and a linear readout of its last state."""

    def __init__(self, rngs):
        self.cell = LSTM(FEATURES, HIDDEN, rngs=rngs)
        self.out = nnx.Linear(HIDDEN, 1, rngs=rngs)

    def __call__(self, x):
        hidden = self.cell(x.swapaxes(0, 1), jnp.ones(x.shape[1::-1]))
        return self.out(hidden[-1])


def main() -> None:
    options = arguments()
    members = options.series * options.rates
    rows = np.repeat(np.arange(options.series), options.rates)
    x = np.random.default_rng(0).normal(size=(options.series, EXAMPLES, STEPS, FEATURES))
    x = x.astype(np.float32)
    weight = np.ones(x.shape[:2], np.float32)
    y = x.mean((2, 3))[..., None]
    examples = swarm.Supervised(x, y, weight, x[:, :32], y[:, :32], weight[:, :32])
    task = swarm.supervised(Regressor, optax.squared_error, batch_size=32)
    rates = {
        "sweep": np.tile(np.geomspace(1e-4, 1e-2, options.rates), options.series),
        "one rate": np.full(members, 1e-3),
    }
    compiled = count_programs()

    def train(rate) -> float:
        began = time.perf_counter()
        ids = [f"m{member}" for member in range(members)]
        swarm.fit(
            task, swarm.Shared(examples, rows), ids, seed=0, epochs=options.epochs,
            hyperparams={"learning_rate": rate},
        )  # fmt: skip
        return time.perf_counter() - began

    train(rates["one rate"])
    of_one_rate = len(compiled)
    train(rates["sweep"])
    added = len(compiled) - of_one_rate
    print(f"programs: {of_one_rate} for one rate, {added} more for the sweep")
    table = []
    for repeat in range(options.repeats):
        seconds = {name: train(rate) for name, rate in rates.items()}
        ratio = seconds["sweep"] / seconds["one rate"]
        table.append({"repeat": repeat, **seconds, "ratio": ratio})
        print({name: round(value, 3) for name, value in table[-1].items()}, flush=True)
    pd.DataFrame(table).round(4).assign(
        median_ratio=round(statistics.median(row["ratio"] for row in table), 4),
        programs_one_rate=of_one_rate, programs_added_by_sweep=added, series=options.series,
        rates=options.rates, members=members, epochs=options.epochs, hidden=HIDDEN, lookback=STEPS,
    ).to_csv(options.output, index=False)  # fmt: skip


def count_programs() -> list[str]:
    """Return a list that grows by one with every program that XLA compiles."""
    compilations: list[str] = []

    def listen(event: str, duration: float, **_) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            compilations.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    return compilations


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--series", type=int, default=50)
    parser.add_argument("--rates", type=int, default=20)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="a try; writes to a temporary folder")
    options = parser.parse_args()
    options.output = Path(__file__).with_suffix(".csv")
    if options.quick:
        options.series, options.rates, options.epochs, options.repeats = 4, 4, 2, 1
        options.output = Path(tempfile.mkdtemp()) / options.output.name
    return options


if __name__ == "__main__":
    main()
