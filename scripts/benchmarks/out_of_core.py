"""Train a swarm whose data are larger than the memory that it may use.

    python scripts/benchmarks/out_of_core.py [--members 10000] [--epochs 6] [--memory 1073741824]
        [--quick]

Writes examples of all members to a file larger than the budget. Then trains one small LSTM (hidden
8) per member in a process of its own, which reads members when they are trained. Writes the size of
the data, the budget and the peak memory of that process (resident, everything included) to
``out_of_core.csv``.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

EXAMPLES, STEPS, FEATURES = 192, 30, 5
SHAPE = (EXAMPLES, STEPS, FEATURES)


def main() -> None:
    options = arguments()
    if options.file:
        print(json.dumps(train(options)))
        return
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "inputs.f32"
        with open(file, "wb") as out:
            for member in range(options.members):
                np.random.default_rng(member).normal(size=SHAPE).astype(np.float32).tofile(out)
        size = file.stat().st_size
        command = [sys.executable, __file__, "--file", str(file), "--members", options.members]
        command += ["--epochs", options.epochs, "--memory", options.memory]
        run = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, text=True, check=True)
    row = {
        "members": options.members,
        "epochs": options.epochs,
        "data_bytes": size,
        "budget_bytes": options.memory,
        **json.loads(run.stdout.splitlines()[-1]),
    }
    row["peak_over_budget"] = round(row["peak_bytes"] / options.memory, 3)
    print(row)
    pd.DataFrame([row]).to_csv(options.output, index=False)


def train(options: argparse.Namespace) -> dict[str, float]:
    import resource

    import jax.numpy as jnp
    import optax
    from flax import nnx

    from forecaster import swarm
    from forecaster.swarm import LSTM

    class Regressor(nnx.Module):
        def __init__(self, rngs):
            self.cell = LSTM(FEATURES, 8, rngs=rngs)
            self.out = nnx.Linear(8, 1, rngs=rngs)

        def __call__(self, x):
            return self.out(self.cell(x.swapaxes(0, 1), jnp.ones(x.shape[1::-1]))[-1])

    count = EXAMPLES * STEPS * FEATURES

    def load(rows):
        inputs = np.empty((len(rows), *SHAPE), np.float32)
        for place, row in enumerate(rows):
            inputs[place] = np.fromfile(
                options.file, np.float32, count, offset=4 * row * count
            ).reshape(SHAPE)
        return inputs, inputs.mean((2, 3))[..., None]

    def show(now: swarm.Progress) -> None:
        done = now.epochs_done / now.epochs_at_most
        print(f"\r{now.stopped} of {now.members} done, {done:.0%}", end="", file=sys.stderr)

    ids = [f"m{row}" for row in range(options.members)]
    untrained = swarm.Swarm(Regressor, ids, loss=optax.squared_error, memory=options.memory)
    trained = untrained.fit(swarm.Streamed(load), epochs=options.epochs, on_progress=show)
    losses = trained.losses.train
    return {
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "seconds": round(trained.seconds, 1),
        "first_loss": round(float(losses[:, 0].mean()), 5),
        "last_loss": round(float(losses[:, -1].mean()), 5),
    }


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--members", type=int, default=10_000)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--memory", type=int, default=2**30, help="bytes")
    parser.add_argument("--file", help=argparse.SUPPRESS)
    parser.add_argument("--quick", action="store_true", help="a try; writes to a temporary folder")
    options = parser.parse_args()
    options.output = Path(__file__).with_suffix(".csv")
    if options.quick:
        options.members, options.epochs = 300, 1
        options.output = Path(tempfile.mkdtemp()) / options.output.name
    return options


if __name__ == "__main__":
    main()
