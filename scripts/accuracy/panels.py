"""Score classical models on panels of competitions.

    python scripts/accuracy/panels.py [PANEL ...] [--models ETS,CES] [--output panels.csv] [--quick]

Each series is forecast once, over its last horizon. ``FORECASTER_TEST_DATA`` names the folder with
``m1.parquet``, ``small_panels.parquet`` (carparts, NN3, NN5) and M4's training files, whose last
horizon is withheld. "simulated monthly" is 10,000 series of 60 rows. Missing values are
interpolated for forecasting, and are not scored.

ETS, Theta and CES are those of ``forecaster.classical``. Their 80 % bands, and the bands of the
last value and of the season before, are normal, from the errors known at the end of each series.
Rows of AutoETS, DynamicOptimizedTheta, AutoCES, CrostonSBA, TSB, ADIDA and MSTL were measured with
the library statsforecast (2.1), those of the default by an earlier form of this script;
``scoreboard.py`` scores it now.

A row per panel and model, each measured in a process of its own: ``mase`` and ``smape`` (percent),
means over series; ``coverage``, the share of outcomes inside the 80 % bands; ``refused``, the
number of series without a forecast, which count as forecast by their last value; ``seconds``,
without imports (and for AutoCES without its bands, which are simulated; empty for models that were
measured beside other work); ``memory``, the peak of the process in MB. Rows that are not measured
again are kept in the file.
"""

import argparse
import multiprocessing
import os
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
import pandas as pd
from scipy.special import ndtri

from forecaster.classical import ces_ahead, ets_ahead, fit_ces, fit_ets, fit_theta, theta_ahead
from forecaster.evaluation.baselines.simple import deviations


class Panel(NamedTuple):
    """Series to forecast: ``known`` values, as they are, and the values that ``came``."""

    season: int
    horizon: int
    known: list[np.ndarray]
    came: list[np.ndarray]

    def filled(self) -> list[np.ndarray]:
        """Return the known values of each series from its first value on, without gaps."""
        return [pd.Series(y).interpolate().dropna().to_numpy() for y in self.known]


class Made(NamedTuple):
    """Forecasts (series, horizon) with 80 % bands; their cost in seconds and MB."""

    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    seconds: float
    memory: float


Ahead: TypeAlias = Callable[[list[np.ndarray], int, int], list[np.ndarray]]
"""A function of rows, season and horizon: forecasts made at every value (time, horizon)."""


def ets(rows: list[np.ndarray], season: int, horizon: int) -> list[np.ndarray]:
    return ets_ahead(rows, fit_ets(rows, season), [len(row) for row in rows], horizon)


def theta(rows: list[np.ndarray], season: int, horizon: int) -> list[np.ndarray]:
    return theta_ahead(rows, fit_theta(rows, season), horizon)


def ces(rows: list[np.ndarray], season: int, horizon: int) -> list[np.ndarray]:
    return ces_ahead(rows, fit_ces(rows, season), horizon)


def naive(rows: list[np.ndarray], season: int, horizon: int) -> list[np.ndarray]:
    return [np.repeat(row[:, None], horizon, axis=1) for row in rows]


def seasonal_naive(rows: list[np.ndarray], season: int, horizon: int) -> list[np.ndarray]:
    back = np.arange(horizon) % season - season + 1
    steps = [np.maximum(np.arange(len(row))[:, None] + back, 0) for row in rows]
    return [row[step] for row, step in zip(rows, steps, strict=True)]


OURS: dict[str, Ahead] = {
    "ETS": ets,
    "Theta": theta,
    "CES": ces,
    "Naive": naive,
    "SeasonalNaive": seasonal_naive,
}


def m1(period: str, season: int, horizon: int) -> Panel:
    frame = read("m1.parquet")
    return split(frame[frame["period"].astype(str) == period], season, horizon)


def small(name: str, season: int, horizon: int) -> Panel:
    frame = read("small_panels.parquet")
    return split(frame[frame["panel"].astype(str) == name], season, horizon)


def split(frame: pd.DataFrame, season: int, horizon: int) -> Panel:
    """Return the series of a frame that says which rows are to be forecast."""
    known, came = (rows_of(frame[frame["split"] == part]) for part in ("train", "test"))
    return Panel(season, horizon, known, came)


def m4(kind: str, season: int, horizon: int) -> Panel:
    frame = read(f"m4_{kind}_train.parquet").set_axis(["unique_id", "ds", "y"], axis=1)
    rows = rows_of(frame)
    return Panel(
        season, horizon, [row[:-horizon] for row in rows], [row[-horizon:] for row in rows]
    )


def simulated(series: int, rows: int, season: int, horizon: int) -> Panel:
    """Return random walks with drift, season and noise of many sizes; a third have no season."""
    random = np.random.default_rng(0)
    steps = np.arange(rows + horizon)
    made = []
    for number in range(series):
        walk = np.cumsum(random.normal(random.normal(0, 0.2), random.uniform(0, 1), len(steps)))
        angle = 2 * np.pi * (steps / season + random.uniform())
        size = random.uniform(0, 5) * (number % 3 > 0)
        noise = random.normal(scale=random.uniform(0.5, 2), size=len(steps))
        made.append(100 + walk + size * (np.sin(angle) + 0.5 * np.sin(2 * angle)) + noise)
    return Panel(season, horizon, [y[:rows] for y in made], [y[rows:] for y in made])


