"""``forecaster compress``."""

from typing import TYPE_CHECKING

import click

from forecaster.cli.shared import bars, home_option, say, show
from forecaster.cli.tables import print_table

if TYPE_CHECKING:
    from forecaster.home import Home

_METHODS = ("float16", "int8", "pruned-50", "pruned-80", "int8-pruned-50", "small")


@click.command()
@click.argument("run", required=False, metavar="[RUN]")
@click.option(
    "--write",
    "method",
    type=click.Choice(_METHODS),
    help="Save the model by this method, as a new run.",
)
@home_option
def compress(*, run: str | None, method: str | None, home: "Home") -> None:
    """Show what a smaller file of a run would save and cost.

    Without RUN, the run is the one that `predict --all` takes.

    Each method stores the weights in less space: in half precision, as bytes (with a scale per
    column), or without the smallest ones. The table shows by how much CRPS then rises on the rows
    that were held back to calibrate, and by how much the bands of the latest forecasts change in
    width. (Training chose the weights that were best on these rows, so on later rows compression
    may cost a little less.) "99th": for 99 % of the series the change is smaller.

    Nothing is changed unless you add --write, which saves a new run; `predict` takes the latest
    run.

    \b
    Examples:
      forecaster compress
      forecaster compress --write int8
    """
    from rich.table import Table

    from forecaster.pipeline import compress_from_home
    from forecaster.storage import recommend

    with bars() as bar:
        comparison, written = compress_from_home(
            home, run, method, bar.counting("Comparing"), on_notice=say
        )
    table = Table("method", "file", "of full size", "CRPS", "CRPS, 99th", "band, 99th")
    for column in table.columns[1:]:
        column.justify = "right"
    for row in comparison.to_dict("records"):
        table.add_row(
            str(row["method"]), f"{row['bytes'] / 1e6:.2f} MB", f"{row['size']:.0%}",
            f"{row['crps'] - 1:+.3%}", f"{row['crps_99'] - 1:+.2%}",
            f"{row['width_99']:.2%}",
        )  # fmt: skip
    print_table(table)
    best = recommend(comparison)
    show(
        f"Worth it: {best} (`forecaster compress {f'{run} ' if run else ''}--write {best}`)"
        if best else
        "No method is worth it. Each one that makes the file a tenth smaller raises the CRPS by "
        "more than 0.1 %, or changes the CRPS or the band of one series in a hundred by more than "
        "1 %."
    )  # fmt: skip
    if written is not None:
        show(f"Saved: {written}")
