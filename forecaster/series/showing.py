"""A panel in a few words, and as a picture."""

import difflib
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from forecaster.errors import UsageError, listed
from forecaster.series.frequency import Frequency
from forecaster.series.times import show_time
from forecaster.showing import as_written, first_of, names_in_short, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from forecaster.series.panel import Panel

Facts: TypeAlias = tuple[str, dict[str, str]]
"""A title, and facts by name."""

_UNITS = {
    "D": "days", "B": "weekdays", "MS": "months", "ME": "months", "QS": "quarters",
    "QE": "quarters", "YS": "years", "YE": "years", "h": "hours",
}  # fmt: skip
_SECONDS = {86_400: "days", 3_600: "hours", 60: "minutes", 1: "seconds"}
_MOST = 10


def in_words(frequency: Frequency) -> str:
    """How a frequency is said: "weekdays", "every 5 minutes"."""
    alias, step = frequency.alias, frequency.step
    if frequency.nyse:
        return "sessions of the New York Stock Exchange"
    if alias == "step":
        return "whole numbers" if step == 1 else f"whole numbers, {step} apart"
    if alias == "months":
        return "months" if step == 1 else f"every {step} months"
    if alias.startswith("W"):
        return "weeks"
    seconds = alias.removesuffix("s")
    if seconds.isdigit():
        unit = next(unit for unit in _SECONDS if int(seconds) % unit == 0)
        count = int(seconds) // unit
        return _SECONDS[unit] if count == 1 else f"every {count} {_SECONDS[unit]}"
    return _UNITS.get(alias.split("-")[0], alias)


def facts_of(panel: "Panel") -> Facts:
    """What is in a panel."""
    count, rows = len(panel.ids), panel.mask.sum(1)
    times = f"{show_time(panel.times[0])} to {show_time(panel.times[-1])}"
    others = [name for name in panel.channels if name != panel.target]
    few, many = int(rows.min()), int(rows.max())
    facts = {
        "times": f"{times}, {in_words(panel.frequency)}",
        "rows": f"{many:,}" if few == many else f"{few:,} to {many:,} per series",
        "target": panel.target + (f"; inputs beside it: {listed(others)}" if others else ""),
    }
    if wrong := int(panel.flagged().sum()):
        facts["flagged"] = f"{wrong:,} rows look wrong, and are not learned from"
    if panel.skipped:
        facts["skipped"] = first_of(panel.skipped)
    return f"Panel of {count:,} series: {names_in_short(panel.ids)}", facts


def draw(
    panel: "Panel", unique_ids: str | Sequence[str] | None, history: int | None, ax: "Axes | None"
) -> "Axes":
    """Lines of some series; see :meth:`Panel.plot`."""
    names = _names(panel, unique_ids)
    ax = new_axes() if ax is None else ax
    channel = "close" if "close" in panel.channels else panel.target
    values = panel.channel(channel)
    prices = panel.target in ("close", "adj_close")
    together = prices and len(names) > 1
    flagged = panel.flagged()
    for name in names:
        row = panel.ids.index(name)
        seen = np.flatnonzero(panel.mask[row])[-(history or 0) :]
        times, line = panel.times[seen], values[row, seen]
        line = 100 * line / line[0] if together else line
        ax.plot(times, line, lw=1.2, label=name)
        wrong = flagged[row, seen]
        if wrong.any():
            ax.plot(times[wrong], line[wrong], "o", ms=5, mfc="none", color="#aa3333")
    if len(names) == 1:
        ax.set_title(names[0], loc="left", fontweight="bold", parse_math=False)
    else:
        as_written(ax.legend(frameon=False, ncols=min(5, len(names)), fontsize=9))
    if panel.times.dtype.kind == "M":
        _short_dates(ax)
    ax.set_ylabel(_label(channel, prices=prices, together=together), parse_math=False)
    ax.grid(alpha=0.25)
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def _short_dates(ax: "Axes") -> None:
    """Few ticks, which say no more than tells them apart."""
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    locator = AutoDateLocator(minticks=3, maxticks=8)
    ax.xaxis.set_major_locator(locator)
    ax.xaxis.set_major_formatter(ConciseDateFormatter(locator))


def _label(channel: str, *, prices: bool, together: bool) -> str:
    if together:
        return "price, the first shown = 100"
    return "price" if prices else channel


def _names(panel: "Panel", unique_ids: str | Sequence[str] | None) -> list[str]:
    """The series to draw. Raises UsageError for one that the panel lacks."""
    if unique_ids is None:
        return list(panel.ids[:_MOST])
    names = [unique_ids] if isinstance(unique_ids, str) else list(dict.fromkeys(unique_ids))
    for name in names:
        if name not in panel.ids:
            near = difflib.get_close_matches(name.upper(), panel.ids, 3) or panel.ids[:3]
            reason = f": {panel.skipped[name]}" if name in panel.skipped else ""
            raise UsageError(f"{name!r} is not in the panel{reason}; there are e.g. {listed(near)}")
    if not 1 <= len(names) <= _MOST:
        raise UsageError(f"expected 1 to {_MOST} series to draw; got {len(names)}")
    return names
