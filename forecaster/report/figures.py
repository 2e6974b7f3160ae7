"""The figures of an evaluation that are written to files, each a matplotlib Figure."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from forecaster.evaluation import (
    MEASURES,
    TORCH,
    Evaluation,
    differences,
    relative,
    strongest,
)
from forecaster.report import numbers

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, PALE = "#222222", "#cccccc"
SHOWN = 5
"""Maximum number of models in one figure."""
_COLOURS = (
    "#1f5fa8", "#c4402a", "#6c727c", "#2a7a47", "#946200", "#7648a0", "#007384", "#a33f70",
)  # fmt: skip
_DASHES = (
    (), (5, 3), (1.5, 2.5), (7, 2, 1.5, 2), (3.5, 1.5), (6, 4), (2, 4.5), (8, 2, 2, 2, 2, 2),
)  # fmt: skip
_OURS, _WORSE, _UNSURE = _COLOURS[:3]
_WIDE, _TALL = (12.0, 4.0), (12.0, 7.2)  # inches
_UNITS = {"relative": "'unchanged' = 1", "volatility": "in volatilities"}
_NAMES = {"mae": "absolute error", "crps": "CRPS"}


def error_distributions(evaluation: Evaluation) -> "Figure":
    """Draw ECDFs of each model's errors over the series, a row per score, in both units."""
    scores = evaluation.losses[::-1]
    figure, rows = _axes(len(scores), 2, _TALL if len(scores) > 1 else _WIDE)
    for axes, score in zip(np.atleast_2d(rows), scores, strict=True):
        for ax, (measure, make) in zip(axes, MEASURES.items(), strict=True):
            table = make(evaluation, score, 0)
            for name, style in _styles(evaluation).items():
                errors = table[name].dropna().to_numpy()
                if len(errors):
                    share = np.arange(1, len(errors) + 1) / len(errors)
                    ax.step(np.sort(errors), share, where="post", **style)
            ax.set(xlabel=f"{_NAMES[score]}, {_UNITS[measure]}", ylabel="share of series below")
    np.atleast_2d(rows)[0][0].legend(frameon=False)
    return figure


def paired(evaluation: Evaluation) -> "Figure":
    """Draw each series' error against another model's: differences, and pairs.

    The other model is PyTorch's if it trained any networks, else the strongest.
    """
    figure, (forest, scatter) = _axes(1, 2, _WIDE)
    other = TORCH if evaluation.summary.has_torch else strongest(evaluation)
    if other is None:
        return figure
    score = evaluation.sharpest_score
    table = differences(evaluation, score)
    table = table[(table["model"] == other) & table["difference"].notna()]
    _draw_forest(forest, table.sort_values("difference"), other, score)
    _draw_pairs(scatter, evaluation, table, other)
    return figure


def calibration(evaluation: Evaluation) -> "Figure":
    """Draw the coverage of bands minus their level, the PIT, and the width of bands."""
    figure, (held, transform, widths) = _axes(1, 3, _WIDE)
    _draw_coverage(held, evaluation)
    _draw_pit(transform, evaluation)
    for name, style in _styles(evaluation).items():
        wide = numbers.median_widths(evaluation, name)
        if wide.notna().any():
            widths.plot(wide.index, wide, **style)
    widths.set(xlabel="nominal level", ylabel="median width one step ahead, in volatilities")
    return figure


def where(evaluation: Evaluation) -> "Figure":
    """Draw errors relative to "unchanged" by horizon, by date and by volatility of the series."""
    figure, axes = _axes(1, 3, _WIDE)
    score = evaluation.sharpest_score
    whole = [TORCH] if numbers.sampled_torch(evaluation) else []
    tables = (
        (numbers.relative_by_horizon(evaluation, score), "steps ahead", []),
        (numbers.relative_by_date(evaluation, score),
         f"cutoff (mean of {numbers.SMOOTHED})", whole),
        (numbers.relative_by_volatility(evaluation, score), "volatility, decile", whole),
    )  # fmt: skip
    for ax, (table, label, without) in zip(axes, tables, strict=True):
        for name, style in _styles(evaluation).items():
            if name in table and name not in ("Naive", *without):
                ax.plot(table.index, table[name], **style)
        ax.axhline(1, color=INK, lw=0.8)
        ax.set(xlabel=label, ylabel=f"{_NAMES[score]}, 'unchanged' = 1")
    axes[0].legend(frameon=False)
    axes[1].tick_params(axis="x", rotation=30)
    return figure


