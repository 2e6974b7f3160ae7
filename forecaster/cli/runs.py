"""``forecaster runs``."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from forecaster import storage
from forecaster.cli.printing import print_table
from forecaster.cli.shared import home_option, say, show
from forecaster.errors import DamagedModel, ModelError
from forecaster.files import Home, run_name

if TYPE_CHECKING:
    import pandas as pd

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
    print_runs(sound, damaged)
    try:
        taken = storage.choose_run(home).name
    except ModelError as error:
        return say(str(error))
    show(f"`forecaster predict --all` takes {taken}; --run NAME takes another.")


def print_runs(sound: Sequence["storage.Run"], damaged: Mapping[Path, ModelError]) -> bool:
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
