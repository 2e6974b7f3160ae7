"""``forecaster status``."""

import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from forecaster.cli.shared import PARTLY, home_option, say, show
from forecaster.cli.tables import console, print_table
from forecaster.errors import ModelError, StoreError

if TYPE_CHECKING:
    from pathlib import Path

    from rich.table import Table

    from forecaster.files import Home
    from forecaster.ingest import Store

_SHOWN = 20  # number of series without --all
_MOST_DATES = 60
_DATED = ("copied", "reversed", "unconfirmed", "jump", "ohlc", "closed")  # the rarer flags


@click.command()
@click.argument("tickers", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Show every series.")
@click.option(
    "--verify", is_flag=True, help="Read all files and compare their hashes with the stored ones."
)
@home_option
@click.pass_context
def status(
    ctx: click.Context, *, home: "Home", tickers: tuple[str, ...], everything: bool, verify: bool
) -> None:
    """Show stored data, problems in them, trained runs, interrupted fits and daily runs.

    Series with the most problems come first. Flags: copied, reversed and unconfirmed sessions are
    left out of training (--mask); jumps without a split or dividend are for you to judge.

    \b
    Examples:
      forecaster status
      forecaster status AAPL MSFT
      forecaster status --all --verify
    """
    from forecaster.ingest import Store

    show(f"Home: {home}")
    _print_processor()
    stores = list(Store.all_of(home, say))
    if stores:
        print_table(_sources_table(stores))
    else:
        console().print("Nothing stored yet; `forecaster fit` or `forecaster ingest` fetches some.")
    for store in stores:
        _print_store(store, [store.spelled(name) for name in tickers], everything=everything)
    unknown = [name for name in tickers if not any(s.spelled(name) in s for s in stores)]
    for name in unknown:
        say(f"{name}: not stored")
    _print_models(home)
    _print_unfinished(home)
    _print_daily(home)
    damaged = sum(_verify(store) for store in stores) if verify else 0
    ctx.exit(1 if damaged else PARTLY if unknown else 0)


def _sources_table(stores: Sequence["Store"]) -> "Table":
    from rich.table import Table

    table = Table(
        "source", "series", "rows", "first", "last", "gaps", "flagged", "suspect", "retired",
        "set aside", title="Sources", title_justify="left",
    )  # fmt: skip
    for store in stores:
        index = store.index
        table.add_row(
            store.source, str(len(index.series)), f"{index.rows:,}", index.first, index.last,
            str(index.gaps), f"{index.flagged:,}", str(index.suspects), str(len(index.retired)),
            str(len(index.quarantine)),
        )  # fmt: skip
    return table


def _print_store(store: "Store", tickers: Sequence[str], *, everything: bool) -> None:
    """Print the named series, or those with the most problems, and the files set aside."""
    names = _choose_series(store, tickers, everything=everything)
    if not names:
        return
    print_table(_series_table(store, names))
    if tickers:
        _print_flags(store, names)
    elif len(names) < len(store.ids):
        console().print(f"... and {len(store.ids) - len(names)} more; --all shows them")
    for record in store.index.quarantine:
        where = "file was missing"
        if record.file is not None:
            where = f"set aside as {store.quarantine_folder / record.file}"
        say(f"{record.series}: {where}: {record.reason}")


def _choose_series(store: "Store", tickers: Sequence[str], *, everything: bool) -> list[str]:
    if tickers:
        return [name for name in tickers if name in store]
    return store.ids if everything else store.index.by_urgency()[:_SHOWN]


def _series_table(store: "Store", names: Sequence[str]) -> "Table":
    from rich.table import Table

    table = Table("series", "first", "last", "rows", "gaps", "flags", "state",
                  title=f"Series of {store.source}", title_justify="left")  # fmt: skip
    index = store.index
    for name in names:
        entry = index.series[name]
        flags = ", ".join(f"{flag} {count}" for flag, count in index.flags_of(name).items())
        state = f"suspect: {entry.reason}" if entry.suspect else entry.state
        table.add_row(name, entry.first, entry.last, f"{entry.rows:,}", str(index.gaps_of(name)),
                      flags, state)  # fmt: skip
    return table


def _print_flags(store: "Store", names: Sequence[str]) -> None:
    """Print the flagged rows of some series, date by date."""
    from rich.table import Table

    try:
        flags = store.flags()
    except StoreError as error:
        return say(str(error))
    flags = flags[flags["flag"].isin(_DATED) & flags["unique_id"].isin(names)]
    if flags.empty:
        return
    table = Table("series", "date", "flag", title="Flagged sessions", title_justify="left")
    for row in flags.head(_MOST_DATES).itertuples():
        table.add_row(str(row.unique_id), str(row.ds)[:10], str(row.flag))
    print_table(table)
    if len(flags) > _MOST_DATES:
        console().print(f"... and {len(flags) - _MOST_DATES} more")


def _print_models(home: "Home") -> None:
    from rich.table import Table

    table = Table("run", "model", "series", "source", "data until", "error / naive",
                  title="Models, the latest last", title_justify="left")  # fmt: skip
    for run in home.runs():
        table.add_row(*_describe_run(run))
    if table.row_count:
        print_table(table)
    else:
        show("No model yet; run `forecaster fit` first.")


def _print_unfinished(home: "Home") -> None:
    """Print the fits that are running, and those that can be resumed."""
    from rich.table import Table

    from forecaster.storage import unfinished_fits

    table = Table("fit", "of", "progress", "state", title="Unfinished fits", title_justify="left")
    commands: dict[str, str] = {}
    for fit in unfinished_fits(home):
        commands[fit.command] = f"`forecaster {fit.command} --resume NAME`"
        state = "running" if fit.running else "interrupted"
        table.add_row(fit.name, fit.what, fit.progress, state)
    if table.row_count:
        print_table(table)
        console().print(
            f"{' or '.join(commands.values())} continues an interrupted one, `forecaster fit "
            "--discard NAME` removes it."
        )


def _print_daily(home: "Home") -> None:
    """Print how the last daily runs ended."""
    from rich.table import Table

    from forecaster.daily import last_days

    table = Table("daily run", "state", "last", title="Daily runs", title_justify="left")
    for day in last_days(home):
        table.add_row(day.name, day.state, day.text)
    if table.row_count:
        print_table(table)


def _describe_run(folder: "Path") -> list[str]:
    """Return the cells of a run's row; if the run is damaged, print why."""
    from forecaster.files import run_name
    from forecaster.storage import SHARDS, Run, check_whole

    try:
        run = Run.read(folder)
        if not (folder / SHARDS).exists():  # weights of shards are checked when they are used
            check_whole(folder)
    except ModelError as error:
        say(str(error))
        return [run_name(folder), "damaged", "", "", "", ""]
    errors = [error for error in run.error if error is not None]
    return [
        run_name(folder), run.networks, str(len(run.ids)),
        # A model saved by `fc.save` has no source.
        run.source or "unknown", run.provenance.get("last", "unknown"),
        f"{statistics.median(errors):.4f}" if errors else "nan",
    ]  # fmt: skip


def _verify(store: "Store") -> int:
    """Check all files of a store; print the damaged ones and return their number."""
    damages = store.damages()
    for why in damages.values():
        say(why)
    damaged = len(damages)
    try:
        store.flags()
    except StoreError as error:
        say(str(error))
        damaged += 1
    sound = len(store.ids) - len(damages)
    show(f"{store.source}: {sound} of {len(store.ids)} files are sound")
    return damaged


def _print_processor() -> None:
    """Print which code trains LSTMs and GRUs, and how bfloat16 is computed."""
    from forecaster.swarm.recurrence import processor_status

    (instructions, why), products = processor_status()
    if instructions:
        code = f"by code compiled for this processor ({instructions})"
    else:
        advice = "; install a C++ compiler, then forecaster again" if "not built" in why else ""
        code = f"by JAX alone, which is slower on CPUs: {why}{advice}"
    show(f"Training: {code}")
    show(f"--precision bfloat16: {products}")
