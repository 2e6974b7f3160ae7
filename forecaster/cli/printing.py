"""Print tables and facts on a terminal of any width, without cutting anything."""

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from forecaster.cli.shared import show
from forecaster.errors import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

_WITHOUT_A_TERMINAL = 120  # characters; a wider table gets the width it needs


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

    table = Table(title=title, title_justify="left")
    for number, heading in enumerate(headings):
        right = numbers and number and heading != "forecast by"
        table.add_column(heading, overflow="fold", justify="right" if right else "left")
    for row in rows:
        table.add_row(*row)
    if total is not None:
        table.add_section()
        table.add_row(*total)
    screen = console()
    if not (screen.is_terminal or os.environ.get("COLUMNS")):  # for programs: a row stays a line
        needed = Measurement.get(screen, screen.options.update(max_width=10_000), table).maximum
        screen = console(max(screen.width, needed))
    if table.row_count:
        screen.print(table)
    return bool(table.row_count)


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
