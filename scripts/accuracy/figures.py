"""Draw figures of the tables that ``accuracy.py`` makes.

    python scripts/accuracy/figures.py [FOLDER]

Draws ``stocks.png`` and ``m4.png`` from the CSV files of the same names, in the folder of this
script or in another.
"""

import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

OURS, OTHERS, GRID = "#0b6e99", "#7a7a7a", "#dddddd"
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
FARTHEST = 1.03  # larger (worse) values are drawn at the edge, with their numbers


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    for name, draw in FIGURES.items():
        table = folder / f"{name}.csv"
        if table.exists():
            draw(pd.read_csv(table), table.with_suffix(".png"))


def draw_stocks(table: pd.DataFrame, path: Path) -> None:
    """Draw each model's CRPS relative to GARCH, by year and days ahead; ours above the others."""
    order = table.groupby("model")["crps"].mean().sort_values().index[::-1]
    figure, axes = plt.subplots(1, 2, figsize=(10, 0.36 * len(order) + 1.5), sharey=True)
    for axis, ahead in zip(axes, sorted(table["ahead"].unique()), strict=True):
        part = table[table["ahead"] == ahead]
        for marker, (year, rows) in zip(MARKERS, part.groupby("year"), strict=False):
            places = [order.get_loc(model) for model in rows["model"]]
            colours = [OURS if name.startswith("LSTM") else OTHERS for name in rows["model"]]
            axis.scatter(np.minimum(rows["crps"], FARTHEST), places, c=colours, marker=marker,
                         s=34, label=str(year), zorder=3)  # fmt: skip
        for place, model in enumerate(order):
            beyond = part[(part["model"] == model) & (part["crps"] > FARTHEST)]["crps"]
            if len(beyond):
                said = f"{beyond.min():.2f}" if len(beyond) == 1 else (
                    f"{beyond.min():.2f} to {beyond.max():.2f}")  # fmt: skip
                axis.annotate(said, (FARTHEST, place), xytext=(4, 5), ha="right", va="bottom",
                              textcoords="offset points", fontsize=8, color=OTHERS)  # fmt: skip
        axis.axvline(1, color="black", linewidth=0.8)
        axis.set(title=f"{ahead} day{'s' if ahead > 1 else ''} ahead",
                 xlabel="CRPS, GARCH-t = 1 (further left is better)")  # fmt: skip
        axis.grid(axis="x", color=GRID)
        axis.spines[["top", "right", "left"]].set_visible(False)
        axis.tick_params(axis="y", length=0)
    axes[0].set_yticks(range(len(order)), [label(name) for name in order])
    axes[1].legend(title="year", frameon=False, fontsize=8, loc="upper right")
    finish(figure, path)


def draw_m4(table: pd.DataFrame, path: Path) -> None:
    """Draw each model's OWA on M4's hourly and weekly series, by origin."""
    kinds = list(table["panel"].unique())
    rows = -(-len(kinds) // 2)
    figure, axes = plt.subplots(rows, 2, figsize=(10, 2.8 * rows), squeeze=False)
    for axis, kind in zip(axes.flat, kinds, strict=False):
        part = table[table["panel"] == kind]
        order = part.groupby("model")["owa"].mean().sort_values().index[::-1]
        worst = min(2.0, part["owa"].max())
        for marker, (origin, one) in zip(MARKERS, part.groupby("origin"), strict=False):
            places = [order.get_loc(model) for model in one["model"]]
            colours = [OURS if name == "LSTM" else OTHERS for name in one["model"]]
            axis.scatter(np.minimum(one["owa"], worst), places, c=colours, marker=marker, s=34,
                         label=f"{origin + 1} horizon{'s' if origin else ''} before the end",
                         zorder=3)  # fmt: skip
        for place, model in enumerate(order):
            beyond = part[(part["model"] == model) & (part["owa"] > worst)]["owa"]
            if len(beyond):
                axis.annotate(f"{beyond.mean():.1f}", (worst, place), xytext=(-8, 0), ha="right",
                              textcoords="offset points", va="center", fontsize=8,
                              color=OTHERS)  # fmt: skip
        axis.axvline(1, color="black", linewidth=0.8)
        series = int(part["series"].iloc[0])
        axis.set(title=f"M4 {kind}, {series} series", xlabel="OWA, Naive2 = 1")
        axis.set_yticks(range(len(order)), [label(name) for name in order])
        axis.grid(axis="x", color=GRID)
        axis.spines[["top", "right", "left"]].set_visible(False)
        axis.tick_params(axis="y", length=0)
    axes[0, -1].legend(frameon=False, fontsize=8, loc="upper right")
    finish(figure, path)


def label(model: str) -> str:
    """Return a model's name in a figure."""
    said = {
        "LSTM": "this program",
        "LSTM pooled": "this program",
        "LSTM alone": "this program, networks alone",
        "LSTM independent": "this program, independent",
        "Naive": "unchanged",
        "SeasonalNaive": "seasonal naive",
        "Empirical": "the latest 250 changes",
        "GARCH": "GARCH-t",
        "GJR": "GJR-t",
        "AutoETS": "ETS",
        "AutoTheta": "Theta",
    }
    return said.get(model, model)


def finish(figure: plt.Figure, path: Path) -> None:
    """Write a figure and close it."""
    figure.tight_layout()
    figure.savefig(path, dpi=130)
    plt.close(figure)


FIGURES = {"stocks": draw_stocks, "m4": draw_m4}

if __name__ == "__main__":
    main()
