"""Score classical models on panels of competitions, beside statsforecast and the networks.

    python scripts/accuracy/panels.py [PANEL ...] [--models ETS,CES] [--statsforecast PYTHON]
        [--networks] [--output panels.csv]

Each series is forecast once, over its last horizon. ``FORECASTER_TEST_DATA`` names the folder with
``m1.parquet``, ``small_panels.parquet`` (carparts, NN3, NN5) and M4's training files, whose last
horizon is withheld. "simulated monthly" is 10,000 series of 60 rows. Missing values are
interpolated for forecasting, and are not scored.

- ETS, Theta and CES are those of ``forecaster.classical``. Their 80 % bands, and the bands of the
  last value and of the season before, are normal, from the errors known at the end of each series
- ``--statsforecast``: an interpreter that has statsforecast, as it may need other libraries than we
  do; without this option its models are left out. Three of them have bands
- ``--networks``: also ``forecaster.fit`` and ``predict``, with the horizon as the only setting

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
import subprocess
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
from forecaster.errors import NoSeries
from forecaster.evaluation.baselines.statistical import deviations
from forecaster.processes import memory_used

THEIRS = ("AutoETS", "DynamicOptimizedTheta", "AutoCES", "CrostonSBA", "TSB", "ADIDA", "MSTL")
NETWORKS = "default"


class Panel(NamedTuple):
    """Series to forecast: ``known`` values, as they are, and the values that ``came``.

    - ``first``: the first day, or hour, if networks are to see dates
    - ``seasons``: several seasons, where the series have them; MSTL is for these alone
    """

    season: int
    horizon: int
    known: list[np.ndarray]
    came: list[np.ndarray]
    first: str | None = None
    seasons: tuple[int, ...] = ()

    def times(self, count: int) -> np.ndarray:
        """Return the first times of a series, days or whole numbers."""
        steps = np.arange(count)
        return steps if self.first is None else np.datetime64(self.first) + steps

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


def m4_hourly_of(days: int) -> Panel:
    """Return M4's hourly series with the last days before the horizon only."""
    whole = m4("hourly", 24, 48)
    known = [row[-24 * days :] for row in whole.known]
    return whole._replace(known=known, first="2024-01-01T00", seasons=(24, 168))


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
    "NN5 with dates": lambda: small("nn5", 7, 56)._replace(first="1996-03-18"),
    "carparts": lambda: small("carparts", 12, 12),
    "M4 hourly": lambda: m4("hourly", 24, 48),
    "M4 hourly, 14 days": lambda: m4_hourly_of(14),
    "M4 hourly, 21 days": lambda: m4_hourly_of(21),
    "M4 weekly": lambda: m4("weekly", 1, 13),
    "simulated monthly": lambda: simulated(10_000, 60, 12, 12),
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Classical models on panels of competitions.")
    parser.add_argument("panels", nargs="*", metavar="PANEL", help=f"any of {', '.join(PANELS)}")
    parser.add_argument("--models", help="comma-separated; by default all")
    parser.add_argument("--statsforecast", metavar="PYTHON", help="an interpreter that has it")
    parser.add_argument("--networks", action="store_true", help="the default networks, too")
    parser.add_argument("--output", type=Path, default=Path(__file__).with_suffix(".csv"))
    options = parser.parse_args()
    models = [*OURS, *(THEIRS if options.statsforecast else ()), *[NETWORKS] * options.networks]
    chosen = options.models.split(",") if options.models else models
    rows: dict[tuple[str, str], dict] = {}
    if options.output.exists():
        kept = pd.read_csv(options.output).to_dict("records")
        rows = {(str(row["panel"]), str(row["model"])): row for row in kept}
    for name in options.panels or PANELS:
        panel = PANELS[name]()
        left_out = () if panel.seasons else ("MSTL",)
        for model in [model for model in models if model in chosen and model not in left_out]:
            made = measured(model, panel, options.statsforecast)
            rows[name, model] = {"panel": name, "model": model, **scored(panel, made)}
            print(*rows[name, model].values(), flush=True)
            order = [(p, m) for p in PANELS for m in (*OURS, *THEIRS, NETWORKS) if (p, m) in rows]
            pd.DataFrame([rows[each] for each in order]).to_csv(options.output, index=False)


def measured(model: str, panel: Panel, statsforecast: str | None = None) -> Made:
    """Forecast by a model in a process of its own."""
    if model in THEIRS and statsforecast:
        return by_statsforecast(model, panel, statsforecast)
    context = multiprocessing.get_context("spawn")  # JAX's threads forbid a fork
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(by_networks if model == NETWORKS else by_ours, model, panel).result()


def by_ours(model: str, panel: Panel) -> Made:
    began = time.perf_counter()
    rows = panel.filled()
    made = OURS[model](rows, panel.season, panel.horizon)
    mean = np.array([ahead[-1] for ahead in made])
    half = [deviations(row, ahead)[-1] for row, ahead in zip(rows, made, strict=True)]
    half = np.array(half) * ndtri(0.9)
    return Made(mean, mean - half, mean + half, time.perf_counter() - began, peak())


def by_statsforecast(model: str, panel: Panel, python: str) -> Made:
    """Forecast by the interpreter that has statsforecast; see ``panels_statsforecast.py``."""
    rows = panel.filled()
    with tempfile.TemporaryDirectory() as folder:
        known, made = Path(folder) / "known.npz", Path(folder) / "made.npz"
        np.savez(
            known,
            values=np.concatenate(rows),
            lengths=[len(row) for row in rows],
            seasons=panel.seasons if model == "MSTL" else (panel.season,),
            horizon=panel.horizon,
        )
        script = Path(__file__).with_name("panels_statsforecast.py")
        clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        subprocess.run([python, script, model, known, made], check=True, env=clean)
        with np.load(made) as found:
            seconds, memory = found["took"].tolist()
            return Made(found["mean"], found["low"], found["high"], seconds, memory)


def by_networks(model: str, panel: Panel) -> Made:
    """Forecast by the default networks; series that are skipped have NaN."""
    import forecaster as fc

    warnings.simplefilter("ignore")
    names = [f"{number:05d}" for number in range(len(panel.known))]
    frame = pd.concat(
        pd.DataFrame({"unique_id": name, "ds": panel.times(len(y)), "y": y}).dropna()
        for name, y in zip(names, panel.known, strict=True)
    )
    out = np.full((3, len(names), panel.horizon), np.nan)
    began = time.perf_counter()
    try:
        whole = fc.load_panel(frame)
        made = fc.predict(fc.fit(whole, fc.Config(horizon=panel.horizon)), whole)
    except NoSeries:  # all series are too short
        return Made(out[0], out[1], out[2], time.perf_counter() - began, peak())
    seconds = time.perf_counter() - began
    for name, part in made.groupby("unique_id"):
        columns = ["LSTM", "LSTM-lo-80", "LSTM-hi-80"]
        out[:, names.index(str(name)), : len(part)] = part[columns].to_numpy().T
    return Made(out[0], out[1], out[2], seconds, peak())


def peak() -> float:
    """Return this process's peak memory in MB."""
    return memory_used()[1] / 1024


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
