"""Options and output that commands share."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import Console

PARTLY = 3
INTERRUPTED = 130


def home_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """``--home``, handed over as a Path."""
    return click.option(
        "--home",
        envvar="FORECASTER_HOME",
        callback=lambda ctx, option, value: _home(value),
        help="Folder for prices and models.  "
        "[env var: FORECASTER_HOME; default: the user's data folder]",
    )(command)


def source_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """``--tickers``, ``--source``, ``--start`` and ``--end``."""
    date = click.DateTime(["%Y-%m-%d"])
    for option in (
        click.option("--end", type=date, help="Last date, YYYY-MM-DD."),
        click.option("--start", type=date, help="First date, YYYY-MM-DD."),
        click.option(
            "--source",
            default="yahoo",
            show_default=True,
            help="yahoo, simulated, or files:PATH (a CSV, a Parquet file or a folder of them).",
        ),
        click.option(
            "--tickers",
            metavar="FILE",
            help="Ticker file, one a line; sp500.txt and dow30.txt come along.  "
            "[default: every series of the source]",
        ),
    ):
        command = option(command)
    return command


def _home(value: str | None) -> Path:
    if value:
        return Path(value).expanduser()
    import platformdirs

    return Path(platformdirs.user_data_dir("forecaster", appauthor=False))


def say(message: str) -> None:
    """Print to standard error, where results are not."""
    click.echo(message, err=True)


def name_skipped(skipped: Mapping[str, str]) -> None:
    """Name every series that was left out, with its reason."""
    if skipped:
        say(f"Skipped {len(skipped)}:")
        for name, reason in skipped.items():
            say(f"  {name}: {reason}")


def console() -> "Console":
    """Where tables are printed; wide enough not to cut them when it is no terminal."""
    from rich.console import Console

    found = Console()
    return found if found.is_terminal else Console(width=120)


@contextlib.contextmanager
def series_progress(label: str) -> Iterator[Callable[[int, int], None]]:
    """A bar over series, on a terminal only."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    with Progress(
        "{task.description}", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(),
        console=_terminal(), transient=True,
    ) as bar:  # fmt: skip
        task = bar.add_task(label, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@contextlib.contextmanager
def training_progress() -> Iterator[Callable[[Any], None]]:
    """A bar over series that have stopped, with epochs, loss quantiles and the time left."""
    import numpy as np
    from rich.progress import BarColumn, MofNCompleteColumn, Progress

    with Progress(
        "Training", BarColumn(), MofNCompleteColumn(), "{task.fields[note]}",
        console=_terminal(), transient=True,
    ) as bar:  # fmt: skip
        task = bar.add_task("", total=None, note="compiling")

        def show(now: Any) -> None:
            losses = now.validation_loss[np.isfinite(now.validation_loss)]
            if not len(losses):
                return
            low, middle, high = np.quantile(losses, [0.1, 0.5, 0.9])
            left = now.seconds * (now.epochs_at_most / max(1, now.epochs_done) - 1)
            note = (
                f"epoch {now.epochs_done / now.members:.0f}, validation loss {middle:.3f} "
                f"({low:.3f} to {high:.3f}), at most {left:.0f} s left"
            )
            bar.update(task, completed=now.stopped, total=now.members, note=note)

        yield show


def _terminal() -> "Console":
    """Standard error when it is a terminal; otherwise nothing is drawn."""
    from rich.console import Console

    found = Console(stderr=True)
    found.quiet = not found.is_terminal
    return found
