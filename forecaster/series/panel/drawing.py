"""Draw the rows of some series."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Float, Shaped

from forecaster.errors import UsageError, check_names
from forecaster.series.showing import as_written, axes_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Drawn = tuple[Shaped[np.ndarray, " row"], Float[np.ndarray, " row"], Bool[np.ndarray, " row"]]
"""The times of a series' rows, their values, and which of them look wrong."""
_MOST = 10  # series in a picture


def draw(series: Mapping[str, Drawn], channel: str, ax: "Axes | None", *, prices: bool) -> "Axes":
    """Draw series by name; several prices relative to the first shown.

    ``channel``: the name of their values; ``prices``: whether these are prices
    """
    ax = axes_of(ax)
    together = prices and len(series) > 1
    for name, (times, line, wrong) in series.items():
        line = 100 * line / line[0] if together else line
        ax.plot(times, line, lw=1.2, label=name)
        if wrong.any():
            ax.plot(times[wrong], line[wrong], "o", ms=5, mfc="none", color="#aa3333")
    if len(series) == 1:
        ax.set_title(next(iter(series)), loc="left", fontweight="bold", parse_math=False)
    else:
        as_written(ax.legend(frameon=False, ncols=min(5, len(series)), fontsize=9))
    if any(times.dtype.kind == "M" for times, _, _ in series.values()):
        from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

        locator = AutoDateLocator(minticks=3, maxticks=8)  # few ticks, with no more of the date
        ax.xaxis.set_major_locator(locator)  # than tells them apart
        ax.xaxis.set_major_formatter(ConciseDateFormatter(locator))
    label = "price, the first shown = 100" if together else "price" if prices else channel
    ax.set_ylabel(label, parse_math=False)
    ax.grid(alpha=0.25)
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def series_to_draw(unique_ids: str | Sequence[str] | None, ids: Sequence[str]) -> list[str]:
    """Return the series to draw, by default the first ones. Raises UsageError for more than 10.

    ``unique_ids``: the series that were asked for; ``ids``: those of the panel
    """
    if unique_ids is None:
        return list(ids[:_MOST])
    if not isinstance(unique_ids, str):
        check_names("unique_ids", unique_ids, "the name of a series, a list of names, or None")
    names = [unique_ids] if isinstance(unique_ids, str) else list(dict.fromkeys(unique_ids))
    if not 1 <= len(names) <= _MOST:
        raise UsageError(f"expected 1 to {_MOST} series to draw; got {len(names)}")
    return names
