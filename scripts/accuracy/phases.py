"""Measure what bands gain by errors that may differ by the phase of the season.

    FORECASTER_TEST_DATA=... python scripts/accuracy/phases.py [--quick]

The combination of simple forecasts is scored alone, without networks and classical models, with
sizes of errors by phase and without. Quantiles are those of the standardised errors in the second
quarter of each series; the loss is the mean over six of them in the later half. Simulated are net
load and solar power by the hour, over 120 days, and random walks. Writes ``phases.csv`` beside this
script: the mean ratio of losses over the series of a panel, the largest, the share of series that
change, and by how much the coverage of 80 % bands differs by phase.
"""

import argparse
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from unittest import mock

import numpy as np
import pandas as pd

from forecaster.series.combination.anchors import by_target_step
from forecaster.series.combination.combined import combined

QUANTILES = np.array([0.025, 0.1, 0.25, 0.75, 0.9, 0.975])


def scored(z: np.ndarray, seasons: Sequence[int], horizon: int, zeros: bool) -> tuple[float, float]:
    """Return the mean quantile loss, and the deviation of the coverage from phase to phase."""
    made, half = combined(z, seasons, horizon, nonnegative=zeros), len(z) // 2
    base, unit = by_target_step(made.base), by_target_step(made.scale * made.relative)
    with np.errstate(divide="ignore", invalid="ignore"):
        errors = (z[:, None] - base) / unit
    errors = np.where(np.isfinite(errors), errors, np.nan)
    known = np.nanquantile(errors[half // 2 : half], QUANTILES)
    bands = base[half:, :, None] + unit[half:, :, None] * known
    beside = z[half:, None, None] - bands
    loss = np.maximum(QUANTILES * beside, (QUANTILES - 1) * beside).mean(-1)
    inside = (beside[..., 1] >= 0) & (beside[..., 4] <= 0)
    phases = np.arange(half, len(z)) % seasons[0]
    is_open = [np.median(np.abs(z[half:][phases == k])) > 0 for k in range(seasons[0])]
    covered = [inside[phases == k].mean() for k in np.flatnonzero(is_open)]
    return float(np.nanmean(loss)), float(np.std(covered))


def simulated() -> Iterator[tuple[str, list[np.ndarray], tuple[int, ...], int, bool]]:
    """Yield the name, series, seasons and horizon of panels, and whether they have zeros."""
    random, steps = np.random.default_rng(0), np.arange(24 * 120)
    sun = np.clip(np.sin(np.pi * (steps % 24 - 6) / 12), 0, None)
    load: list[np.ndarray] = []
    solar: list[np.ndarray] = []
    for _ in range(10):
        clouds = np.repeat(random.beta(3, 2, len(steps) // 24), 24)
        noise = np.zeros(len(steps))
        for step in steps[1:]:
            noise[step] = 0.8 * noise[step - 1] + 0.3 * random.normal()
        load.append(20 + 5 * np.sin(2 * np.pi * (steps - 8) / 24) + noise - 15 * sun * clouds)
        flicker = 0.2 * (sun > 0) * random.normal(size=len(steps))
        solar.append(np.maximum(10 * sun * clouds + flicker, 0))
    yield "net load, simulated", load, (24, 168), 24, False
    yield "solar power, simulated", solar, (24, 168), 24, True
    for season in (7, 12, 24):
        walks = [random.normal(size=900).cumsum() for _ in range(15)]
        yield f"random walks, season {season}", walks, (season,), 12, False


def real() -> Iterator[tuple[str, list[np.ndarray], tuple[int, ...], int, bool]]:
    """Yield as :func:`simulated` does: logarithms of real series."""
    folder = Path(os.environ["FORECASTER_TEST_DATA"])
    for kind, seasons, horizon in (("hourly", (24, 168), 48), ("weekly", (52,), 13)):
        frame = pd.read_parquet(folder / f"m4_{kind}_train.parquet").set_axis(
            ["id", "ds", "y"], axis=1
        )
        rows = [part.to_numpy(float) for _, part in frame.groupby("id", observed=True)["y"]]
        rows = [np.log(row) for row in rows if row.min() > 0 and len(row) > 600][::3]
        yield f"M4 {kind}, one in three", rows, seasons, horizon, False
    small = pd.read_parquet(folder / "small_panels.parquet")
    for name, season, horizon in (("nn5", 7, 56), ("nn3", 12, 18)):
        groups = small[small["panel"] == name].groupby("unique_id", observed=True)["y"]
        rows = [part.interpolate().bfill().to_numpy(float) for _, part in groups]
        rows = [np.log(np.maximum(row, row[row > 0].min())) for row in rows if len(row) > 100]
        yield name.upper(), rows, (season,), horizon, False
    m1 = pd.read_parquet(folder / "m1.parquet")
    groups = m1[m1["period"] == "MONTHLY"].groupby("unique_id", observed=True)["y"]
    rows = [part.to_numpy(float) for _, part in groups]
    rows = [np.log(row) for row in rows if row.min() > 0 and len(row) > 120]
    yield "M1 monthly", rows, (12,), 18, False


def main() -> None:
    parser = argparse.ArgumentParser(description="What errors by phase are worth.")
    parser.add_argument("--quick", action="store_true", help="a try; writes to a temporary folder")
    quick = parser.parse_args().quick
    table: list[dict[str, object]] = []
    for name, rows, seasons, horizon, zeros in (*simulated(), *(() if quick else real())):
        rows = rows[:1] if quick else rows
        by_phase = np.array([scored(z, seasons, horizon, zeros) for z in rows])
        with mock.patch(
            "forecaster.series.combination.combined.sizes_by_phase",
            lambda errors, season, horizon: np.ones((*errors.shape, horizon)),
        ):
            without = np.array([scored(z, seasons, horizon, zeros) for z in rows])
        ratios = by_phase[:, 0] / without[:, 0]
        table.append(
            {"panel": name, "series": len(rows), "ratio": ratios.mean(), "largest": ratios.max(),
             "changed": (ratios != 1).mean(), "by_phase_without": without[:, 1].mean(),
             "by_phase": by_phase[:, 1].mean()}
        )  # fmt: skip
        print(table[-1], flush=True)
    path = Path(tempfile.mkdtemp() if quick else Path(__file__).parent) / "phases.csv"
    pd.DataFrame(table).round(4).to_csv(path, index=False)


if __name__ == "__main__":
    main()
