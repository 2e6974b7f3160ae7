"""``forecaster status``."""

import click

from forecaster.cli.shared import PARTLY, console, home_option, say
from forecaster.errors import StoreError

_SHOWN = 20  # series without --all
_MOST_DATES = 60
_DATED = ("copied", "reversed", "unconfirmed", "jump", "ohlc", "closed")  # others come in hundreds


@click.command()
@click.argument("tickers", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Show every series.")
@click.option(
    "--verify", is_flag=True, help="Read all files and check them against what was written."
)
@home_option
@click.pass_context
def status(ctx, home, tickers, everything, verify) -> None:
    """Show what is stored, what is wrong with it, and what was trained.

    Of the series, those with the most to look at come first. Flags: copied, reversed and
    unconfirmed sessions are left out of training (--mask); jumps without a split or dividend are
    for you to judge.

    \b
    Examples:
      forecaster status
      forecaster status AAPL MSFT
      forecaster status --all --verify
    """
    from forecaster.ingest import Store

    click.echo(f"Home: {home}")
    click.echo(f"Recurrence: {_kernel()}")
    stores = list(Store.all_of(home, say))
    if not stores:
        console().print(
            "No prices stored yet; `forecaster fit` or `forecaster ingest` fetches some."
        )
    else:
        console().print(_sources(stores))
    for store in stores:
        _print_series(store, [store.spelled(name) for name in tickers], everything)
    known = {name.upper() for store in stores for name in store.ids}
    unknown = [name for name in tickers if name.upper() not in known]
    for name in unknown:
        say(f"{name}: no prices are stored")
    _print_models(home)
    damaged = _verify(stores) if verify else 0
    ctx.exit(1 if damaged else PARTLY if unknown else 0)


def _sources(stores):
    from rich.table import Table

    table = Table(
        "source", "series", "rows", "first", "last", "gaps", "flagged", "suspect", "set aside",
        title="Prices", title_justify="left",
    )  # fmt: skip
    for store in stores:
        rows = store.manifest["series"].values()
        found = (store.manifest["quality"] or {}).get("series", {}).values()
        table.add_row(
            store.manifest["source"], str(len(rows)), f"{sum(r['rows'] for r in rows):,}",
            min((str(r["first"]) for r in rows), default=""),
            max((str(r["last"]) for r in rows), default=""),
            str(sum(q.get("gaps", 0) for q in found)),
            f"{sum(sum(q.values()) - q.get('gaps', 0) for q in found):,}",
            str(sum(r["state"] != "ok" for r in rows)), str(len(store.manifest["quarantine"])),
        )  # fmt: skip
    return table


def _print_series(store, tickers, everything: bool) -> None:
    """The table of series: those asked for, or those with the most to look at."""
    from rich.table import Table

    quality = (store.manifest["quality"] or {}).get("series", {})
    entries = store.manifest["series"]
    wanted = [name for name in tickers if name in entries] if tickers else list(entries)
    if not everything and not tickers:
        wanted.sort(key=lambda n: (entries[n]["state"] == "ok", -sum(quality.get(n, {}).values())))
        wanted = wanted[:_SHOWN]
    if not wanted:
        return
    table = Table(
        "series", "first", "last", "rows", "gaps", "flags", "state",
        title=f"Series of {store.manifest['source']}", title_justify="left",
    )  # fmt: skip
    for name in wanted:
        entry, found = entries[name], dict(quality.get(name, {}))
        gaps = found.pop("gaps", 0)
        flags = ", ".join(f"{kind} {count}" for kind, count in found.items())
        state = "ok" if entry["state"] == "ok" else f"suspect: {entry['reason']}"
        table.add_row(
            name, str(entry["first"]), str(entry["last"]), f"{entry['rows']:,}", str(gaps), flags,
            state,
        )  # fmt: skip
    console().print(table)
    if tickers:
        _print_flags(store, wanted)
    if len(wanted) < len(entries) and not tickers:
        console().print(f"... and {len(entries) - len(wanted)} more; --all shows them")
    for aside in store.manifest["quarantine"]:
        folder = store.folder / "quarantine"
        place = "was gone" if aside["file"] is None else f"set aside as {folder / aside['file']}"
        say(f"{aside['series']}: {place}: {aside['reason']}")


def _print_flags(store, names: list[str]) -> None:
    """The flagged rows of some series, date by date."""
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
        table.add_row(row.unique_id, str(row.ds)[:10], row.flag)
    console().print(table)
    if len(flags) > _MOST_DATES:
        console().print(f"... and {len(flags) - _MOST_DATES} more")


def _print_models(home) -> None:
    from rich.table import Table

    from forecaster.errors import ModelError
    from forecaster.storage import load, runs

    models = Table("run", "model", "series", "source", "data until", "error / naive",
                   title="Models, the latest last", title_justify="left")  # fmt: skip
    for folder in runs(home):
        try:
            model = load(folder)
        except ModelError as error:
            models.add_row(folder.name, "damaged")
            say(f"{error}")
            continue
        models.add_row(
            folder.name, f"{model.config.column} {model.config.hidden}", str(len(model.ids)),
            model.provenance["source"], model.provenance["last"],
            f"{model.report['mae_relative_to_naive'].median():.4f}",
        )  # fmt: skip
    console().print(models if models.row_count else "No model yet; run `forecaster fit` first.")


def _verify(stores) -> int:
    """Check all files; says which are damaged and returns how many."""
    damaged = 0
    for store in stores:
        found = store.damages()
        for why in found.values():
            say(why)
        damaged += len(found)
        try:
            store.flags()
        except StoreError as error:
            say(str(error))
            damaged += 1
        sound = len(store.ids) - len(found)
        click.echo(f"{store.manifest['source']}: {sound} of {len(store.ids)} files are sound")
    return damaged


def _kernel() -> str:
    """Which code runs the LSTM, and what to do for the faster one."""
    from forecaster.swarm import use_all_cores
    from forecaster.swarm.recurrence import kernel_status

    use_all_cores()
    instructions, why = kernel_status()
    if instructions:
        return f"compiled kernel ({instructions})"
    advice = "; install a C++ compiler, then forecaster again" if "not built" in why else ""
    return f"JAX alone, slower on CPUs: {why}{advice}"
