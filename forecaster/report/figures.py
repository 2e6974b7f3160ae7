"""The figures of an evaluation, each a matplotlib Figure."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from forecaster.evaluation import (
    ALPHA,
    Evaluation,
    comparison,
    coverage,
    horizon_of,
    scaled,
)
from forecaster.forecasting import forecast_columns, quantile_columns

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK, PALE = "#222222", "#cccccc"
_COLOURS = ("#1f5fa8", "#d1495b", "#8a8a8a", "#3a7d44", "#e08e2b", "#7b5ea7", "#00798c", "#b5838d")


def colours(found: Evaluation) -> dict[str, str]:
    """A colour for each model, ours the first."""
    models = [found.model, *(name for name in found.summary["models"] if name != found.model)]
    return {name: _COLOURS[place % len(_COLOURS)] for place, name in enumerate(models)}


def shown(found: Evaluation) -> list[str]:
    """The models that are laid over each other: ours, naive, GARCH and others, four at most;
    PyTorch where it trained all series, else it is drawn apart."""
    models = [name for name in found.summary["models"] if name != "PyTorch" or not _partly(found)]
    wanted = [found.model, "PyTorch", "Naive", "GARCH", "EWMA"]
    kept = [name for name in wanted if name in models]
    rest = [name for name in models if name not in kept]
    return (kept + rest)[:4]


def error_distributions(found: Evaluation) -> "Figure":
    """Histogram, ECDF and violins over series of the scaled absolute error and CRPS."""
    figure, axes = _axes(2, 3, (11, 6.4))
    _distributions(found, axes, {name: scaled(found, name)[shown(found)] for name in _TITLES})
    return figure


def by_torch(found: Evaluation) -> "Figure":
    """The same for our networks and those that PyTorch trained, on the series that both have."""
    figure, axes = _axes(2, 3, (11, 6.4))
    both = [found.model, "PyTorch"]
    _distributions(found, axes, {name: scaled(found, name)[both].dropna() for name in _TITLES})
    return figure


_TITLES = {"mae": "absolute error (MASE)", "crps": "CRPS, scaled as MASE"}


def _distributions(found: Evaluation, axes, tables: dict[str, pd.DataFrame]) -> None:
    paint = colours(found)
    for row, (score, table) in zip(axes, tables.items(), strict=True):
        title, models = _TITLES[score], [str(name) for name in table]
        high = float(np.nanquantile(table.to_numpy(), 0.995))
        bins = np.linspace(float(np.nanmin(table.to_numpy())), high, 30)
        for name in models:
            values = table[name].dropna().sort_values().to_numpy()
            if not len(values):
                continue
            row[0].hist(values, bins=bins, histtype="step", color=paint[name], lw=1.5, label=name)
            share = np.arange(1, len(values) + 1) / len(values)
            row[1].step(values, share, color=paint[name], lw=1.5, where="post")
        _violins(row[2], {name: table[name].dropna().to_numpy() for name in models}, paint)
        row[0].set_xlabel(title)
        row[1].set_xlabel(title)
        row[0].set_ylabel("series")
        row[1].set_ylabel("share of series below")
        row[1].set_xlim(bins[0], bins[-1])
    axes[0][0].legend(frameon=False)


def paired(found: Evaluation) -> "Figure":
    """Our score of every series against another model's, and the p-values of the differences."""
    figure, axes = _axes(1, 3, (11, 3.8))
    other = _rival(found)
    table = scaled(found, "crps" if "crps" in found.scores else "mae")
    test = "crps_against" if "crps_against" in set(found.tests["test"]) else "mae_against"
    tests = found.tests[(found.tests["test"] == test) & (found.tests["horizon"] == 1)]
    mine = tests[tests["model"] == other].set_index("unique_id")["p_adjusted"]
    significant = mine.reindex(table.index).to_numpy() < ALPHA
    x, y = table[other].to_numpy(), table[found.model].to_numpy()
    axes[0].scatter(x[~significant], y[~significant], s=9, color=_COLOURS[0], alpha=0.6, lw=0)
    axes[0].scatter(x[significant], y[significant], s=16, color=_COLOURS[1], lw=0)
    ends = np.nanmin([x, y]), np.nanquantile([x, y], 0.997)
    axes[0].plot(ends, ends, color=INK, lw=0.8)
    axes[0].set(xlim=ends, ylim=ends)
    axes[0].set_xlabel(f"CRPS of {other}, scaled")
    axes[0].set_ylabel(f"CRPS of {found.model}, scaled")
    ratio = np.sort(y / x)
    axes[1].step(ratio, np.arange(1, len(ratio) + 1) / len(ratio), color=_COLOURS[0], where="post")
    axes[1].axvline(1, color=INK, lw=0.8)
    low, high = np.nanquantile(ratio, [0.005, 0.995])
    axes[1].set_xlim(low - 0.005, high + 0.005)
    axes[1].set_xlabel(f"CRPS relative to {other}")
    axes[1].set_ylabel("share of series below")
    for name in [name for name in shown(found) if name != found.model]:
        p = tests[tests["model"] == name]["p_value"].dropna()
        if len(p):
            axes[2].hist(p, np.linspace(0, 1, 21), histtype="step", lw=1.5,
                         color=colours(found)[name], label=f"against {name}")  # fmt: skip
    axes[2].set_xlabel("p-value, Diebold-Mariano")
    axes[2].set_ylabel("series")
    if axes[2].get_legend_handles_labels()[0]:
        axes[2].legend(frameon=False)
    return figure