def rows_of(frame: pd.DataFrame) -> list[np.ndarray]:
    parts = frame.sort_values("ds").groupby(frame["unique_id"].astype(str))
    return [part.to_numpy(float) for _, part in parts["y"]]


def read(name: str) -> pd.DataFrame:
    return pd.read_parquet(Path(os.environ["FORECASTER_TEST_DATA"]) / name)


PANELS: dict[str, Callable[[], Panel]] = {
    "M1 yearly": lambda: m1("YEARLY", 1, 6),
    "M1 quarterly": lambda: m1("QUARTERLY", 4, 8),
    "M1 monthly": lambda: m1("MONTHLY", 12, 18),
    "NN3": lambda: small("nn3", 12, 18),
    "NN5": lambda: small("nn5", 7, 56),
    "carparts": lambda: small("carparts", 12, 12),
    "M4 hourly": lambda: m4("hourly", 24, 48),
    "M4 weekly": lambda: m4("weekly", 1, 13),
    "simulated monthly": lambda: simulated(10_000, 60, 12, 12),
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Classical models on panels of competitions.")
    parser.add_argument("panels", nargs="*", metavar="PANEL", help=f"any of {', '.join(PANELS)}")
    parser.add_argument("--models", help="comma-separated; by default all")
    parser.add_argument("--output", type=Path, default=Path(__file__).with_suffix(".csv"))
    parser.add_argument("--quick", action="store_true", help="a try; writes to a temporary folder")
    options = parser.parse_args()
    panels = {name: PANELS[name] for name in options.panels or PANELS}
    if options.quick:
        panels = {"simulated monthly": lambda: simulated(20, 60, 12, 12)}
        options.output = Path(tempfile.mkdtemp()) / options.output.name
    rows: dict[tuple[str, str], dict] = {}
    if options.output.exists():
        kept = pd.read_csv(options.output).to_dict("records")
        rows = {(str(row["panel"]), str(row["model"])): row for row in kept}
    for name, make in panels.items():
        panel = make()
        for model in options.models.split(",") if options.models else OURS:
            made = measured(model, panel)
            rows[name, model] = {"panel": name, "model": model, **scored(panel, made)}
            print(*rows[name, model].values(), flush=True)
            pd.DataFrame(rows.values()).to_csv(options.output, index=False)


def measured(model: str, panel: Panel) -> Made:
    """Forecast by a model in a process of its own."""
    context = multiprocessing.get_context("spawn")  # JAX's threads forbid a fork
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(by_ours, model, panel).result()


def by_ours(model: str, panel: Panel) -> Made:
    began = time.perf_counter()
    rows = panel.filled()
    made = OURS[model](rows, panel.season, panel.horizon)
    mean = np.array([ahead[-1] for ahead in made])
    half = [deviations(row, ahead)[-1] for row, ahead in zip(rows, made, strict=True)]
    half = np.array(half) * ndtri(0.9)
    return Made(mean, mean - half, mean + half, time.perf_counter() - began, peak())


def peak() -> float:
    """Return this process's peak memory in MB."""
    # getrusage of a new process includes its parent's memory.
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmHWM:"))) / 1024


def scored(panel: Panel, made: Made) -> dict[str, float | None]:
    """Return the scores of a model's forecasts."""
    refused = np.isnan(made.mean.sum(1))
    last = np.array([row[-1] for row in panel.filled()])
    mean = np.where(refused[:, None], last[:, None], made.mean)
    with warnings.catch_warnings():  # from series without any known value to score
        warnings.simplefilter("ignore", RuntimeWarning)
        mase = np.nanmean(list(scaled_errors(panel, mean)))
        smape = np.nanmean(percent_errors(panel.came, mean))
    came = np.array(panel.came)
    there = ~np.isnan(came + made.low)
    inside = np.logical_and(made.low[there] <= came[there], came[there] <= made.high[there])
    return {
        "series": len(mean),
        "refused": int(refused.sum()),
        "mase": round(float(mase), 4),
        "smape": round(float(smape), 3),
        "coverage": round(float(inside.mean()), 4) if inside.size else None,
        "seconds": round(made.seconds, 2),
        "memory": round(made.memory),
    }


def scaled_errors(panel: Panel, mean: np.ndarray) -> Iterator[float]:
    """Yield each series' mean absolute error over that of the season before; NaN if that is 0."""
    for known, came, forecast in zip(panel.known, panel.came, mean, strict=True):
        scale = np.nanmean(np.abs(known[panel.season :] - known[: -panel.season]))
        yield float(np.nanmean(np.abs(came - forecast)) / scale) if scale > 0 else np.nan


def percent_errors(came: Sequence[np.ndarray], mean: np.ndarray) -> np.ndarray:
    """Return the sMAPE of each series in percent; a forecast of 0 for 0 has no error."""
    total = np.abs(came) + np.abs(mean)
    missed = np.abs(np.array(came) - mean)
    return np.nanmean(200 * missed / np.where(total == 0, 1, total), axis=1)


if __name__ == "__main__":
    main()
