"""Time the published stock experiment on this machine: 500 LSTMs, 1,000 epochs.

    python scripts/benchmarks/published_job.py [--epochs 50] [--repeats 3] [--precision bfloat16]
        [--quick]

Hidden 32, lookback 20, one input, 348 training windows in batches of 32, Adam. Trains ``--epochs``
epochs of all models by this program, with and without the compiled kernel, and of a few models by a
pool of PyTorch processes and by a PyTorch loop (on a GPU: by this program and the loop); the times
are scaled to 1,000 epochs of 500 models. Published: 224.51 s on an RTX 2070 Super, 9,560.44 s by a
PyTorch loop. Writes ``published_job.csv`` beside this script. With ``--precision bfloat16`` it
writes ``published_job_bfloat16.csv``, with this program in float32 as another method, and PyTorch
in bfloat16 by autocast.
"""

import argparse
import dataclasses
import tempfile
from pathlib import Path

import pandas as pd

from forecaster.benchmark import Job, available, compare
from forecaster.swarm.recurrence import products_of

# Only whole batches: 11 of 32 windows, which is four windows more than 348.
JOB = Job(hidden=32, lookback=20, batch=32, features=1, windows=352, members=500)
EPOCHS = 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--epochs", type=int, default=50, help="trained; the rest is scaled")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--precision", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--only-ours", action="store_true", help="leave out PyTorch")
    parser.add_argument("--quick", action="store_true", help="a try; writes to a temporary folder")
    options = parser.parse_args()
    folder = Path(__file__).parent
    if options.quick:
        options.epochs, options.repeats, folder = 1, 1, Path(tempfile.mkdtemp())
    job = dataclasses.replace(JOB, epochs=options.epochs, precision=options.precision)
    half, others = options.precision == "bfloat16", ["ours-no-kernel", "torch-pool", "torch"]
    others = [] if options.only_ours else others
    methods, advice = available([*(["ours-float32"] if half else []), *others])
    print(advice or f"{job}: {job.members} networks", flush=True)
    products = products_of(options.precision)
    print(f"Products of ours: {products}", flush=True)
    results = compare(job, methods, options.repeats)
    table = pd.DataFrame([dataclasses.asdict(result) for result in results])
    columns = ["method", "members", "hidden", "lookback", "batch"]
    columns += ["precision"] if half else []
    table = table[[*columns, "seconds_per_model_epoch"]]
    if half:  # the precision that the processor used
        table.loc[table["method"] == "ours", "precision"] = products
    table = table.assign(
        epochs_trained=options.epochs,
        seconds_for_the_job=(table["seconds_per_model_epoch"] * JOB.members * EPOCHS).round(1),
    )
    print(table[["method", "seconds_for_the_job"]].to_string(index=False))
    name = "published_job_bfloat16.csv" if half else "published_job.csv"
    table.round(7).to_csv(folder / name, index=False)


if __name__ == "__main__":
    main()