def calibration(found: Evaluation) -> "Figure":
    """Coverage against nominal level, the PIT one step ahead, and the width of bands."""
    figure, axes = _axes(1, 3, (11, 3.8))
    paint, held = colours(found), coverage(found)
    widths = [name for name in found.scores if str(name).startswith("width-")]
    for name in shown(found):
        part = held[(held["model"] == name) & (held["horizon"] == 1)]
        if part.empty:
            continue
        axes[0].plot(part["level"] / 100, part["held"] - part["level"] / 100, color=paint[name],
                     marker="o", ms=3, lw=1.5, label=name)  # fmt: skip
        mine = found.scores[(found.scores["model"] == name) & (found.scores["horizon"] == 1)]
        unit = mine["mase"] / mine["mae"]
        level = [float(str(column).removeprefix("width-")) / 100 for column in widths]
        width = [(mine[column] * unit).median() for column in widths]
        order = np.argsort(level)
        axes[2].plot(np.array(level)[order], np.array(width)[order], color=paint[name], lw=1.5)
    axes[0].axhline(0, color=INK, lw=0.8)
    axes[0].set_xlabel("nominal level")
    axes[0].set_ylabel("share held less nominal")
    axes[0].legend(frameon=False)
    edges, shares = pit(found)
    if len(shares):
        axes[1].bar(edges[:-1], shares / np.diff(edges), np.diff(edges), align="edge",
                    color=_COLOURS[0], alpha=0.75, edgecolor="white", lw=0.4)  # fmt: skip
        axes[1].axhline(1, color=INK, lw=0.8)
    axes[1].set_xlabel(f"PIT of {found.model}")
    axes[1].set_ylabel("density (1: calibrated)")
    axes[2].set_xlabel("nominal level")
    axes[2].set_ylabel("median width, scaled")
    return figure


def where(found: Evaluation) -> "Figure":
    """CRPS relative to the naive's by horizon, by date and by volatility of the series."""
    figure, axes = _axes(1, 3, (11, 3.8))
    paint = colours(found)
    score = "crps" if "crps" in found.scores else "mae"
    table = scaled_by_horizon(found, score)
    daily, volatility = found.daily, _volatility(found)
    overall = scaled(found, score)
    count = min(10, len(volatility))
    decile = pd.qcut(volatility.rank(method="first"), count, labels=False) if count > 1 else None
    for name in [name for name in shown(found) if name != "Naive"]:
        ratio = (table[name] / table["Naive"]).groupby(level="horizon").mean()
        axes[0].plot(ratio.index, ratio, color=paint[name], marker="o", ms=3, lw=1.5, label=name)
        days = daily.pivot(index="cutoff", columns="model", values=score)
        smooth = days[name].rolling(21, 1).mean() / days["Naive"].rolling(21, 1).mean()
        axes[1].plot(smooth.index, smooth, color=paint[name], lw=1.3)
        if decile is not None:
            by = (overall[name] / overall["Naive"]).groupby(decile.reindex(overall.index)).mean()
            axes[2].plot(by.index + 1, by, color=paint[name], marker="o", ms=3, lw=1.5)
    label = f"{score.upper()} relative to Naive"
    for ax, x in zip(axes, ("horizon", "cutoff (mean of 21)", "volatility, decile"), strict=True):
        ax.set_xlabel(x)
        ax.set_ylabel(label)
        ax.axhline(1, color=INK, lw=0.8)
    axes[0].legend(frameon=False)
    axes[1].tick_params(axis="x", rotation=30)
    return figure


