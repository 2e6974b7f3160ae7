"""Messages, tables and progress bars of the commands, with names shown as they are."""

import contextlib
import functools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import click

from forecaster import swarm
from forecaster.errors import name_reasons, printable

if TYPE_CHECKING:
    from rich.progress import Progress

_WIDEST = 10_000  # characters


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


def print_table(
    title: str,
    headings: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    numbers: bool = False,
    total: Sequence[str] | None = None,
) -> bool:
    """Print a table; return whether it has rows, without which nothing is printed.

    - ``numbers``: whether all columns after the first are of numbers
    - ``total``: a last row, apart from the others

    On a terminal that is too narrow for it, cells take several lines.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    def plain(text: str) -> Text:
        """Show names and paths as they are: no markup, no control characters."""
        return Text(printable(text, lines=False))

    table = Table(title=plain(title), title_justify="left")
    for number, heading in enumerate(headings):
        right = numbers and number and heading != "forecast by"
        table.add_column(plain(heading), overflow="fold", justify="right" if right else "left")
    for row in rows:
        table.add_row(*map(plain, row))
    if total is not None:
        table.add_section()
        table.add_row(*map(plain, total))
    screen = Console(markup=False, emoji=False, highlight=False)
    if not (screen.is_terminal or os.environ.get("COLUMNS")):  # for programs: a row stays a line
        screen.width = _WIDEST
    if table.row_count:
        screen.print(table)
    return bool(table.row_count)


def show_facts(facts: Mapping[str, str]) -> None:
    """Print facts by name, a line each, which is not cut, so that paths can be copied whole."""
    width = max(map(len, facts)) + 2
    for name, value in facts.items():
        show(f"{name:<{width}}{value}")


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
