"""Measure the time that compaction saves when members converge unevenly.

    python scripts/benchmarks/compaction.py [--members 256] [--epochs 100] [--repeats 3] [--quick]

Trains the same swarm of small LSTMs twice in turn: once all members for all epochs, and once with
half of them stopping after a tenth of the epochs. Writes the wall times and their ratio, pair by
pair, to ``compaction.csv`` beside this script. The second run does 55 % of the work of the first.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import jax.numpy as jnp
import numpy as np
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
    task = swarm.supervised(Regressor, lambda p, y: (p - y) ** 2, batch_size=32)
    data, ids = examples(options.members), [f"m{i}" for i in range(options.members)]
    few = max(1, options.epochs // 10)
    limits = {
        "all": np.full(options.members, options.epochs),
        "half stop at a tenth": np.where(np.arange(options.members) % 2, options.epochs, few),
    }

    def train(epochs) -> float:
        hyperparams = {"learning_rate": 1e-3, "weight_decay": 0.0, "clip": 1.0}
        began = time.perf_counter()
        swarm.fit(task, data, ids, seed=0, epochs=epochs, patience=10**6, hyperparams=hyperparams)
        return time.perf_counter() - began

    train(np.full(options.members, 1))  # compile
    rows = []
    for repeat in range(options.repeats):
        seconds = {name: train(limit) for name, limit in limits.items()}
        ratio = seconds["half stop at a tenth"] / seconds["all"]
        rows.append({"repeat": repeat, **seconds, "ratio": ratio})
        print({name: round(value, 3) for name, value in rows[-1].items()}, flush=True)
    table = pd.DataFrame(rows).round(4).assign(
        median_ratio=round(statistics.median(row["ratio"] for row in rows), 4),
        members=options.members, epochs=options.epochs, hidden=HIDDEN, lookback=STEPS,
    )  # fmt: skip
    table.to_csv(options.output, index=False)


def examples(members: int) -> swarm.Supervised:
    random = np.random.default_rng(0)
    x = random.normal(size=(members, EXAMPLES, STEPS, FEATURES)).astype(np.float32)
    y = x.mean((2, 3))[..., None]
    weight = np.ones((members, EXAMPLES), np.float32)
    return swarm.Supervised(x, y, weight, x[:, :32], y[:, :32], weight[:, :32])


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--members", type=int, default=256)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="a try; writes to a temporary folder")
    options = parser.parse_args()
    options.output = Path(__file__).with_suffix(".csv")
    if options.quick:
        options.members, options.epochs, options.repeats = 16, 10, 1
        options.output = Path(tempfile.mkdtemp()) / options.output.name
    return options


if __name__ == "__main__":
    main()