def _partly(found: Evaluation) -> bool:
    return found.summary.get("torch_series", 0) < found.summary["series"]


FIGURES: dict[str, tuple[Callable[[Evaluation], "Figure"], str]] = {
    "error_distributions": (error_distributions, "Errors of every series"),
    "paired": (paired, "Series by series against the strongest rival"),
    "calibration": (calibration, "Whether the bands hold what they say"),
    "where": (where, "Errors by horizon, date and volatility"),
}


def pit(found: Evaluation) -> tuple[np.ndarray, np.ndarray]:
    """Probability integral transform of our model one step ahead: edges between its quantiles, and
    the share of outcomes between each two of them."""
    columns = forecast_columns(found.model, found.summary["levels"])
    places = quantile_columns(columns, found.model)
    if not places:
        return np.zeros(0), np.zeros(0)
    frame = found.forecasts(columns)
    frame = frame[horizon_of(frame) == 1]
    below = (frame["y"].to_numpy()[:, None] > frame[list(places.values())].to_numpy()).sum(1)
    shares = np.bincount(below, minlength=len(places) + 1) / max(1, len(below))
    return np.array([0.0, *places, 1.0]), shares


def scaled_by_horizon(found: Evaluation, score: str) -> pd.DataFrame:
    """As :func:`scaled`, a row per series and horizon."""
    scores = found.scores
    with np.errstate(divide="ignore", invalid="ignore"):
        values = scores.assign(scaled=scores[score] * scores["mase"] / scores["mae"])
    return values.pivot(index=["unique_id", "horizon"], columns="model", values="scaled")


def _volatility(found: Evaluation) -> pd.Series:
    """Mean absolute change of each series before the first cutoff, relative to its size."""
    mine = found.scores[found.scores["model"] == found.model].drop_duplicates("unique_id")
    mine = mine.set_index("unique_id")
    size = found.forecasts([]).assign(y=lambda f: f["y"].abs()).groupby("unique_id")["y"].mean()
    volatility = mine["mae"] / mine["mase"] / size
    return volatility.replace([np.inf, -np.inf], np.nan).dropna()


def _rival(found: Evaluation) -> str:
    table = comparison(found, 1)
    part = table[table["score"] == ("crps" if "crps" in set(table["score"]) else "mae")]
    part = part[part["model"] != "PyTorch"] if len(part) > 1 else part
    return str(part.sort_values("median_ratio")["model"].iloc[-1])


def _violins(ax, values: dict[str, np.ndarray], paint: dict[str, str]) -> None:
    usable = {name: v for name, v in values.items() if len(v) > 1 and np.ptp(v) > 0}
    if not usable:
        return
    parts = ax.violinplot(list(usable.values()), showmedians=True, widths=0.8)
    for body, name in zip(parts["bodies"], usable, strict=True):
        body.set_facecolor(paint[name])
        body.set_alpha(0.5)
    for key in ("cmedians", "cmins", "cmaxes", "cbars"):
        parts[key].set_color(INK)
        parts[key].set_linewidth(0.8)
    ax.set_xticks(range(1, len(usable) + 1), list(usable))
    ax.set_ylim(0, float(np.quantile(np.concatenate(list(usable.values())), 0.995)))


def _axes(rows: int, columns: int, size: tuple[float, float]):
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(rows, columns)
    for ax in np.ravel(axes):
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(color=PALE, alpha=0.5, lw=0.6)
        ax.tick_params(colors=INK, labelsize=9)
    return figure, axes
