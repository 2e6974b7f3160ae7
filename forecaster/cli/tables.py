"""Print tables on a terminal of any width; one that does not fit is printed cell below cell."""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from forecaster.cli.shared import show
from forecaster.errors import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

_WITHOUT_A_TERMINAL = 120  # characters; a wider table gets the width it needs
_FOLDED = 60  # characters; on narrower terminals, cells of several lines are hard to read
_FEW_COLUMNS = 3


def console(width: int | None = None) -> "Console":
    """Return a console for tables and lines, as wide as the terminal, or ``width`` characters."""
    from rich.console import Console

    class Plain(Console):
        """Show names and paths as they are: no markup, no control characters."""

        def render_str(self, text: str, **options: Any) -> "Text":
            return super().render_str(printable(text, lines=False), **options)

    plain: Any = {"markup": False, "emoji": False, "highlight": False}
    shown = Plain(width=width, **plain)
    if width is None and not shown.is_terminal and not os.environ.get("COLUMNS"):
        return Plain(width=_WITHOUT_A_TERMINAL, **plain)
    return shown


def print_table(table: "Table", *narrower: "Table") -> None:
    """Print a table; if it is too wide, print the first of ``narrower`` that fits.

    If none fits, print the table's rows below each other, so that nothing is cut: the first cell of
    a row, then a line for each other cell, with its heading.
    """
    screen = console()
    if not (screen.is_terminal or os.environ.get("COLUMNS")):  # for programs: a row stays a line
        return console(max(screen.width, _width(screen, table))).print(table)
    for one in (table, *narrower):
        if _width(screen, one) <= screen.width:
            return screen.print(one)
    _print_stacked(screen, table)


def print_folded(table: "Table") -> None:
    """Print a table whose long cells may take several lines; stacked if it is far too wide."""
    screen = console()
    for column in table.columns:
        column.overflow = "fold"
    if _width(screen, table) > screen.width >= _FOLDED and len(table.columns) <= _FEW_COLUMNS:
        return screen.print(table)
    print_table(table)


def short_source(source: str) -> str:
    """Return a source's name without the folders of its path."""
    kind, sign, path = source.partition(":")
    return f"{kind}:{path.rstrip('/').rpartition('/')[2]}" if sign else source


def _width(screen: "Console", table: "Table") -> int:
    """Return the width that a table needs, however wide the screen is."""
    from rich.measure import Measurement

    return Measurement.get(screen, screen.options.update(max_width=10_000), table).maximum


def show_facts(facts: Mapping[str, str]) -> None:
    """Print facts by name, a line each; a fact too long for the terminal goes below its name.

    Nothing is cut or wrapped, so that paths can be copied whole.
    """
    width = max(map(len, facts)) + 2
    screen = console()
    narrow = screen.is_terminal or bool(os.environ.get("COLUMNS"))
    for name, value in facts.items():
        if narrow and width + len(value) > screen.width:
            show(name)
            show(f"  {value}")
        else:
            show(f"{name:<{width}}{value}")


def _print_stacked(screen: "Console", table: "Table") -> None:
    from rich.padding import Padding
    from rich.text import Text

    if table.title:
        screen.print(Text(str(table.title), style="italic"))
    headings = [printable(column.header, lines=False) for column in table.columns]
    rows = zip(*([str(cell) for cell in column._cells] for column in table.columns), strict=True)
    for first, *others in rows:
        screen.print(Text(printable(first, lines=False), style="bold"))
        for heading, cell in zip(headings[1:], others, strict=True):
            if cell:
                line = f"{heading}: {printable(cell, lines=False)}"
                screen.print(Padding(Text(line, overflow="fold"), (0, 0, 0, 2), expand=False))
