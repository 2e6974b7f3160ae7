"""Draw the rows of some series of a panel."""

import difflib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from forecaster.errors import UsageError, check_names, check_whole, listed
from forecaster.showing import as_written, axes_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from forecaster.series.panel.panel import Panel

_MOST = 10  # series in a picture


def draw(
    panel: "Panel", unique_ids: str | Sequence[str] | None, history: int | None, ax: "Axes | None"
) -> "Axes":
    """Draw some series; see :meth:`Panel.plot`."""
    names = _names(panel, unique_ids)
    if history is not None:
        check_whole("history", history, 1)
    ax = axes_of(ax)
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
    """Label few ticks, each with no more of the date than tells them apart."""
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    locator = AutoDateLocator(minticks=3, maxticks=8)
    ax.xaxis.set_major_locator(locator)
    ax.xaxis.set_major_formatter(ConciseDateFormatter(locator))


def _label(channel: str, *, prices: bool, together: bool) -> str:
    if together:
        return "price, the first shown = 100"
    return "price" if prices else channel


def _names(panel: "Panel", unique_ids: str | Sequence[str] | None) -> list[str]:
    """Return the series to draw. Raises UsageError for an unknown series, or more than 10."""
    if unique_ids is None:
        return list(panel.ids[:_MOST])
    if not isinstance(unique_ids, str):
        check_names("unique_ids", unique_ids, "the name of a series, a list of names, or None")
    names = [unique_ids] if isinstance(unique_ids, str) else list(dict.fromkeys(unique_ids))
    for name in names:
        if name not in panel.ids:
            close = difflib.get_close_matches(name.upper(), panel.ids, 3) or panel.ids[:3]
            reason = f": {panel.skipped[name]}" if name in panel.skipped else ""
            raise UsageError(
                f"{name!r} is not in the panel{reason}; there are e.g. {listed(close)}"
            )
    if not 1 <= len(names) <= _MOST:
        raise UsageError(f"expected 1 to {_MOST} series to draw; got {len(names)}")
    return names
