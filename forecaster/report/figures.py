"""The figures of an evaluation, each a matplotlib Figure."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from forecaster.evaluation import Evaluation, coverage, scaled
from forecaster.report.numbers import (
    SMOOTHED,
    Pairs,
    comparison_tests,
    median_widths,
    pit,
    relative_by_date,
    relative_by_horizon,
    relative_by_volatility,
    strongest,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, PALE = "#222222", "#cccccc"
SHOWN = 4
"""Models that are laid over each other at most."""
_COLOURS = ("#1f5fa8", "#d1495b", "#8a8a8a", "#3a7d44", "#e08e2b", "#7b5ea7", "#00798c", "#b5838d")
_OURS, _SIGNIFICANT = _COLOURS[:2]
_WIDE, _TALL = (11.0, 3.8), (11.0, 6.4)  # inches
_TITLES = {"mae": "absolute error (MASE)", "crps": "CRPS, scaled as MASE"}


def colours(evaluation: Evaluation) -> dict[str, str]:
    """A colour for each model, ours the first."""
    others = [name for name in evaluation.summary.models if name != evaluation.model]
    models = [evaluation.model, *others]
    return {name: _COLOURS[number % len(_COLOURS)] for number, name in enumerate(models)}


def shown(evaluation: Evaluation) -> list[str]:
    """The models that are laid over each other, ours first, then naive, GARCH and others.

    PyTorch's networks are among them where it trained all series, else they are drawn apart.
    """
    models = list(evaluation.summary.models)
    if "PyTorch" in models and _torch_sampled(evaluation):
        models.remove("PyTorch")
    preferred = [evaluation.model, "PyTorch", "Naive", "GARCH", "EWMA"]
    first = [name for name in preferred if name in models]
    return (first + [name for name in models if name not in first])[:SHOWN]


def _torch_sampled(evaluation: Evaluation) -> bool:
    """Whether PyTorch trained some of the series only."""
    return (evaluation.summary.torch_series or 0) < evaluation.summary.series


def error_distributions(evaluation: Evaluation) -> "Figure":
    """Histogram, ECDF and violins over series of the scaled absolute error and CRPS."""
    models = shown(evaluation)
    return _distributions(
        {score: scaled(evaluation, score)[models] for score in _TITLES}, colours(evaluation)
    )


def by_torch(evaluation: Evaluation) -> "Figure":
    """The same for our networks and those that PyTorch trained, on the series that both have."""
    models = [evaluation.model, "PyTorch"]
    return _distributions(
        {score: scaled(evaluation, score)[models].dropna() for score in _TITLES},
        colours(evaluation),
    )


def paired(evaluation: Evaluation) -> "Figure":
    """Our score of every series against another model's, and the p-values of the differences."""
    figure, (scatter, ecdf, p_values) = _axes(1, 3, _WIDE)
    pairs = Pairs.of(evaluation, strongest(evaluation))
    _draw_pairs(scatter, pairs, evaluation.model)
    _draw_ratios(ecdf, pairs)
    _draw_p_values(p_values, evaluation)
    return figure


def calibration(evaluation: Evaluation) -> "Figure":
    """Coverage against nominal level, the PIT one step ahead, and the width of bands."""
    figure, (held, transform, widths) = _axes(1, 3, _WIDE)
    _draw_coverage(held, evaluation)
    _draw_pit(transform, evaluation)
    _draw_widths(widths, evaluation)
    return figure


def where(evaluation: Evaluation) -> "Figure":
    """CRPS relative to the naive's by horizon, by date and by volatility of the series."""
    figure, (by_horizon, by_date, by_volatility) = _axes(1, 3, _WIDE)
    paint, models = colours(evaluation), [n for n in shown(evaluation) if n != "Naive"]
    horizons, dates = relative_by_horizon(evaluation), relative_by_date(evaluation)
    deciles = relative_by_volatility(evaluation)
    dots = {"marker": "o", "ms": 3, "lw": 1.5}
    for name in models:
        by_horizon.plot(horizons.index, horizons[name], color=paint[name], label=name, **dots)
        by_date.plot(dates.index, dates[name], color=paint[name], lw=1.3)
        if len(deciles):
            by_volatility.plot(deciles.index, deciles[name], color=paint[name], **dots)
    by_horizon.set_xlabel("horizon")
    by_date.set_xlabel(f"cutoff (mean of {SMOOTHED})")
    by_volatility.set_xlabel("volatility, decile")
    for ax in (by_horizon, by_date, by_volatility):
        ax.set_ylabel(f"{evaluation.sharpest_score.upper()} relative to Naive")
        ax.axhline(1, color=INK, lw=0.8)
    by_horizon.legend(frameon=False)
    by_date.tick_params(axis="x", rotation=30)
    return figure


FIGURES: dict[str, tuple[Callable[[Evaluation], "Figure"], str]] = {
    "error_distributions": (error_distributions, "Errors of every series"),
    "paired": (paired, "Series by series against the strongest rival"),
    "calibration": (calibration, "Coverage, calibration and width of the bands"),
    "where": (where, "Errors by horizon, date and volatility"),
}
TORCH_FIGURE = (by_torch, "Networks of the same kind trained by PyTorch, each series by itself")


def figures_of(
    evaluation: Evaluation,
) -> dict[str, tuple[Callable[[Evaluation], "Figure"], str]]:
    """By name, how each figure of an evaluation is drawn, and its caption."""
    return FIGURES | ({"by_torch": TORCH_FIGURE} if evaluation.summary.has_torch else {})


