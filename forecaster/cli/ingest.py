"""``forecaster ingest`` and ``forecaster export``."""

from datetime import datetime
from pathlib import Path
from typing import Any

import click

from forecaster import ingest as room
from forecaster.cli.shared import (
    PARTLY,
    bars,
    home_option,
    name_stale,
    overwrite_option,
    say,
    say_reasons,
    show,
    source_of,
    source_options,
    stored_option,
)
from forecaster.errors import listed, printable
from forecaster.files import FORMATS, Home, make_folder


@click.command()
@source_options
@click.option(
    "--start",
    type=click.DateTime(["%Y-%m-%d"]),
    help="First date to ask Yahoo for; earlier stored dates are kept.  [default: all history]",
)
@click.option(
    "--refresh",
    is_flag=True,
    help="Read everything again, also a file that seems unchanged, and replace the stored rows, "
    "even by fewer.",
)
@click.option(
    "--append",
    is_flag=True,
    help="Add the rows of a file, such as one with only the latest day, to the stored rows.",
)
@click.option(
    "--requests-per-second", type=click.FloatRange(0, min_open=True), default=2.0,
    show_default=True, help="Maximum rate of requests to Yahoo.",
)  # fmt: skip
@click.option(
    "--workers", type=click.IntRange(1, 32), default=4, show_default=True,
    help="Number of simultaneous requests to Yahoo.",
)  # fmt: skip
@home_option
def ingest(
    *,
    home: Home,
    start: datetime | None,
    refresh: bool,
    append: bool,
    requests_per_second: float,
    workers: int,
    **given: Any,
) -> int:
    """Fetch series and store them, without training. A second call fetches only what is missing.

    After an interruption, run the same command again. Yahoo's terms allow personal use only.

    If a file lacks stored rows, or a source a whole series, the stored rows are kept and marked as
    suspect, the series is named, and the exit code is 3. If the file is right, use --append or
    --refresh; if the series is gone for good, `tickers retire`.

    \b
    Examples:
      forecaster ingest --tickers sp500.txt --start 2010-01-01
      forecaster ingest --source files:prices.parquet
      forecaster ingest --source files:today.csv --append
      forecaster ingest --source files:sales.csv --columns id=store,time=day,target=net
      forecaster ingest --source sql:sqlite:///market.db --query "SELECT ticker, date, close FROM p"
    """
    source, wanted, _ = source_of(
        given, append=append, refresh=refresh, requests_per_second=requests_per_second,
        workers=workers,
        on_wait=lambda seconds: say(f"Yahoo refuses requests; continuing in {seconds:.0f} s"),
    )  # fmt: skip
    make_folder(home.folder)
    with bars() as bar:
        arrived = room.ingest(
            home, source, wanted,
            start=start, refresh=refresh or append, on_series=bar.fetching, on_wait=say,
        )  # fmt: skip
    _tell(arrived, source.name)
    return PARTLY if arrived.skipped or arrived.stale else 0


def _tell(arrived: "room.Ingested", source: str) -> None:
    """Print what has arrived, and name the series that have not."""
    for name, why in arrived.quarantined.items():
        again = "fetched again" if name in arrived.ids else "could not be fetched again"
        say(
            f"{printable(name, lines=False)}: {again}; "
            f"the damaged file is in {arrived.store.quarantine_folder}: {why}"
        )
    gone = len(arrived.store.index.retired)
    retired = f", {gone} retired" if gone else ""
    show(
        f"Stored {len(arrived.ids)} series from {source} in {arrived.store.folder}; "
        f"{arrived.changed} changed{retired}"
    )
    if arrived.added:
        show(f"New ({len(arrived.added)}): {', '.join(arrived.added)}")
    name_stale(arrived.stale)
    if arrived.changed:
        _name_unlearned(arrived)
        if found := room.proposed(arrived.store):
            reasons = {name: f"before {one.time}: {one.why}" for name, one in found.items()}
            say_reasons("Warning: prices before a session look unadjusted ({}):", reasons)
            say("  `forecaster adjust` lists and applies the proposals; till then bands are wide.")
    say_reasons("Skipped {}:", arrived.skipped)


def _name_unlearned(arrived: "room.Ingested") -> None:
    """Name the columns beside a target ``y`` that are stored but not learned from.

    Those of one series stand for all. Tables of prices have such columns as a rule and are passed.
    """
    if not arrived.ids:
        return
    channels = arrived.store.channels(arrived.ids[0])
    others = [name for name in channels if name != "y"]
    if "y" in channels and others:
        show(
            f"Kept but not learned from: {listed(others)}. Give what is known in advance, such as "
            "a weather forecast, as a file of its own: `forecaster fit --future FILE`"
        )


@click.command()
@click.argument("tickers", nargs=-1)
@click.option("--output", type=click.Path(path_type=Path), required=True,
              help="The file to write: .csv, .json, .parquet or .xlsx.")  # fmt: skip
@click.option("--format", "form", type=click.Choice(FORMATS),
              help="[default: by the ending of --output]")  # fmt: skip
@stored_option
@click.option("--adjusted", is_flag=True,
              help="Prices after dividends, on the scale of adj_close.")  # fmt: skip
@overwrite_option
@home_option
def export(
    *,
    tickers: tuple[str, ...],
    output: Path,
    home: Home,
    **more: Any,
) -> None:
    """Write stored series, unchanged, as one long table; by default all series.

    \b
    Examples:
      forecaster export --output prices.parquet
      forecaster export AAPL MSFT --output two.csv
    """
    rows = room.export_prices(home, output, tickers or None, **more)
    show(f"Wrote {rows:,} rows to {output}")