FIGURES: Mapping[str, Callable[[Evaluation], "Figure"]] = {
    "error_distributions": error_distributions,
    "paired": paired,
    "calibration": calibration,
    "where": where,
}


def _styles(evaluation: Evaluation) -> dict[str, dict]:
    """Return the style of each model's line; ours is drawn on top."""
    slots = numbers.slots(evaluation)
    return {
        name: {
            "color": _COLOURS[slots[name] - 1], "label": name,
            "lw": 2.2 if name == evaluation.model else 1.5,
            "zorder": 3 if name == evaluation.model else 2,
            "ls": (0, _DASHES[slots[name] - 1]) if _DASHES[slots[name] - 1] else "-",
        }
        for name in numbers.ordered(evaluation)[:SHOWN]
    }  # fmt: skip


def _kinds(table: pd.DataFrame) -> dict[str, tuple[np.ndarray, str]]:
    """Return a mask of the rows and a colour for each kind of difference."""
    sure, lower = numbers.significant(table).to_numpy(), (table["difference"] < 0).to_numpy()
    return {
        "not significant": (~sure, _UNSURE),
        "significantly better": (sure & lower, _OURS),
        "significantly worse": (sure & ~lower, _WORSE),
    }


def _draw_forest(ax: "Axes", table: pd.DataFrame, other: str, score: str) -> None:
    rank, percent = np.arange(1, len(table) + 1), 100 * table[["difference", "low", "high"]]
    for label, (chosen, paint) in _kinds(table).items():
        if chosen.any():
            middle, low, high = percent[chosen].to_numpy().T
            ax.vlines(rank[chosen], low, high, color=paint, alpha=0.45, lw=1)
            ax.scatter(rank[chosen], middle, s=7, color=paint, lw=0, label=label)
    ax.axhline(0, color=INK, lw=0.8)
    ax.set(xlabel="series, sorted", ylabel=f"{_NAMES[score]} less {other}'s, %")
    if len(table):
        ax.legend(frameon=False)


def _draw_pairs(ax: "Axes", evaluation: Evaluation, table: pd.DataFrame, other: str) -> None:
    score = evaluation.sharpest_score
    both = relative(evaluation, score).reindex(table["unique_id"])
    x, y = both[other].to_numpy(), both[evaluation.model].to_numpy()
    for chosen, paint in _kinds(table).values():
        ax.scatter(x[chosen], y[chosen], s=12, color=paint, alpha=0.8, lw=0)
    known = np.concatenate([x, y])
    known = known[np.isfinite(known)]
    if len(known):
        room = 0.03 * (np.ptp(known) or 1.0)
        ends = known.min() - room, known.max() + room
        ax.plot(ends, ends, color=INK, lw=0.8)
        ax.set(xlim=ends, ylim=ends)
    ax.set_xlabel(f"{_NAMES[score]} of {other}, 'unchanged' = 1")
    ax.set_ylabel(f"{_NAMES[score]} of {evaluation.model}")


def _draw_coverage(ax: "Axes", evaluation: Evaluation) -> None:
    held = numbers.mean_coverage(evaluation)
    for name, style in _styles(evaluation).items():
        if name in held.index.get_level_values("model"):
            own = held[name]
            level = own.index.to_numpy(float) / 100
            ax.plot(level, own.to_numpy() - level, marker="o", ms=3, **style)
    ax.axhline(0, color=INK, lw=0.8)
    ax.set(xlabel="nominal level", ylabel="coverage less nominal, all horizons")
    if ax.get_legend_handles_labels()[0]:
        ax.legend(frameon=False)


def _draw_pit(ax: "Axes", evaluation: Evaluation) -> None:
    edges, counts = numbers.pits(evaluation)
    if evaluation.model in counts:
        heights = numbers.density(edges, counts[evaluation.model].sum().to_numpy())
        ax.bar(edges[:-1], heights, np.diff(edges), align="edge",
               color=_OURS, alpha=0.75, edgecolor="white", lw=0.4)  # fmt: skip
        ax.axhline(1, color=INK, lw=0.8)
    ax.set(xlabel=f"PIT of {evaluation.model}, all horizons", ylabel="density (1: calibrated)")


def _axes(rows: int, columns: int, size: tuple[float, float]) -> "tuple[Figure, np.ndarray]":
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(rows, columns)
    for ax in np.ravel(axes):
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(color=PALE, alpha=0.5, lw=0.6)
        ax.set_axisbelow(True)
        ax.tick_params(colors=INK, labelsize=9)
    return figure, axes