def _distributions(tables: Mapping[str, pd.DataFrame], paint: Mapping[str, str]) -> "Figure":
    """A row of axes per score; tables have a row per series and a column per model."""
    figure, axes = _axes(2, 3, _TALL)
    for (histogram, ecdf, violins), (score, table) in zip(axes, tables.items(), strict=True):
        high = float(np.nanquantile(table.to_numpy(), 0.995))
        bins = np.linspace(float(np.nanmin(table.to_numpy())), high, 30)
        values = {str(name): table[name].dropna().to_numpy() for name in table}
        for name, errors in values.items():
            if len(errors):
                style = {"color": paint[name], "lw": 1.5}
                histogram.hist(errors, bins=bins, histtype="step", label=name, **style)
                _draw_ecdf(ecdf, errors, **style)
        _draw_violins(violins, values, paint)
        histogram.set(xlabel=_TITLES[score], ylabel="series")
        ecdf.set(xlabel=_TITLES[score], ylabel="share of series below", xlim=(bins[0], bins[-1]))
    axes[0][0].legend(frameon=False)
    return figure


def _draw_ecdf(ax: "Axes", values: np.ndarray, **style: str | float) -> None:
    share = np.arange(1, len(values) + 1) / len(values)
    ax.step(np.sort(values), share, where="post", **style)  # pyright: ignore[reportArgumentType]


def _draw_violins(ax: "Axes", values: Mapping[str, np.ndarray], paint: Mapping[str, str]) -> None:
    usable = {name: v for name, v in values.items() if len(v) > 1 and np.ptp(v) > 0}
    if not usable:
        return
    parts = ax.violinplot(list(usable.values()), showmedians=True, widths=0.8)
    bodies: Any = parts["bodies"]
    for body, name in zip(bodies, usable, strict=True):
        body.set_facecolor(paint[name])
        body.set_alpha(0.5)
    for key in ("cmedians", "cmins", "cmaxes", "cbars"):
        parts[key].set_color(INK)
        parts[key].set_linewidth(0.8)
    ax.set_xticks(range(1, len(usable) + 1), list(usable))
    ax.set_ylim(0, float(np.quantile(np.concatenate(list(usable.values())), 0.995)))


def _draw_pairs(ax: "Axes", pairs: Pairs, model: str) -> None:
    x, y, significant = pairs.others, pairs.ours, pairs.significant
    ax.scatter(x[~significant], y[~significant], s=9, color=_OURS, alpha=0.6, lw=0)
    ax.scatter(x[significant], y[significant], s=16, color=_SIGNIFICANT, lw=0)
    ends = np.nanmin([x, y]), np.nanquantile([x, y], 0.997)
    ax.plot(ends, ends, color=INK, lw=0.8)
    ax.set(xlim=ends, ylim=ends)
    ax.set_xlabel(f"CRPS of {pairs.other}, scaled")
    ax.set_ylabel(f"CRPS of {model}, scaled")


def _draw_ratios(ax: "Axes", pairs: Pairs) -> None:
    ratio = pairs.ours / pairs.others
    _draw_ecdf(ax, ratio, color=_OURS)
    ax.axvline(1, color=INK, lw=0.8)
    low, high = np.nanquantile(ratio, [0.005, 0.995])
    ax.set_xlim(low - 0.005, high + 0.005)
    ax.set_xlabel(f"CRPS relative to {pairs.other}")
    ax.set_ylabel("share of series below")


def _draw_p_values(ax: "Axes", evaluation: Evaluation) -> None:
    paint, tests = colours(evaluation), comparison_tests(evaluation)
    for name in [name for name in shown(evaluation) if name != evaluation.model]:
        p = tests[tests["model"] == name]["p_value"].dropna()
        if len(p):
            ax.hist(p, np.linspace(0, 1, 21).tolist(), histtype="step", lw=1.5,
                    color=paint[name], label=f"against {name}")  # fmt: skip
    ax.set_xlabel("p-value, Diebold-Mariano")
    ax.set_ylabel("series")
    if ax.get_legend_handles_labels()[0]:
        ax.legend(frameon=False)


def _draw_coverage(ax: "Axes", evaluation: Evaluation) -> None:
    paint, held = colours(evaluation), coverage(evaluation)
    for name in shown(evaluation):
        rows = held[(held["model"] == name) & (held["horizon"] == 1)]
        if len(rows):
            nominal = rows["level"] / 100
            ax.plot(nominal, rows["held"] - nominal, color=paint[name],
                    marker="o", ms=3, lw=1.5, label=name)  # fmt: skip
    ax.axhline(0, color=INK, lw=0.8)
    ax.set_xlabel("nominal level")
    ax.set_ylabel("share held less nominal")
    ax.legend(frameon=False)


def _draw_pit(ax: "Axes", evaluation: Evaluation) -> None:
    edges, shares = pit(evaluation)
    if len(shares):
        ax.bar(edges[:-1], shares / np.diff(edges), np.diff(edges), align="edge",
               color=_OURS, alpha=0.75, edgecolor="white", lw=0.4)  # fmt: skip
        ax.axhline(1, color=INK, lw=0.8)
    ax.set_xlabel(f"PIT of {evaluation.model}")
    ax.set_ylabel("density (1: calibrated)")


def _draw_widths(ax: "Axes", evaluation: Evaluation) -> None:
    paint = colours(evaluation)
    for name in shown(evaluation):
        widths = median_widths(evaluation, name)
        if widths.notna().any():
            ax.plot(widths.index, widths, color=paint[name], lw=1.5)
    ax.set_xlabel("nominal level")
    ax.set_ylabel("median width, scaled")


def _axes(rows: int, columns: int, size: tuple[float, float]) -> "tuple[Figure, np.ndarray]":
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(rows, columns)
    for ax in np.ravel(axes):
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(color=PALE, alpha=0.5, lw=0.6)
        ax.tick_params(colors=INK, labelsize=9)
    return figure, axes
