"""HTML pages that open offline, each one file: their frame, their tables and their packed data."""

import html
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import NamedTuple, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from forecaster.errors import UsageError
from forecaster.files import atomic

Json: TypeAlias = "Mapping[str, Json] | Sequence[Json] | str | float | None"

UPLOT = "uplot.js"
SCRIPTS = ("marks.js", "charts.js", "tables.js")
"""Scripts that all pages contain; each explains itself in its first lines."""
LETTERS = np.array(
    list("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"), dtype="U1"
)


def pack(values: np.ndarray, low: float, high: float, width: int = 2) -> str:
    """Return values between ``low`` and ``high`` as text, ``width`` letters each.

    Values are rounded to one of 64**width - 1 evenly spaced values; a number that is not finite has
    a code of its own. ``unpack`` in ``charts.js`` reverses the packing.
    """
    values = np.asarray(values, float).ravel()
    most = 64**width - 1
    share = (values - low) / (high - low) if high > low else np.where(np.isnan(values), np.nan, 0.0)
    known = np.isfinite(share)
    codes = np.full(len(values), most)
    codes[known] = np.rint(np.clip(share[known], 0, 1) * (most - 1))
    digits = codes[:, None] // 64 ** np.arange(width)[::-1] % 64
    return "".join(LETTERS[digits].ravel())


def limits(values: np.ndarray, digits: int = 7) -> tuple[float, float]:
    """Return the lowest and the highest of some values, rounded, to :func:`pack` between them."""
    return float(f"{np.nanmin(values):.{digits}g}"), float(f"{np.nanmax(values):.{digits}g}")


def rounded(values: ArrayLike, digits: int = 5) -> list[Json]:
    """Round numbers to significant digits, as lists; None stands for NaN or infinity."""
    values = np.asarray(values, float)
    if values.ndim > 1:
        return [rounded(part, digits) for part in values]
    return [float(f"{v:.{digits}g}") if np.isfinite(v) else None for v in values]


def columns(table: pd.DataFrame) -> dict[str, Json]:
    """Return the columns of a table by name: numbers rounded, dates as numbers, others as text."""
    out: dict[str, Json] = {}
    for name in table:
        column = table[name]
        if pd.api.types.is_datetime64_any_dtype(column):
            out[str(name)] = as_numbers(pd.Index(column))
        elif column.dtype.kind in "if":
            out[str(name)] = rounded(column)
        else:
            out[str(name)] = [str(value) for value in column]
    return out


def as_numbers(times: pd.Index) -> list[int]:
    """Return dates as seconds since 1970, and times that are already numbers unchanged."""
    if pd.api.types.is_datetime64_any_dtype(times):
        return (times.to_numpy().astype("datetime64[s]").astype(np.int64)).tolist()
    return [int(time) for time in times]


def positions(known: pd.Index, times: pd.Index) -> int | list[int]:
    """Return where some times are on an axis; only the first if no time is missing in between."""
    at = times.get_indexer(known)
    return int(at[0]) if (np.diff(at) == 1).all() else at.tolist()


class Card(NamedTuple):
    """A headline: a number, its label, and a note."""

    number: str
    label: str
    note: str = ""


class Section(NamedTuple):
    """A section of a page: ``name`` is its anchor for links."""

    name: str
    heading: str
    html: str


def check_uplot() -> None:
    """Raise UsageError if the library that draws figures is missing."""
    if not (files("forecaster.report") / UPLOT).is_file():
        raise UsageError(
            f"forecaster/report/{UPLOT}, which draws the figures of HTML pages, is missing; the "
            "build adds it. Install the program (in a clone: `pip install -e .`)"
        )


def write_page(
    path: Path,
    *,
    title: str,
    heading: str,
    lead: str,
    sections: Sequence[Section],
    data: Json = None,
    script: str | None = None,
    notices: Sequence[str] = (),
    cards: Sequence[Card] = (),
) -> Path:
    """Write a page as one HTML file that opens offline; return its path.

    - ``title``, ``heading``, ``lead``: text
    - ``notices``: warnings at the top of the page
    - ``data``: the script's data, which goes into the element ``data`` as JSON
    - ``script``: the name of the page's own script, run after :data:`SCRIPTS`; None: a page without

    Raises UsageError if the library that draws figures is missing.
    """
    if script is not None:
        check_uplot()
    names = () if script is None else (UPLOT, *SCRIPTS, script)
    scripts = (f"<script>{resource(name)}</script>" for name in names)
    page = Template(resource("shell.html")).substitute(
        title=escape(title),
        heading=escape(heading),
        lead=escape(lead),
        style=resource("page.css"),
        notices="".join(f'<p class="warning">{escape(text)}</p>' for text in notices),
        cards=_cards(cards),
        contents="".join(f'<li><a href="#{s.name}">{escape(s.heading)}</a></li>' for s in sections),
        sections="\n".join(map(_section, sections)),
        data=embedded(data),
        scripts="\n".join(scripts),
    )
    atomic.write_file(path, lambda to: to.write_text(page, "utf-8", "backslashreplace"))
    return path


