"""``forecaster benchmark``."""

import dataclasses
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from forecaster import benchmark as room
from forecaster.cli.options import overwrite_option, refuse
from forecaster.cli.output import print_table, say
from forecaster.files import check_output

_AGAINST = ("torch-pool", "torch", "vmap", "ours-no-kernel", "ours-float32")


@click.command()
@click.option("--network", type=click.Choice(["lstm", "mlp"]), default="lstm", show_default=True)
@click.option("--hidden", type=click.IntRange(1), default=32, show_default=True)
@click.option("--layers", type=click.IntRange(1), default=1, show_default=True)
@click.option("--lookback", type=click.IntRange(1), default=20, show_default=True)
@click.option("--batch", type=click.IntRange(1), default=32, show_default=True)
@click.option("--features", type=click.IntRange(1), default=1, show_default=True)
@click.option("--windows", type=click.IntRange(1), default=352, show_default=True)
@click.option("--members", type=click.IntRange(1), default=32, show_default=True)
@click.option("--precision", type=click.Choice(["float32", "bfloat16"]), default="float32",
              show_default=True, help="Precision of the LSTMs' matrix products; in PyTorch by "
              "autocast.")  # fmt: skip
@click.option("--epochs", type=click.IntRange(1), default=3, show_default=True)
@click.option("--repeats", type=click.IntRange(1), default=3, show_default=True)
@click.option("--against", type=click.Choice(_AGAINST), multiple=True, help="Compare with a "
              "PyTorch process per core, PyTorch on one thread, a plain vmap, or this program "
              "without its compiled kernel or in float32; may be repeated.  "
              "[default: all]")  # fmt: skip
@click.option("--suite", is_flag=True, help="Time six networks from small to large; takes minutes.")
@click.option("--output", metavar="FILE", type=click.Path(path_type=Path),
              help="Write the results: .csv, .json, .parquet or .xlsx.")  # fmt: skip
@overwrite_option
def benchmark(
    *,
    suite: bool,
    output: Path | None,
    overwrite: bool,
    against: tuple[str, ...],
    repeats: int,
    **sizes: Any,
) -> None:
    """Time the same training by this program, by PyTorch and by a plain vmap, on this machine.

    All methods train LSTMs or MLPs with a linear readout by squared error and Adam, from the same
    initial weights and on the same batches. They take turns; medians of the repeats are shown.

    \b
    Examples:
      forecaster benchmark
      forecaster benchmark --hidden 64 --lookback 60 --batch 64 --features 5 --windows 1024
      forecaster benchmark --suite --output benchmark.csv
    """
    file = output and check_output(output, overwrite=overwrite)
    precision = sizes["precision"]
    refuse(
        (sizes["windows"] < sizes["batch"],
         f"--windows: expected at least one batch, {sizes['batch']} windows; got "
         f"{sizes['windows']}"),
        (precision != "float32" and sizes["network"] != "lstm",
         f"--precision: expected float32 with --network {sizes['network']}; got {precision}"),
    )  # fmt: skip
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # leaves memory to PyTorch
    import pandas as pd

    if precision == "float32":
        against = tuple(name for name in against or _AGAINST if name != "ours-float32")
    methods, advice = room.available(against or _AGAINST)
    if advice:
        say(advice)
    say(_kernel(precision))

    def show(method: str, repeat: int) -> None:
        if sys.stderr.isatty():
            say(f"  {method}, repeat {repeat + 1} of {repeats}")

    results: list[room.Result] = []
    jobs = room.suite() if suite else [room.Job(**sizes)]
    if precision != "float32":  # networks without LSTMs do not change with it
        jobs = [dataclasses.replace(j, precision=precision) for j in jobs if j.network == "lstm"]
    for job in jobs:
        compared = room.compare(job, methods, repeats, on_run=show)
        _print_comparison(job, compared)
        results += compared
    if file is not None:
        table = pd.DataFrame([dataclasses.asdict(result) for result in results])
        file.write_table(table.drop(columns="loss_difference").round(6))
        say(f"Wrote {file.path}")


def _kernel(precision: str) -> str:
    from forecaster.swarm.native import kernel_status
    from forecaster.swarm.recurrence import products_of

    runs, why_not = kernel_status()
    said = f"Recurrence: compiled kernel ({runs})" if runs else f"Recurrence: JAX alone: {why_not}"
    return said if precision == "float32" else f"{said}\nProducts: {products_of(precision)}"


def _print_comparison(job: "room.Job", results: Sequence["room.Result"]) -> None:
    headings = ("method", "ms per network and epoch", "GFLOP/s", "times ours", "loss difference")
    rows = [
        (
            result.method, f"{1e3 * result.seconds_per_model_epoch:.2f}", f"{result.gflops:.1f}",
            f"{result.ratio_to_ours:.2f}", f"{result.loss_difference:.0e}",
        )
        for result in results
    ]  # fmt: skip
    print_table(f"{job}: {job.members} networks", headings, rows)
