"""Draw forecasts: frames in, matplotlib Axes out."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Unpack

import numpy as np
import pandas as pd

from forecaster.errors import UsageError, check_flag, check_type, check_whole, listed
from forecaster.forecasting import Model, bounds_of, levels_of, models_of, predict
from forecaster.ingest import ColumnOptions, Table, as_panel
from forecaster.series import Panel, as_written, axes_of, own_frequency, show_time

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BLUE = "#1f5fa8"
HISTORY = 63
"""Number of rows drawn before a forecast: about a quarter of a year of sessions."""
# Maximum horizon whose steps are drawn as dots; the dots of a longer one would overlap.
_DOTTED = 15
_NAMED = 40  # maximum number of series whose names are written next to their errors


def plot_forecast(
    panel: Panel | Table,
    forecast: pd.DataFrame,
    unique_id: str,
    *,
    history: int = HISTORY,
    ax: "Axes | None" = None,
    legend: bool = True,
    **columns: Unpack[ColumnOptions],
) -> "Axes":
    """Draw the latest rows of one series, and its forecast as a fan.

    - ``panel``: a panel with the series, or a frame; its ``close`` is drawn if it has one
    - ``forecast``: a frame of :func:`forecaster.predict`
    - ``unique_id``: the series
    - ``history``: number of latest rows
    - ``ax``: axes to draw on; by default the axes of a new figure, which a notebook shows and
      ``ax.figure.savefig(path)`` writes
    - ``legend``: whether to draw a legend
    - ``columns``: the names of a frame's columns, see :class:`forecaster.ingest.ColumnOptions`
    """
    panel = as_panel(panel, **columns).masked(forecasting=True)  # the rows behind the forecast
    _check_drawn(panel, forecast, unique_id, history, legend=legend)
    ax = axes_of(ax)
    row = panel.ids.index(unique_id)
    channel = "close" if "close" in panel.channels else panel.target
    seen = panel.mask[row]
    times, values = panel.times[seen][-history:], panel.channel(channel)[row, seen][-history:]
    part = forecast[forecast["unique_id"] == unique_id]
    name = models_of(forecast)[0]
    ahead = np.array([times[-1], *part["ds"].to_numpy(times.dtype)])
    own = own_frequency(panel.times[seen], panel.frequency)
    if own.alias == panel.frequency.alias:  # which more rows than these have shown
        own = panel.frequency
    if own.hours is not None:
        x, ahead = _row_by_row(ax, times, ahead)
    else:
        x = times
        _time_axis(ax, dated=times.dtype.kind == "M")
    ax.plot(x, values, color="#333333", lw=1.3, label=channel)
    levels = sorted((float(level) for level in levels_of(forecast, name)), reverse=True)
    for number, level in enumerate(levels):
        low, high = ([values[-1], *part[bound]] for bound in bounds_of(name, level))
        shade = 0.18 + 0.22 * number / max(1, len(levels) - 1)
        ax.fill_between(ahead, low, high, color=_BLUE, alpha=shade, lw=0, label=f"{level:g} % band")
    dots = {"marker": "o", "ms": 3, "markevery": slice(1, None)} if len(part) <= _DOTTED else {}
    middle = [values[-1], *part[name]]
    ax.plot(ahead, middle, color=_BLUE, lw=1.6, label=f"{name} median", **dots)
    _label(ax, unique_id, channel, times[-1], values[-1], middle[-1])
    if legend:
        as_written(ax.legend(frameon=False, loc="upper left", fontsize=9))
    return ax


def plot_forecasts(
    panel: Panel, forecast: pd.DataFrame, ids: Sequence[str], title: str, history: int = HISTORY
) -> "Figure":
    """Draw the forecasts of several series below each other, with one legend for all.

    Arguments are as for :func:`plot_forecast`; ``title``: the title above the whole picture.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 0.9 + 3.3 * len(ids)), layout="constrained")
    every = figure.subplots(len(ids), squeeze=False).ravel()
    for name, ax in zip(ids, every, strict=True):
        plot_forecast(panel, forecast, name, history=history, ax=ax, legend=False)
    figure.suptitle(title, x=0.01, ha="left", fontsize=11, parse_math=False)
    handles, labels = every[0].get_legend_handles_labels()
    as_written(
        figure.legend(handles, labels, loc="outside lower left", ncols=len(labels), frameon=False)
    )
    return figure