def figure(name: str, heading: str, how: str) -> str:
    """Return an empty box for a figure that the page's script draws, and a box for its numbers.

    ``name``: the id of the box; ``how``: a sentence on how to read the figure, as HTML.
    """
    return (
        f'<figure><figcaption><h3>{escape(heading)}</h3><p>{how}</p></figcaption><div id="{name}">'
        f'</div><details id="{name}-numbers"><summary>The numbers</summary></details></figure>'
    )


def table(frame: pd.DataFrame, caption: str, formats: Mapping[str, str] | None = None) -> str:
    """Return a table as HTML, in a box that scrolls; a missing number becomes a dash.

    ``formats``: number formats by column; the default is ``.1%``.
    """
    forms = {name: (formats or {}).get(str(name), ".1%") for name in frame}
    kinds = {
        name: "" if pd.api.types.is_numeric_dtype(frame[name]) else " class='text'"
        for name in frame
    }
    head = "".join(f"<th scope='col'{kinds[name]}>{typeset(str(name))}</th>" for name in frame)
    rows = []
    for row in frame.itertuples(index=False):
        cells = zip(kinds.values(), map(_cell, row, forms.values()), strict=True)
        rows.append("".join(f"<td{kind}>{escape(text)}</td>" for kind, text in cells))
    return (
        f"<div class='scroll' tabindex='0' role='region' aria-label='{escape(caption)}'><table>"
        f"<caption>{typeset(caption)}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{''.join(f'<tr>{row}</tr>' for row in rows)}</tbody></table></div>"
    )


def points(lines: Iterable[str], kind: str = "<ul>") -> str:
    """Return sentences as an HTML list; ``kind``: its opening tag."""
    items = "".join(f"<li>{typeset(line)}</li>" for line in lines)
    return f"{kind}{items}</{kind[1:3]}>"


def facts(entries: Mapping[str, str]) -> str:
    """Return pairs of name and description as an HTML list."""
    rows = (f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in entries.items())
    return f"<dl>{''.join(rows)}</dl>"


def escape(text: str) -> str:
    """Escape a text for HTML, such as a name, without changing it."""
    return html.escape(text)


def typeset(text: str) -> str:
    """Escape a sentence or a heading for HTML. No line breaks before % or after =; curly quotes."""
    text = text.replace("'unchanged'", "“unchanged”")
    return escape(_percent(text).replace(" = ", " =\N{NO-BREAK SPACE}"))


def _percent(text: str) -> str:
    return _PERCENT.sub("\N{NARROW NO-BREAK SPACE}%", text)


_PERCENT = re.compile(r"(?<=\d) ?%(?!\w)")


def embedded(data: Json) -> str:
    """Return JSON that is safe inside a script element."""
    return json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def resource(name: str) -> str:
    """Read a file of this package as text."""
    return (files("forecaster.report") / name).read_text(encoding="utf-8")


def _cards(cards: Sequence[Card]) -> str:
    items = (
        f"<li><strong>{typeset(card.number)}</strong><span>{typeset(card.label)}</span>"
        f"<small>{typeset(card.note)}</small></li>"
        for card in cards
    )
    return f"<ul class='cards'>{''.join(items)}</ul>" if cards else ""


def _section(section: Section) -> str:
    return (
        f'<section id="{section.name}" aria-labelledby="h-{section.name}">'
        f'<h2 id="h-{section.name}">{escape(section.heading)}</h2>{section.html}</section>'
    )


def _cell(value: object, form: str) -> str:
    if isinstance(value, float):
        shown = _percent(format(value, form)).replace("-", "\N{MINUS SIGN}")
        return shown if np.isfinite(value) else "\N{EN DASH}"
    return str(value)
