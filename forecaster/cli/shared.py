"""Options and output that commands share."""

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from forecaster import ingest, swarm
from forecaster.errors import UsageError, name_reasons, printable
from forecaster.files import Home, as_home, from_text

if TYPE_CHECKING:
    from rich.progress import Progress

PARTLY = 3


def home_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--home``, passed on as a Home; a subcommand also takes the ``--home`` of its group."""
    return click.option(
        "--home",
        envvar="FORECASTER_HOME",
        callback=_home,
        help="Folder for data and models.  "
        "[env var: FORECASTER_HOME; default: the user's data folder]",
    )(command)


stored_option = click.option("--source", help="Name of the stored source.  [default: the only one]")
overwrite_option = click.option(
    "--overwrite",
    is_flag=True,
    help="Replace existing files; without this option they are an error.",
)


def added(*options: Callable[..., Any]) -> Callable[..., Any]:
    """Return options as one decorator of a command, in the order of its help."""
    return lambda command: functools.reduce(lambda made, one: one(made), options[::-1], command)


reading_options = added(
    click.option("--decimal", type=click.Choice([".", ","]), help="Decimal sign in CSV files.  "
                 "[default: inferred from each file's numbers]"),
    click.option("--columns", multiple=True, metavar="ROLES", help="Roles of columns in files: "
                 "id=store,time=day,target=sales, or wide if each column is a series. "
                 "id=store+item joins columns, time=day+hour a date and its hour."),
    click.option("--date-format", metavar="FORMAT", help="Format of dates in files, such as "
                 "%d/%m/%Y; s, ms, us or ns for numbers since 1970; excel for days of a "
                 "spreadsheet; steps for counts of steps; utc for times with an offset, read in "
                 "UTC.  [default: ISO 8601]"),
    click.option("--missing", metavar="MARKS", help="Marks of missing values in files, "
                 "separated by commas: n/a?,-99. A row with one in place of its date is left out."),
)  # fmt: skip
"""The options on how files are read."""
_file = click.Path(path_type=Path)
source_options = added(
    click.option("--tickers", metavar="FILE|LIST", help="Tickers separated by commas, or a file "
                 "with one a line; sp500.txt and dow30.txt are included. Or a file of members over "
                 "time: ticker,start,end.  [default: every series of the source]"),
    click.option("--source", default="yahoo", show_default=True, help="yahoo, simulated, "
                 "files:PATH (a CSV, a Parquet file or a folder of them), files:URL (the same at "
                 "s3://, gs:// or https://), or sql:URL (a PostgreSQL, SQLite or DuckDB database). "
                 "${NAME} in a URL is taken from the environment."),
    click.option("--query", metavar="SQL", help="For a database: one SELECT, or the name of "
                 "a table."),
    reading_options,
    click.option("--frequency", metavar="OFFSET", help="Frequency of rows in files, by a name of "
                 "pandas' offsets: D, B, W-MON, MS, QE-DEC, h, 15min. Rows that do not fit are "
                 "named.  [default: inferred]"),
)  # fmt: skip
"""The options on the source, and on how it is read."""
covariate_options = added(
    click.option("--static", type=_file, metavar="FILE", help="Facts about each series: rows "
                 "unique_id,... with numbers or words, such as a sector."),
    click.option("--future", type=_file, metavar="FILE", help="Numbers known in advance, up to the "
                 "horizon: rows unique_id,ds,... (or ds,... for all series); or a list of events, "
                 "such as earnings: rows ticker,date."),
)  # fmt: skip
"""``--future`` and ``--static``, for :func:`covariates_of`."""


def covariates_of(given: Mapping[str, Any]) -> "ingest.CovariateFiles":
    """Return the files of ``--future`` and ``--static``, and how other options read them."""
    if given["future"] is None and given["static"] is None:
        return ingest.CovariateFiles()
    return ingest.CovariateFiles.of(given["future"], given["static"], columns_of(given))


READING = ("decimal", "columns", "date_format", "missing", "frequency")
"""The options on how files are read, by the names of their values."""


def columns_of(given: Mapping[str, Any]) -> "ingest.Columns":
    """Return the values of the options on how files are read, checked."""
    values: Any = {name: given.get(name) for name in READING if name != "columns"}
    return ingest.Columns.of(ingest.parse_columns(given["columns"]) | values)


def source_of(
    given: Mapping[str, Any], **more: Any
) -> "tuple[ingest.Source, list[str] | None, ingest.Membership | None]":
    """Open the source that options name; return it, the tickers, and the times of membership.

    ``more``: further arguments of :func:`forecaster.ingest.open_source`
    """
    source = ingest.open_source(
        given["source"], query=given["query"], columns=columns_of(given), **more
    )
    return source, *read_tickers(given["tickers"], source)


def read_tickers(
    path: str | None, source: "ingest.Source | None" = None
) -> "tuple[list[str] | None, ingest.Membership | None]":
    """Return the tickers of a file or list, and the times of membership if the file has them.

    ``source``: has their series. Raises UsageError if one may be any of several of its series.
    """
    if path is None:
        return None, None
    membership = None
    if (tickers := ingest.listed_tickers(path)) is None:
        membership = ingest.read_membership(path)
        tickers = ingest.read_universe(path) if membership is None else membership.tickers
    if source is not None:
        ingest.refuse_alike(source, tickers)
    return tickers, membership


def groups_option(use: str) -> Callable[..., Any]:
    """Return ``--groups``, passed on as Groups; ``use``: of the groups, in its help."""
    return click.option(
        "--groups", metavar="FILE.csv", type=lambda path: ingest.read_groups(from_text(path)),
        help=f"Groups {use}, such as sectors: a CSV with the columns ticker and group.",
    )  # fmt: skip


def _home(ctx: click.Context, option: click.Parameter, value: str | None) -> Home:
    """Return the home that is named; a name after a subcommand counts before that of its group."""
    of_group = None if ctx.parent is None else ctx.parent.params.get("home")
    return as_home(value) if was_given(ctx, "home") or of_group is None else of_group


def was_given(ctx: click.Context, name: str) -> bool:
    """Return whether an option was given on the command line."""
    return ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE


def refuse(*rules: tuple[object, str]) -> None:
    """Raise UsageError for the first rule that is broken: whether it is, and the message."""
    for broken, message in rules:
        if broken:
            raise UsageError(message)


def say(message: str) -> None:
    """Print a message, not a result, to standard error."""
    click.echo(printable(message), err=True)


def show(message: str) -> None:
    """Print a result in words to standard output."""
    click.echo(printable(message))


def say_reasons(heading: str, reasons: Mapping[str, object]) -> None:
    """Print series with their reasons to standard error, if there are any.

    ``heading``: before them; {} stands for their number
    """
    if reasons:
        say(f"{heading.format(len(reasons))}\n{name_reasons(reasons)}")


def name_stale(stale: Mapping[str, object]) -> None:
    """Print the series that could not be updated."""
    say_reasons("Not updated ({}); their stored rows are kept:", stale)


class Bars:
    """A progress bar on a terminal: first for series that arrive, then for networks that train."""

    def __init__(self, bar: "Progress"):
        self._bar = bar
        self._task = bar.add_task("", total=None, visible=False, note="")
        self._label = self._shard = ""

    def sharding(self, done: int, total: int) -> None:
        """Name the shard that the next bars belong to, after ``done`` finished ones."""
        self._shard = f", shard {done + 1} of {total}"

    def fetching(self, done: int, total: int) -> None:
        """Show the number of series that have arrived or failed."""
        self._show("Fetching", done, total)

    def counting(self, label: str) -> Callable[[int, int], None]:
        """Return a callback ``(done, total)`` that shows a bar with this label."""
        return functools.partial(self._show, label)

    def training(self, now: "swarm.Progress") -> None:
        """Show the progress of training; at first, that programs are being compiled."""
        import numpy as np

        if now.compiling:
            return self._show(f"Compiling{self._shard}", now.stopped, now.members, now.stage)

        losses = now.validation_loss[np.isfinite(now.validation_loss)]
        low, middle, high = np.quantile(losses, [0.1, 0.5, 0.9]) if len(losses) else [np.nan] * 3
        left = now.seconds * (now.epochs_at_most / max(1, now.epochs_done) - 1)
        reached = f"of {now.stage}" if now.stage else f"epoch {now.epochs_done / now.members:.0f}"
        note = (
            f"stopped, {reached}, validation loss {middle:.3f} "
            f"({low:.3f} to {high:.3f}), at most {left:.0f} s left"
        )
        label = "Tuning" if now.stage else "Training"
        self._show(f"{label}{self._shard}", now.stopped, now.members, note)

    def _show(self, label: str, done: int, total: int, note: str = "") -> None:
        if label != self._label:
            self._bar.reset(self._task, description=label, visible=True)
            self._label = label
        self._bar.update(self._task, completed=done, total=total, note=note)


@contextlib.contextmanager
def bars() -> Iterator[Bars]:
    """Yield progress bars on standard error, removed at the end; without a terminal, no bars."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn

    columns = (
        "{task.description}", BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
        "{task.fields[note]}",
    )  # fmt: skip
    terminal = Console(stderr=True)
    terminal.quiet = not terminal.is_terminal
    with Progress(*columns, console=terminal, transient=True) as bar:
        yield Bars(bar)
