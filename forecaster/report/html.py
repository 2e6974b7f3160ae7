"""Pages that are one file and load nothing: their frame, their tables and the data in them."""

import html
import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from string import Template
from typing import NamedTuple, TypeAlias

import numpy as np
import pandas as pd

from forecaster.errors import UsageError

UPLOT = "uplot.js"
SCRIPTS = ("marks.js", "charts.js", "tables.js")
"""Of all pages: see the comments at their heads."""

Json: TypeAlias = "Mapping[str, Json] | Sequence[Json] | str | float | None"


class Card(NamedTuple):
    """A headline: one number, what it is, and what to think of it."""

    number: str
    label: str
    note: str = ""


class Section(NamedTuple):
    """A part of a page: ``name`` for links, its heading, and its HTML."""

    name: str
    heading: str
    html: str


def check_uplot() -> None:
    """Raise UsageError when the library that draws figures is not there."""
    if not (files("forecaster.report") / UPLOT).is_file():
        raise UsageError(
            f"forecaster/report/{UPLOT}, which draws the figures of HTML pages, is missing: the "
            "build puts it there. Install the program (in a checkout: `pip install -e .`)"
        )


def page(
    *,
    title: str,
    heading: str,
    lead: str,
    sections: Sequence[Section],
    data: Json,
    script: str,
    notices: Sequence[str] = (),
    cards: Sequence[Card] = (),
    style: str = "",
) -> str:
    """A page as HTML.

    - ``title``, ``heading``, ``lead``, ``notices``: text; a notice is what must be known first
    - ``data``: what the script finds in the element ``data``, as JSON
    - ``script``: the name of the page's own script beside :data:`SCRIPTS`
    - ``style``: more style, after that of all pages

    Raises UsageError when the library that draws figures is not there.
    """
    check_uplot()
    scripts = (f"<script>{resource(name)}</script>" for name in (UPLOT, *SCRIPTS, script))
    return Template(resource("shell.html")).substitute(
        title=escape(title),
        heading=escape(heading),
        lead=escape(lead),
        style=resource("page.css") + style,
        notices="".join(f'<p class="warning">{escape(text)}</p>' for text in notices),
        cards=_cards(cards),
        contents="".join(f'<li><a href="#{s.name}">{escape(s.heading)}</a></li>' for s in sections),
        sections="\n".join(map(_section, sections)),
        data=embedded(data),
        scripts="\n".join(scripts),
    )


def figure(name: str, heading: str, how: str) -> str:
    """The place of a figure that the page's script draws, and of its numbers.

    ``name``: of its box; ``how``: a sentence on how to read it, as HTML.
    """
    return (
        f'<figure><figcaption><h3>{escape(heading)}</h3><p>{how}</p></figcaption><div id="{name}">'
        f'</div><details id="{name}-numbers"><summary>The numbers</summary></details></figure>'
    )


def table(frame: pd.DataFrame, caption: str, formats: Mapping[str, str] | None = None) -> str:
    """A table as HTML, in a box of its own that scrolls; a missing number is a dash.

    ``formats``: by column, how its numbers are written; by default as shares, ``.1%``.
    """
    forms = {name: (formats or {}).get(str(name), ".1%") for name in frame}
    kinds = {
        name: "" if pd.api.types.is_numeric_dtype(frame[name]) else " class='text'"
        for name in frame
    }
    head = "".join(f"<th scope='col'{kinds[name]}>{escape(str(name))}</th>" for name in frame)
    rows = []
    for row in frame.itertuples(index=False):
        cells = zip(kinds.values(), map(_cell, row, forms.values()), strict=True)
        rows.append("".join(f"<td{kind}>{escape(text)}</td>" for kind, text in cells))
    return (
        f"<div class='scroll' tabindex='0' role='region' aria-label='{escape(caption)}'><table>"
        f"<caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{''.join(f'<tr>{row}</tr>' for row in rows)}</tbody></table></div>"
    )


def facts(entries: Mapping[str, str]) -> str:
    """Names and what they are, as a list."""
    rows = (f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in entries.items())
    return f"<dl>{''.join(rows)}</dl>"


def escape(text: str) -> str:
    """A text that comes from outside, inside HTML."""
    return html.escape(text)


def embedded(data: Json) -> str:
    """JSON that may stand inside a script element."""
    return json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def resource(name: str) -> str:
    """A file of this package, as text."""
    return (files("forecaster.report") / name).read_text(encoding="utf-8")


def _cards(cards: Sequence[Card]) -> str:
    items = (
        f"<li><strong>{escape(card.number)}</strong><span>{escape(card.label)}</span>"
        f"<small>{escape(card.note)}</small></li>"
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
        return format(value, form) if np.isfinite(value) else "\N{EN DASH}"
    return str(value)
