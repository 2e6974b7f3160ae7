"""``forecaster ingest``, ``export``, ``adjust`` and ``tickers``: the commands on stored series."""

from datetime import datetime
from pathlib import Path
from typing import Any

import click

from forecaster import ingest as room
from forecaster import record
from forecaster.cli.options import (
    PARTLY,
    home_option,
    overwrite_option,
    refuse,
    source_of,
    source_options,
    stored_option,
)
from forecaster.cli.output import bars, name_stale, say, say_reasons, show
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


@click.command()
@click.argument("tickers", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="All tickers with a proposal.")
@click.option("--undo", is_flag=True, help="Forget the adjustments of these tickers.")  # fmt: skip
@click.option("--dismiss", is_flag=True, help="The moves of these tickers are real: leave the rows "
              "as they are, and propose this no more.")  # fmt: skip
@click.option("--factor", type=float, help="Adjust a ticker by this factor, such as 0.25 for a "
              "split 4 for 1, whether it is proposed or not; with --before.")  # fmt: skip
@click.option("--before", type=click.DateTime(["%Y-%m-%d"]), help="The first day with the new "
              "prices; earlier ones are multiplied by --factor.")  # fmt: skip
@click.option("--volume/--no-volume", default=True, help="With --factor: divide earlier volumes by "
              "it, as of a split.  [default: --volume]")  # fmt: skip
@stored_option
@home_option
def adjust(
    *,
    tickers: tuple[str, ...],
    everything: bool,
    undo: bool,
    dismiss: bool,
    factor: float | None,
    before: datetime | None,
    volume: bool,
    source: str | None,
    home: Home,
) -> None:
    """Adjust stored prices for splits and changes of currency that the source has left out.

    Without tickers, lists proposals and changes nothing. Proposed are moves by an exact ratio, such
    as that of a split, and moves of all tickers by the same amount. Rows that arrive again are
    adjusted again, unless the source has restated them, and `ingest` says so.

    \b
    Examples:
      forecaster adjust
      forecaster adjust AAPL
      forecaster adjust --all
      forecaster adjust AAPL --undo
      forecaster adjust AAPL --dismiss
      forecaster adjust AAPL --factor 0.25 --before 2024-06-10
    """
    chosen, by = everything or bool(tickers), factor is not None
    refuse(
        (everything and tickers, "name tickers, or use --all for every proposal (not both)"),
        (undo and not chosen, "--undo: name tickers, or use --all"),
        (dismiss and not chosen, "--dismiss: name tickers, or use --all"),
        (by and (undo or dismiss), "--factor adjusts; leave out --undo and --dismiss"),
        (by != (before is not None),
         "--factor and --before go together: by how much, and before which day"),
        (by and len(tickers) != 1, "--factor: name one ticker, without --all"),
        (undo and dismiss, "--undo forgets, and --dismiss remembers; leave one of them out"),
    )  # fmt: skip
    if factor is not None and before is not None:
        day, name = before.date(), tickers[0]
        _, made = room.adjust_by(home, name, factor, day, source, split=volume, on_wait=say)
        return _show_adjusted(made)
    if not chosen:
        found = room.proposed(room.find_store(home, source))
        for name, one in found.items():
            show(f"{_said(name, one)}: {one.why}")
        if not found:
            show("Nothing to adjust")
        return
    store, applied = room.adjust(
        home, None if everything else tickers, source, undo=undo, dismiss=dismiss, on_wait=say
    )  # fmt: skip
    if dismiss:
        for name, one in applied.items():
            show(f"{name}: the move of {one.time} is left as it is, and proposed no more")
        return
    _show_adjusted(applied)
    if undo:
        show(
            "Forgotten: the rows are as they were delivered. Where an earlier version adjusted "
            f"them, `forecaster ingest --source {store.source} --refresh` reads the prices again"
        )


def _show_adjusted(applied: "dict[str, room.Proposal]") -> None:
    for name, one in applied.items():
        show(_said(name, one))


def _said(name: str, one: "room.Proposal") -> str:
    volumes = ", volumes divided by it" if one.split else ", volumes as they are"
    return f"{name}: rows before {one.time} times {one.factor:.6g}{volumes}"


@click.group()
@home_option
def tickers(*, home: Home) -> None:
    """Rename stored tickers, retire the ones that get no more rows, and restore them.

    \b
    Examples:
      forecaster tickers rename FB META
      forecaster tickers retire FB GE
      forecaster tickers restore GE --source yahoo
    """


@tickers.command()
@click.argument("names", nargs=-1, required=True)
@stored_option
@home_option
def retire(*, names: tuple[str, ...], source: str | None, home: Home) -> None:
    """Expect no more rows of tickers that were delisted, renamed or given up.

    `ingest` no longer misses them, and `predict --all` leaves them out. Rows and record are kept,
    and `fit` and `evaluate` use them while the source has them. If rows arrive, they are restored.

    \b
    Example:
      forecaster tickers retire FB GE
    """
    store, chosen = room.retire(home, names, source, on_wait=say)
    show(f"Retired {', '.join(chosen)} of {store.source}; {len(store.index.retired)} in all")


@tickers.command()
@click.argument("names", nargs=-1, required=True)
@stored_option
@home_option
def restore(*, names: tuple[str, ...], source: str | None, home: Home) -> None:
    """Expect further rows of retired tickers again, and forecast them.

    \b
    Example:
      forecaster tickers restore GE --source yahoo
    """
    store, chosen = room.retire(home, names, source, retired=False, on_wait=say)
    left = len(store.index.retired)
    show(f"Restored {', '.join(chosen)} of {store.source}; {left} still retired")


@tickers.command()
@click.argument("old")
@click.argument("new")
@stored_option
@home_option
def rename(*, old: str, new: str, source: str | None, home: Home) -> None:
    """Give a ticker another name, with its history, network and record.

    Rows under the old name are put in front of the rows under the new one. Rows that arrive later
    under the old name are another series. If both names have different values on the same days,
    they are two series, and nothing is changed.

    \b
    Example:
      forecaster tickers rename FB META
    """
    store, name = room.rename_ticker(home, old, new, source, on_wait=say)
    files = record.rename_in_record(home, store.source, name, new.strip())
    entry = store.index.series[new.strip()]
    show(
        f"{name} of {store.source} is now called {new.strip()}: {entry.rows:,} rows, {entry.first} "
        f"to {entry.last}; {files} files of the record changed"
    )
