"""``forecaster compress``."""

from pathlib import Path

import click

from forecaster.cli.shared import bars, console, home_option

_METHODS = ("float16", "int8", "pruned-50", "pruned-80", "int8-pruned-50", "small")


@click.command()
@click.argument("run", required=False, metavar="[RUN]")
@click.option("--write", "method", type=click.Choice(_METHODS), help="Save it so, as a new run.")
@home_option
def compress(run, method, home) -> None:
    """What a smaller file of a model would save and cost, by default of the latest.

    Compares weights in half precision, as bytes (a scale per column), and without the smallest, on
    the rows that were held back to calibrate (which also chose the weights: the loss on later ones
    may be a little smaller); "99th": 99 % of series are less affected. Nothing is changed but by
    --write, which adds a run; `predict` takes the latest.

    \b
    Examples:
      forecaster compress
      forecaster compress --write int8
    """
    from rich.table import Table

    from forecaster.pipeline import compress_from_home
    from forecaster.storage import recommend

    folder = None if run is None else (Path(run) if Path(run).is_dir() else home.models / run)
    with bars() as bar:
        found, written = compress_from_home(home, folder, method, bar.counting("Comparing"))
    table = Table("method", "file", "of none", "CRPS", "CRPS, 99th", "band, 99th",
                  "load and predict")  # fmt: skip
    for column in table.columns[1:]:
        column.justify = "right"
    for row in found.to_dict("records"):
        table.add_row(
            str(row["method"]), f"{row['bytes'] / 1e6:.2f} MB", f"{row['size']:.0%}",
            f"{row['crps'] - 1:+.3%}", f"{row['crps_99'] - 1:+.2%}",
            f"{row['width_99']:.2%}",
            f"{row['seconds']:.2f} s ({row['time']:.2f}x)",
        )  # fmt: skip
    console().print(table)
    best = recommend(found)
    click.echo(
        f"Worth it: {best} (`forecaster compress --write {best}`)" if best else
        "Nothing is worth it: what would make the file smaller by a tenth costs more than 0.1 % of "
        "CRPS, 1 % of it or of the band on one series in a hundred, or a tenth of the time."
    )  # fmt: skip
    if written is not None:
        click.echo(f"Saved: {written}")
