"""Print tables and facts on a terminal of any width, without cutting anything."""

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from forecaster.cli.shared import show
from forecaster.errors import printable

if TYPE_CHECKING:
    from rich.console import Console

_WITHOUT_A_TERMINAL = 120  # characters; a wider table gets the width it needs


def console() -> "Console":
    """Return a console for tables and lines, as wide as the terminal."""
    from rich.console import Console

    screen = Console(markup=False, emoji=False, highlight=False)
    if not _is_limited(screen):
        screen.width = _WITHOUT_A_TERMINAL
    return screen


def _is_limited(screen: "Console") -> bool:
    """Return whether lines may not be longer than the width, as on a terminal."""
    return screen.is_terminal or bool(os.environ.get("COLUMNS"))


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
    from rich.measure import Measurement
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
    screen = console()
    if not _is_limited(screen):  # for programs: a row stays a line
        needed = Measurement.get(screen, screen.options.update(max_width=10_000), table).maximum
        screen.width = max(screen.width, needed)
    if table.row_count:
        screen.print(table)
    return bool(table.row_count)


def show_facts(facts: Mapping[str, str]) -> None:
    """Print facts by name, a line each; a fact too long for the terminal goes below its name.

    Nothing is cut or wrapped, so that paths can be copied whole.
    """
    width = max(map(len, facts)) + 2
    screen = console()
    for name, value in facts.items():
        if _is_limited(screen) and width + len(value) > screen.width:
            show(name)
            show(f"  {value}")
        else:
            show(f"{name:<{width}}{value}")
