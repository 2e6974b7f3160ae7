"""Draw the two pictures of README.md into docs/assets: a forecast, and an evaluation.

    python scripts/pictures.py [--quick]

The forecast is of the simulated market and takes seconds to train; the evaluation is drawn from the
tables in scripts/evaluation_2015.
"""

import argparse
import tempfile
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

import forecaster as fc

ROOT = Path(__file__).resolve().parents[1]
ASSETS = ROOT / "docs" / "assets"
TABLES = ROOT / "scripts" / "evaluation_2015"
COLOURS = {
    "LSTM": "#1f5fa8", "PyTorch": "#c4402a", "Naive": "#6c727c", "GARCH": "#2a7a47",
    "EWMA": "#946200",
}  # fmt: skip
NAMES = {
    "Naive": 'random walk ("unchanged")', "EWMA": "EWMA (RiskMetrics)", "GARCH": "GARCH-t",
    "PyTorch": "PyTorch (50 stocks)",
}  # fmt: skip
LINES = {"LSTM": "-", "PyTorch": (0, (2, 1.5)), "Naive": "-", "EWMA": ":", "GARCH": "--"}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a try; writes to a temporary folder")
    folder = Path(tempfile.mkdtemp()) if parser.parse_args().quick else ASSETS
    for name, draw in {"forecast.png": forecast, "evaluation.png": evaluation}.items():
        draw().savefig(folder / name, dpi=110)
        print(folder / name)


def forecast() -> Figure:
    """Draw a forecast of ten sessions of a simulated Apple, with three bands."""
    panel = fc.load_panel("simulated", tickers=["AAPL"])
    model = fc.fit(panel, fc.Config(horizon=10), seed=0)
    frame = fc.predict(model, panel, level=[50, 80, 95])
    figure = Figure(figsize=(9, 4), layout="constrained")
    axes = fc.plot_forecast(panel, frame, "AAPL", history=60, ax=figure.add_subplot())
    axes.set_title("AAPL (simulated)", loc="left", fontweight="bold")
    return figure


def evaluation() -> Figure:
    """Draw coverage of bands minus their level (left), and CRPS against other models (right)."""
    figure = Figure(figsize=(11, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    held(left, pd.read_csv(TABLES / "coverage.csv"))
    against(right, pd.read_csv(TABLES / "comparison.csv"))
    for axes in (left, right):
        axes.axhline(0 if axes is left else 1, color="#333333", lw=1)
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=9)
    return figure


def held(axes, coverage: pd.DataFrame) -> None:
    tomorrow = coverage[coverage["horizon"] == 1]
    for model, colour in COLOURS.items():
        rows = tomorrow[tomorrow["model"] == model].sort_values("level")
        off = 100 * rows["held"] - rows["level"]
        wide = model == "LSTM"  # so that it shows below an equal line
        axes.plot(
            rows["level"], off, "o", ls=LINES[model], lw=5 if wide else 1.5, ms=7 if wide else 4,
            alpha=0.6 if wide else 1, color=colour, label=NAMES.get(model, model),
        )  # fmt: skip
    axes.set_title("What bands hold, less what they say", loc="left", fontsize=11)
    axes.set_xlabel("level of the band, %")
    axes.set_ylabel("percentage points, one day ahead")


def against(axes, comparison: pd.DataFrame) -> None:
    crps = comparison[comparison["score"] == "crps"]
    for model, name in NAMES.items():
        rows = crps[crps["model"] == model].sort_values("horizon")
        axes.plot(
            rows["horizon"], rows["ratio"], "o", ls=LINES[model], ms=4, color=COLOURS[model],
            label=f"against {name}",
        )  # fmt: skip
    axes.set_title("CRPS of the LSTM relative to a baseline", loc="left", fontsize=11)
    axes.set_xlabel("days ahead")
    axes.set_ylabel("mean ratio over the stocks; below 1: better")
    axes.set_xticks(sorted(crps["horizon"].unique()))


if __name__ == "__main__":
    main()
