"""Measure when it is worthwhile for two devices to share each batch of one network.

    python scripts/benchmarks/data_parallel.py [--models lstm perceptron]
        [--hidden 32 256 1024] [--seconds 0.3] [--repeats 5] [--output FILE] [--quick]

One LSTM (two steps of 4 features) and one perceptron (64 features, two hidden layers) of 32, 256
and 1,024 units, with batches of 256 and 4,096 examples, on two devices of the CPU with one thread
each. A training step is timed in turns:

- ``one``: one network on one device
- ``shared``: the same network, with both devices sharing its batch, ``data_parallel=2``
- ``apart``: two networks, each on its own device with its own batch: twice the work with nothing to
  sum, as in lanes. If both cores are free, this takes the same time as ``one``

``efficiency`` is the work per second of ``shared`` divided by that of ``apart``: 1.0 means that the
split costs nothing. Both use the same cores, so the ratio is also valid on a busy machine. There
``speedup``, the time of ``one`` divided by that of ``shared``, says little. Steps of more than a
second are measured once, other steps are repeated for ``--seconds``. Writes each repeat and the
medians to ``data_parallel.csv`` beside this script; takes some four minutes on two cores.
"""

import argparse
import functools
import itertools
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

STEPS, FEATURES, INPUTS = 2, 4, 64
HIDDEN, BATCHES = (32, 256, 1024), (256, 4096)
MOST_EPOCHS = 1000  # maximum number of epochs in a block
SIDES = {  # number of networks, and the devices they use
    "one": (1, {"lanes": 1}),
    "shared": (1, {"lanes": 1, "data_parallel": 2}),
    "apart": (2, {"lanes": 2}),
}


def main() -> None:
    options = arguments()
    flags = "--xla_cpu_multi_thread_eigen=false --xla_force_host_platform_device_count=2"
    os.environ["XLA_FLAGS"] = flags  # before JAX starts
    rows = []
    for model in options.models:
        for hidden, batch in itertools.product(options.hidden, BATCHES):
            rows += measure({"model": model, "hidden": hidden, "batch": batch}, options)
            pd.DataFrame(rows).to_csv(options.output, index=False)


def measure(case: dict, options: argparse.Namespace) -> list[dict]:
    """Return milliseconds per step of each side, in turns, with efficiency and speedup."""
    step = stepper(**case)
    for side in SIDES:  # compile
        step(side, 1)
    epochs = 1
    while (seconds := step("one", epochs)) * epochs < options.seconds and epochs < MOST_EPOCHS:
        epochs *= 4
    repeats = options.repeats if seconds < 1 else 1
    timed = pd.DataFrame(
        [{side: 1e3 * step(side, epochs) for side in SIDES} for _ in range(repeats)]
    )
    timed["efficiency"] = timed["apart"] / 2 / timed["shared"]
    timed["speedup"] = timed["one"] / timed["shared"]
    medians = timed.median().add_prefix("median_").round(3).to_dict()
    print({**case, **medians}, flush=True)
    return [
        {**case, "repeat": repeat, **row.round(3).to_dict(), **medians}
        for repeat, row in timed.iterrows()
    ]


def stepper(model: str, hidden: int, batch: int):
    """Return ``step(side, epochs)``: the mean seconds of a step over ``epochs`` one-step epochs."""
    from forecaster import swarm

    shape = (batch, STEPS, FEATURES) if model == "lstm" else (batch, INPUTS)
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    y = x.reshape(batch, -1).mean(1)[:, None]
    data = swarm.Shared(swarm.Supervised(x, y, np.ones(batch, np.float32)))
    task = swarm.supervised(
        functools.partial(BUILD[model], hidden), lambda p, y: (p - y) ** 2,
        batch_size=batch, validated=False,
    )  # fmt: skip
    settings = {"learning_rate": 1e-3, "weight_decay": 0.0, "clip": 1.0}

    def step(side: str, epochs: int) -> float:
        networks, machine = SIDES[side]
        ended = {}
        swarm.fit(
            task, data, [f"network {n}" for n in range(networks)], seed=0, epochs=2 * epochs,
            block=epochs, chunk=1, hyperparams=settings, **machine,
            on_progress=lambda now: ended.update({now.epochs_done: time.perf_counter()}),
        )  # fmt: skip
        # Only the second block counts; it does not contain the start of the fit.
        return (ended[2 * networks * epochs] - ended[networks * epochs]) / epochs

    return step


def lstm(hidden: int, rngs):
    """Build one LSTM layer with a readout of its last state."""
    from flax import nnx

    from forecaster.swarm import LSTM

    class Network(nnx.Module):
        def __init__(self):
            self.cell = LSTM(FEATURES, hidden, rngs=rngs)
            self.out = nnx.Linear(hidden, 1, rngs=rngs)

        def __call__(self, x):
            return self.out(self.cell(x.swapaxes(0, 1), last_only=True))

    return Network()


def perceptron(hidden: int, rngs):
    """Build a perceptron with two hidden layers."""
    from flax import nnx

    return nnx.Sequential(
        nnx.Linear(INPUTS, hidden, rngs=rngs), nnx.relu,
        nnx.Linear(hidden, hidden, rngs=rngs), nnx.relu, nnx.Linear(hidden, 1, rngs=rngs),
    )  # fmt: skip


BUILD = {"lstm": lstm, "perceptron": perceptron}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--models", nargs="+", choices=list(BUILD), default=list(BUILD))
    parser.add_argument("--hidden", nargs="+", type=int, default=list(HIDDEN))
    parser.add_argument("--seconds", type=float, default=0.3)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--output", type=Path, default=Path(__file__).with_suffix(".csv"))
    parser.add_argument("--quick", action="store_true", help="a try; writes to a temporary folder")
    options = parser.parse_args()
    if options.quick:
        options.models, options.hidden, options.seconds, options.repeats = (
            ["perceptron"],
            [32],
            0.01,
            1,
        )
        options.output = Path(tempfile.mkdtemp()) / options.output.name
    return options


if __name__ == "__main__":
    main()
