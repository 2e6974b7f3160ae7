"""Show objects as a few lines of text, as a table in a notebook, or as a picture."""

import functools
import html
import io
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from forecaster.errors import check_type, printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_NAMED = 6
_DPI = 144  # sharp on screens with two pixels in place of one
_INCH = 72  # pixels of a page in an inch


def names_in_short(names: Iterable[str]) -> str:
    """Return names in one line: the first few, and the number of the others."""
    every = [printable(name, lines=False) for name in names]
    more = f" and {len(every) - _NAMED} more" if len(every) > _NAMED else ""
    return ", ".join(every[:_NAMED]) + more


def first_of(reasons: Mapping[str, object]) -> str:
    """Return the first name with its reason, and the number of the others."""
    name, reason = next(iter(reasons.items()))
    more = f", and {len(reasons) - 1} more" if len(reasons) > 1 else ""
    return f"{name}: {reason}{more}"


def as_text(title: str, facts: Mapping[str, str]) -> str:
    """Return a title with a line for each fact below it."""
    width = max(map(len, facts), default=0)
    return "\n".join([title, *(f"  {name:<{width}}  {fact}" for name, fact in facts.items())])


def as_html(title: str, facts: Mapping[str, str]) -> str:
    """Return a title and facts, as :func:`as_text` does, as an HTML table for notebooks."""
    rows = "".join(
        f'<tr><th style="text-align:left">{html.escape(name)}</th>'
        f'<td style="text-align:left">{html.escape(fact)}</td></tr>'
        for name, fact in facts.items()
    )
    return f"<div><strong>{html.escape(title)}</strong><table>{rows}</table></div>"


def axes_of(ax: "Axes | None", width: float = 9.0, height: float = 4.5) -> "Axes":
    """Return the axes that a caller gave, or for None those of a new figure.

    A notebook shows them as a picture. The figure is not registered with pyplot, so it need not be
    closed. Raises UsageError for anything but axes.

    ``width``, ``height``: in inches
    """
    if ax is None:
        figure_class, axes_class = _classes()
        figure = figure_class(figsize=(width, height), layout="constrained")
        return figure.add_subplot(axes_class=axes_class)
    from matplotlib.axes import Axes

    check_type("ax", ax, Axes, "axes of matplotlib, or None for a new figure")
    return ax


@functools.cache
def _classes() -> tuple[Any, Any]:
    """Return classes of figures and axes that a notebook shows as pictures.

    A notebook shows a plain Figure only after pyplot is set up, and plain Axes never. The classes
    are made here because importing matplotlib takes time.
    """
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    class ShownFigure(Figure):
        def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
            file = io.BytesIO()
            self.savefig(file, format="png", dpi=_DPI)
            width, height = self.get_size_inches() * _INCH
            return file.getvalue(), {"width": round(width), "height": round(height)}

    class ShownAxes(Axes):
        def _repr_png_(self) -> tuple[bytes, dict[str, int]] | None:
            show = getattr(self.figure, "_repr_png_", None)
            return None if show is None else show()

    return ShownFigure, ShownAxes


def as_written(legend: Any) -> None:
    """Show the names in a legend as they are: a ``$`` in a name does not begin a formula."""
    for text in legend.get_texts():
        text.set_parse_math(False)