def _check_drawn(
    panel: Panel, forecast: pd.DataFrame, unique_id: str, history: int, *, legend: bool
) -> None:
    """Raise UsageError for a series that is not there, and for a frame that is no forecast."""
    if not isinstance(forecast, pd.DataFrame) or not {"unique_id", "ds"} < {*forecast.columns}:
        raise UsageError(f"forecast: expected a frame of predict; got {type(forecast).__name__}")
    check_whole("history", history, 1)
    check_type("unique_id", unique_id, str, "the name of a series")
    check_flag("legend", legend)
    for what, names in (("panel", panel.ids), ("forecast", forecast["unique_id"].unique())):
        if unique_id not in list(names):
            raise UsageError(f"{unique_id!r} is not in the {what}; there are {listed(names)}")


def _row_by_row(ax: "Axes", times: np.ndarray, ahead: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the x of intraday rows and of the forecast, evenly spaced, without nights or weekends.

    Ticks are at the first rows of days, or at several rows of one day.
    """
    every = pd.DatetimeIndex([*times, *ahead[1:]])
    at = np.arange(len(every))
    begins = np.append(True, every.normalize()[1:] != every.normalize()[:-1])
    ticks = at[begins] if begins.sum() > 2 else at[:: max(1, len(every) // 6)]
    ticks = ticks[:: max(1, len(ticks) // 9)]
    ax.set_xticks(ticks, [every[n].strftime("%H:%M\n%d %b") for n in ticks])
    ax.set_xlabel("time")
    return at[: len(times)], at[len(times) - 1 :]


def _time_axis(ax: "Axes", *, dated: bool) -> None:
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    ax.set_xlabel("date" if dated else "time")
    if dated:
        locator = AutoDateLocator(minticks=4, maxticks=9)
        ax.xaxis.set_major_locator(locator)
        ax.xaxis.set_major_formatter(ConciseDateFormatter(locator, show_offset=False))


def _label(ax: "Axes", name: str, channel: str, when: object, value: float, median: float) -> None:
    """Write the name of the series, its latest value with the time, and the last median."""
    ax.set_title(name, loc="left", fontweight="bold", parse_math=False)
    latest = f"{_number(value)} on {show_time(when)}"
    ax.set_title(latest, loc="right", fontsize=9, color="#555555")
    ax.set_ylabel("price" if channel in ("close", "adj_close") else channel)
    ax.annotate(
        _number(median), (1, median), xycoords=("axes fraction", "data"), xytext=(4, 0),
        textcoords="offset points", va="center", color=_BLUE, fontsize=9,
    )  # fmt: skip
    ax.grid(alpha=0.25)
    ax.spines[["top", "right"]].set_visible(False)


def _number(value: float) -> str:
    return f"{value:,.2f}" if abs(value) >= 1 else f"{value:.4g}"


def plot_model(
    model: Model,
    panel: Panel | Table | None = None,
    unique_id: str | None = None,
    *,
    level: Sequence[float] = (80, 95),
    ax: "Axes | None" = None,
    **columns: Unpack[ColumnOptions],
) -> "Axes":
    """Draw a model's errors or, given a panel, its forecast of a series; see :meth:`Model.plot`."""
    if panel is None:
        if unique_id is not None:
            raise UsageError(f"a forecast of {unique_id!r} needs its latest rows; pass a panel too")
        return _plot_errors(model, axes_of(ax))
    panel = as_panel(panel, **columns)
    name = unique_id or next((name for name in panel.ids if name in model.ids), panel.ids[0])
    if (market := model.config.indices) and set(market) <= set(panel.ids):
        panel = panel.with_market(market)
    panel = panel.only([name])
    return plot_forecast(panel, predict(model, panel, level), name, ax=ax)


def _plot_errors(model: Model, ax: "Axes") -> "Axes":
    """Draw each series' error over the validation span, relative to that of "unchanged"."""
    ratio = model.report["mae_relative_to_naive"].sort_values()
    at = range(len(ratio))
    few = len(ratio) <= _NAMED
    ax.axvline(1.0, color="#333333", lw=0.9)
    better = (ratio < 1).to_numpy()
    for part, colour, label in ((better, _BLUE, "better"), (~better, "#b5522b", "not better")):
        ax.plot(ratio[part], [n for n in at if part[n]], "o", ms=5 if few else 3, color=colour,
                label=f"{label} than 'unchanged': {part.sum()}")  # fmt: skip
    ax.set_yticks(list(at) if few else [], [str(name) for name in ratio.index] if few else [])
    for text in ax.get_yticklabels():
        text.set_parse_math(False)
    if not few:
        ax.set_ylabel(f"{len(ratio)} series, sorted")
    ax.set_xlabel("absolute error over the validation span, 'unchanged' = 1")
    ax.set_title(f"{model.config.column}: {len(ratio)} series", loc="left", fontweight="bold")
    ax.grid(alpha=0.25, axis="x")
    ax.spines[["top", "right"]].set_visible(False)
    as_written(ax.legend(frameon=False, fontsize=9))
    return ax
