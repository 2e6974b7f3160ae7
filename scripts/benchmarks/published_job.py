"""How long the published stock experiment takes here: 500 LSTMs, 1,000 epochs.

    python scripts/benchmarks/published_job.py [--epochs 50] [--repeats 3]

Hidden 32, lookback 20, one input, 348 training windows in batches of 32, Adam. So many epochs are
trained, by ours with and without the compiled kernel, and a few of the models by a pool of
PyTorch processes and by a PyTorch loop (on a GPU: by ours and the loop); their times are scaled to
1,000 epochs of 500 models. Published: 224.51 s on an RTX 2070 Super, 9,560.44 s by a PyTorch loop.
Writes ``published_job.csv`` beside this script.
"""

import argparse
import dataclasses
from pathlib import Path

import pandas as pd

from forecaster.benchmark import Job, available, compare

# Batches are whole: 11 of 32, four windows more than 348.
JOB = Job(hidden=32, lookback=20, batch=32, features=1, windows=352, members=500)
EPOCHS = 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--epochs", type=int, default=50, help="trained; the rest is scaled")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    job = dataclasses.replace(JOB, epochs=options.epochs)
    methods, advice = available(["ours-no-kernel", "torch-pool", "torch"])
    print(advice or f"{job}: {job.members} networks", flush=True)
    results = compare(job, methods, options.repeats)
    table = pd.DataFrame([dataclasses.asdict(result) for result in results])
    table = table[["method", "members", "hidden", "lookback", "batch", "seconds_per_model_epoch"]]
    table = table.assign(
        epochs_trained=options.epochs,
        seconds_for_the_job=(table["seconds_per_model_epoch"] * JOB.members * EPOCHS).round(1),
    )
    print(table[["method", "seconds_for_the_job"]].to_string(index=False))
    table.round(7).to_csv(Path(__file__).with_suffix(".csv"), index=False)


if __name__ == "__main__":
    main()
