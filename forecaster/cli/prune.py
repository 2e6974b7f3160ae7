"""``forecaster prune``."""

import click

from forecaster import daily, pipeline
from forecaster.cli.shared import home_option, show
from forecaster.files import Home


@click.command()
@click.option("--runs", type=click.IntRange(1), default=5, show_default=True, metavar="N",
              help="Latest runs to keep of each source, beside those with a name.")  # fmt: skip
@click.option("--days", type=click.FloatRange(0), default=30.0, show_default=True, metavar="N",
              help="Keep compiled programs and stores that were used since.")  # fmt: skip
@click.option("--yes", is_flag=True, help="Remove it; without this option it is only listed.")
@home_option
def prune(*, runs: int, days: float, yes: bool, home: Home) -> None:
    """List what a home no longer needs, and remove it with --yes.

    Removes older runs without a name, compiled programs that are no longer used, and price stores
    that belong to no run and no recorded forecast. Keeps runs that the latest daily runs used,
    unfinished fits, the record, and what a process is using.

    \b
    Examples:
      forecaster prune
      forecaster prune --runs 2 --yes
    """
    used = [day.run for day in daily.last_days(home)]
    found = pipeline.find_unneeded(home, runs=runs, days=days, used=used)
    if not found:
        return show(f"Nothing to remove under {home}")
    if yes:
        return pipeline.prune(home, found, on_removed=lambda one: show(f"Done: {_line(one)}"))
    for one in found:
        show(_line(one))
    show("Nothing has been removed; `forecaster prune --yes` does so")


def _line(one: "pipeline.Unneeded") -> str:
    return f"{one.what} ({one.bytes / 1e6:.2f} MB): {one.why}"
