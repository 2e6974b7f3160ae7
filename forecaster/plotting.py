"""Pictures of forecasts and of speed: frames in, matplotlib Axes out."""

from typing import TYPE_CHECKING

import pandas as pd

from forecaster.forecasting import bounds_of, levels_of, models_of
from forecaster.series import Panel

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.legend import Legend

_BLUE = "#1f5fa8"


def plot_forecast(
    panel: Panel,
    forecast: pd.DataFrame,
    unique_id: str,
    *,
    history: int = 120,
    ax: "Axes | None" = None,
) -> "Axes":
    """Draw the latest rows of one series, and its forecast as a fan.

    - ``panel``: where the series comes from; prices are drawn as ``close`` where it has them
    - ``forecast``: a frame of :func:`forecaster.predict`
    - ``unique_id``: the series
    - ``history``: how many of its latest rows
    - ``ax``: by default those of a new figure
    """
    from matplotlib.figure import Figure

    if ax is None:
        ax = Figure(figsize=(9, 4.5), layout="constrained").add_subplot()
    panel = panel.masked(forecasting=True)  # as it was forecast from
    row = panel.ids.index(unique_id)
    channel = "close" if "close" in panel.channels else panel.target
    seen = panel.mask[row]
    times, values = panel.times[seen][-history:], panel.channel(channel)[row, seen][-history:]
    part = forecast[forecast["unique_id"] == unique_id]
    name = models_of(forecast)[0]
    ax.plot(times, values, color="#333333", lw=1.3, label=channel)
    levels = sorted((float(level) for level in levels_of(forecast, name)), reverse=True)
    ahead = [times[-1], *part["ds"]]
    for number, level in enumerate(levels):
        low, high = ([values[-1], *part[bound]] for bound in bounds_of(name, level))
        shade = 0.18 + 0.22 * number / max(1, len(levels) - 1)
        ax.fill_between(ahead, low, high, color=_BLUE, alpha=shade, lw=0, label=f"{level:g} % band")
    ax.plot(ahead, [values[-1], *part[name]], color=_BLUE, lw=1.6, label=f"{name} median")
    ax.set_title(unique_id, loc="left", fontweight="bold", parse_math=False)
    ax.set_ylabel("price" if channel in ("close", "adj_close") else channel)
    ax.grid(alpha=0.25)
    ax.spines[["top", "right"]].set_visible(False)
    _as_written(ax.legend(frameon=False, loc="upper left", fontsize=9))
    ax.figure.autofmt_xdate()  # pyright: ignore[reportAttributeAccessIssue]
    return ax


def plot_scaling(frame: pd.DataFrame, ax: "Axes | None" = None) -> "Axes":
    """Draw the time of an epoch of all members against their number, a line per method.

    ``frame``: the columns of ``forecaster benchmark``: ``method, members,
    seconds_per_model_epoch``. Both axes are logarithmic.
    """
    from matplotlib.figure import Figure

    if ax is None:
        ax = Figure(figsize=(7, 4.5), layout="constrained").add_subplot()
    for method, rows in frame.groupby("method", sort=False):
        seconds = rows["members"] * rows["seconds_per_model_epoch"]
        ax.plot(rows["members"], seconds, marker="o", label=str(method))
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    counts = sorted(frame["members"].unique())
    ax.set_xticks(counts, [str(count) for count in counts])
    ax.set_xlabel("networks")
    ax.set_ylabel("seconds for an epoch of all")
    ax.grid(alpha=0.3, which="both")
    _as_written(ax.legend())
    return ax


def _as_written(legend: "Legend") -> None:
    """Names come from outside: a ``$`` in one begins no formula, which may not be a valid one."""
    for text in legend.get_texts():
        text.set_parse_math(False)
