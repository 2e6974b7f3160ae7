"""``forecaster status``."""

from collections.abc import Sequence

import click

from forecaster import daily, ingest, storage
from forecaster.cli.printing import print_table
from forecaster.cli.runs import print_runs
from forecaster.cli.shared import PARTLY, home_option, say, show
from forecaster.errors import ModelError, StoreError
from forecaster.files import Home

_SHOWN = 20  # number of series without --all
_MOST_DATES = 60
_DATED = ("copied", "reversed", "unconfirmed", "jump", "ohlc", "closed")  # the rarer flags


@click.command()
@click.argument("tickers", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Show every series.")
@click.option("--verify", is_flag=True, help="Read all files and compare their hashes with the "
              "stored ones.")  # fmt: skip
@home_option
def status(*, home: Home, tickers: tuple[str, ...], everything: bool, verify: bool) -> int:
    """Show stored data, problems in them, trained runs, interrupted fits and daily runs.

    Series with the most problems come first. Flags: copied, reversed and unconfirmed sessions are
    left out of training (--mask); jumps without a split or dividend are for you to judge.

    \b
    Examples:
      forecaster status
      forecaster status AAPL MSFT
      forecaster status --all --verify
    """
    show(f"Home: {home}")
    _print_processor()
    stores = list(ingest.Store.all_of(home, say))
    if not _print_sources(stores):
        show("Nothing stored yet; `forecaster fit` or `forecaster ingest` fetches some.")
    for store in stores:
        _print_store(store, [store.spelled(name) for name in tickers], everything=everything)
    unknown = [name for name in tickers if not any(s.spelled(name) in s for s in stores)]
    for name in unknown:
        say(f"{name}: not stored")
    _print_models(home)
    _print_unfinished(home)
    days = [(day.name, day.state, day.text) for day in daily.last_days(home)]
    print_table("Daily runs", ("daily run", "state", "last"), days)
    damaged = sum(_verify(store) for store in stores) if verify else 0
    return 1 if damaged else PARTLY if unknown else 0


def _print_sources(stores: Sequence["ingest.Store"]) -> bool:
    headings = "source", "series", "rows", "first", "last", "gaps", "flagged", "suspect", "retired"
    rows = list[tuple[str, ...]]()
    for store in stores:
        index, entries = store.index, store.index.series.values()
        gaps = sum(each.get("gaps", 0) for each in index.counts.values())
        flagged = sum(sum(each.values()) for each in index.counts.values()) - gaps
        suspect = sum(entry.state == "suspect" for entry in entries)
        rows.append((
            store.source, str(len(entries)), f"{sum(entry.rows for entry in entries):,}",
            *index.span, str(gaps), f"{flagged:,}", str(suspect), str(len(index.retired)),
        ))  # fmt: skip
    return print_table("Sources", headings, rows)


def _print_store(store: "ingest.Store", tickers: Sequence[str], *, everything: bool) -> None:
    """Print the named series, or those with the most problems, and the files set aside."""
    index, counts = store.index, store.index.counts
    if tickers:
        names = [name for name in tickers if name in store]
    elif everything:
        names = store.ids
    else:  # suspects first, then those with the most flags and gaps
        total = {name: sum(each.values()) for name, each in counts.items()}
        suspect = {name: entry.state == "suspect" for name, entry in index.series.items()}
        names = sorted(suspect, key=lambda name: (not suspect[name], -total.get(name, 0)))[:_SHOWN]
    rows = list[tuple[str, ...]]()
    for name in names:
        entry, its = index.series[name], dict(counts.get(name, {}))
        rows.append((
            name, entry.first, entry.last, f"{entry.rows:,}", str(its.pop("gaps", 0)),
            ", ".join(f"{flag} {its[flag]}" for flag in sorted(its)),
            f"suspect: {entry.reason}" if entry.state == "suspect" else entry.state,
        ))  # fmt: skip
    headings = ("series", "first", "last", "rows", "gaps", "flags", "state")
    if not print_table(f"Series of {store.source}", headings, rows):
        return
    if tickers:
        _print_flags(store, names)
    elif len(names) < len(store.ids):
        show(f"... and {len(store.ids) - len(names)} more; --all shows them")
    for record in index.quarantine:
        where = "file was missing"
        if record.file is not None:
            where = f"set aside as {store.quarantine_folder / record.file}"
        say(f"{record.series}: {where}: {record.reason}")


def _print_flags(store: "ingest.Store", names: Sequence[str]) -> None:
    """Print the flagged rows of some series, date by date."""
    try:
        flags = store.flags()
    except StoreError as error:
        return say(str(error))
    flags = flags[flags["flag"].isin(_DATED) & flags["unique_id"].isin(names)]
    rows = [
        (str(row.unique_id), str(row.ds)[:10], str(row.flag))
        for row in flags.head(_MOST_DATES).itertuples()
    ]
    print_table("Flagged sessions", ("series", "date", "flag"), rows)
    if len(flags) > _MOST_DATES:
        show(f"... and {len(flags) - _MOST_DATES} more")


def _print_models(home: Home) -> None:
    runs, damaged = storage.runs_of(home)
    for run in runs:
        # Weights of shards are checked when they are used.
        if not (run.folder / storage.SHARDS).exists():
            try:
                storage.check_whole(run.folder)
            except ModelError as error:
                damaged[run.folder] = error
    if not print_runs([run for run in runs if run.folder not in damaged], damaged):
        show("No model yet; run `forecaster fit` first.")


def _print_unfinished(home: Home) -> None:
    """Print the fits that are running, and those that can be resumed."""
    fits = storage.unfinished_fits(home)
    rows = [
        (fit.name, fit.what, fit.progress, "running" if fit.running else "interrupted")
        for fit in fits
    ]
    if print_table("Unfinished fits", ("fit", "of", "progress", "state"), rows):
        ways = dict.fromkeys(f"`forecaster {fit.command} --resume NAME`" for fit in fits)
        show(
            f"{' or '.join(ways)} continues an interrupted one, `forecaster fit --discard NAME` "
            "removes it."
        )


def _verify(store: "ingest.Store") -> int:
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
        code = f"by JAX alone, which is slower: {why}{advice}"
    show(f"Training on CPUs: {code}")
    show(f"--precision bfloat16: {products}")
