"""Print tables and facts on a terminal of any width, without cutting anything."""

import os
from collections.abc import Iterable, Mapping, Sequence

from forecaster.cli.shared import show
from forecaster.errors import printable

_WIDEST = 10_000  # characters


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
