"""``forecaster status``, ``runs`` and ``prune``: what a home holds, and what it no longer needs."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from forecaster import daily, ingest, pipeline, storage
from forecaster.cli.options import PARTLY, home_option
from forecaster.cli.output import print_table, say, show
from forecaster.errors import DamagedModel, ModelError, StoreError
from forecaster.files import Home, run_name

if TYPE_CHECKING:
    import pandas as pd


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
    if not _print_runs([run for run in runs if run.folder not in damaged], damaged):
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


_FACTS = {
    "start": "--start", "end": "--end", "first": "first row", "last": "last row", "mask": "--mask",
    "seed": "seed", "tuned": "tuned", "data_sha256": "data (hash)",
    "future": "--future", "static": "--static",
}  # fmt: skip
_SETTINGS = {"start": "start from"}
_SHORT = 12  # characters of a hash
_ERROR = "mae_relative_to_naive"
_ERRORS = {_ERROR: "'unchanged'", "mae_relative_to_seasonal_naive": "the season before"}


@click.group(invoke_without_command=True)
@home_option
@click.pass_context
def runs(ctx: click.Context, *, home: Home) -> None:
    """List the runs, and compare, rename and remove them.

    A run is a model saved by `fit`. `predict` takes the latest run on real data that knows the
    tickers, or the one that --run names. Errors are medians over a run's series, over its
    validation span, relative to "unchanged".

    \b
    Examples:
      forecaster runs
      forecaster runs compare tech-weekly tech-daily
      forecaster runs rename 20261121-231732-595-lstm tech-daily
      forecaster runs remove tech-weekly
    """
    if ctx.invoked_subcommand is None:
        _list(home)


@runs.command()
@click.argument("first")
@click.argument("second")
@home_option
def compare(*, first: str, second: str, home: Home) -> None:
    """Show the settings and data in which two runs differ, and their errors.

    \b
    Example:
      forecaster runs compare tech-weekly tech-daily
    """
    pair = [storage.Run.read(home.find_run(name)) for name in (first, second)]
    _print_differences(*pair)
    _print_errors(*pair)


@runs.command()
@click.argument("old")
@click.argument("new")
@home_option
def rename(*, old: str, new: str, home: Home) -> None:
    """Give a run another name; the order of the runs does not change.

    \b
    Example:
      forecaster runs rename 20261121-231732-595-lstm tech-daily
    """
    show(f"{old} is now called {new}: {storage.rename_run(home, old, new)}")


@runs.command()
@click.argument("names", nargs=-1, required=True)
@home_option
def remove(*, names: Sequence[str], home: Home) -> None:
    """Remove runs for good; data and evaluations stay.

    \b
    Example:
      forecaster runs remove tech-weekly
    """
    for name in names:
        home.find_run(name)  # raises before any is removed if one does not exist
    for name in dict.fromkeys(names):
        show(f"Removed {name}: {storage.remove_run(home, name)}")


def _list(home: Home) -> None:
    sound, damaged = storage.runs_of(home)
    if not sound and not damaged:
        return show(f"No run under {home} yet; `forecaster fit` makes one.")
    _print_runs(sound, damaged)
    try:
        taken = storage.choose_run(home).name
    except ModelError as error:
        return say(str(error))
    show(f"`forecaster predict --all` takes {taken}; --run NAME takes another.")


def _print_runs(sound: Sequence["storage.Run"], damaged: Mapping[Path, ModelError]) -> bool:
    """Print a table of runs, and why some cannot be read; return whether there are any."""
    rows: dict[Path, tuple[str, ...]] = {
        run.folder: (
            run.name, run.shown_time[:10], run.source or "unknown", str(len(run.ids)),
            run.provenance.get("last", "unknown"), str(run.config.horizon),
            run.networks + ("" if run.config.encoding == "none" else f", {run.config.encoding}"),
            _median(run.index.report[_ERROR]),
        )
        for run in sound
    }  # fmt: skip
    for folder, why in damaged.items():
        kept = "damaged" if isinstance(why, DamagedModel) else "not readable"
        rows[folder] = run_name(folder), kept, *[""] * 6
    headings = "run", "saved", "source", "series", "until", "steps", "model", "error"
    by_time = [rows[folder] for folder in sorted(rows)]
    for folder, why in damaged.items():
        say(f"{why}; `forecaster runs remove {run_name(folder)}` removes it")
    return print_table("Runs, the latest last", headings, by_time)


def _median(errors: "pd.Series") -> str:
    median = errors.median()
    return f"{median:.4f}" if median == median else ""


def _print_differences(first: "storage.Run", second: "storage.Run") -> None:
    one, other = _facts(first), _facts(second)
    rows = [
        (name, one.get(name, ""), other.get(name, ""))
        for name in one | other
        if one.get(name, "") != other.get(name, "")
    ]
    if not print_table("Settings and data", ("differs", first.name, second.name), rows):
        show(f"{first.name} and {second.name} have the same settings and data.")


def _facts(run: "storage.Run") -> dict[str, str]:
    """Return a run's settings and data, as text."""
    given = {name: _shown(run.provenance.get(name)) for name in _FACTS}
    given["data_sha256"] = given["data_sha256"][:_SHORT]
    facts = {_FACTS[name]: value for name, value in given.items()}
    for name, value in dataclasses.asdict(run.config).items():
        facts[_SETTINGS.get(name, name.replace("_", " "))] = _shown(value)
    facts |= {"known in advance": ", ".join(run.covariates.future)}
    facts |= {"known of each series": ", ".join((*run.covariates.numbers, *run.covariates.words))}
    return {"source": run.source, "series": str(len(run.ids)), **facts}


def _shown(value: object) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return "" if value is None else str(value)


def _print_errors(first: "storage.Run", second: "storage.Run") -> None:
    """Print the errors of two runs over the series that both have."""
    import pandas as pd

    both = first.index.report.index.intersection(second.index.report.index)
    if both.empty:
        return show("They have no series in common, so their errors are not compared.")
    each = [run.index.report.loc[both] for run in (first, second)]
    rows = [(what, *(_median(of[error]) for of in each)) for error, what in _ERRORS.items()]
    print_table(
        f"Validation span, median over the {len(both)} series that both have",
        ("error, relative to", first.name, second.name),
        [row for row in rows if any(row[1:])],
    )  # fmt: skip
    pairs = pd.concat([of[_ERROR] for of in each], axis=1, keys=["first", "second"]).dropna()
    if len(pairs):
        better = int((pairs["first"] < pairs["second"]).sum())
        show(f"{first.name} is better on {better} of the {len(pairs)} series that both have.")
    # Of the same days are the errors of the same rows, held back in the same way.
    spans = [
        (run.config.horizon, run.config.validation, run.provenance.get("data_sha256"),
         run.provenance.get("last"))
        for run in (first, second)
    ]  # fmt: skip
    if spans[0] != spans[1]:
        show(
            "Horizon, held-back rows or data differ, so these errors are of different days; "
            "`forecaster evaluate` compares forecasts of the same days."
        )
