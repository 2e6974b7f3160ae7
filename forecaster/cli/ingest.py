"""``forecaster ingest``."""

import click

from forecaster.cli.shared import PARTLY, bars, home_option, name_skipped, source_options


@click.command()
@source_options
@home_option
@click.pass_context
def ingest(ctx, home, tickers, source, start, end) -> None:
    """Fetch series and store them, without training.

    \b
    Example:
      forecaster ingest --tickers sp500.txt --start 2010-01-01
    """
    from forecaster.atomic import make_folder
    from forecaster.ingest import ingest as run
    from forecaster.ingest import open_source, read_universe

    wanted = read_universe(tickers) if tickers is not None else None
    opened = open_source(source)
    make_folder(home)
    with bars() as bar:
        arrived = run(home, opened, wanted, start=start, end=end, on_series=bar.fetching)
    click.echo(f"Stored {len(arrived.ids)} series from {opened.name} in {arrived.store.folder}")
    name_skipped(arrived.skipped)
    ctx.exit(PARTLY if arrived.skipped else 0)
