"""Measure the defaults on many kinds of panels, beside the last value and the season before.

    python scripts/accuracy/zoo.py [NAME ...] [--output zoo.csv] [--quick]

Simulated panels of forty series each: random walks of every frequency, trends, seasons (one, two,
found in the values), intermittent and count series, noise, autoregressions. With the horizon as
the only setting, each panel is forecast from a rolling origin. Weekly and yearly walks have few
rows and overlapping origins, so forty of them say little (errors relative to naive varied from
0.987 to 1.026 with the seed); there are 160 and 400. Rows of panels that are not measured
again are kept in the file; the scoreboard scores real panels.

A row per panel: ``naive`` and ``season``, the mean over series of the mean absolute error relative
to that of the last value and to that of the season before; ``worst``, the larger of both;
``coverage``, the share of outcomes inside the 80 % bands.
"""

import argparse
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

import forecaster as fc

SERIES = 40


class Case(NamedTuple):
    """A panel: the function that makes it, the number of steps in its season, and its cutoffs."""

    make: Callable[[], pd.DataFrame]
    season: int
    horizon: int
    n_windows: int
    step_size: int = 1


def framed(values: np.ndarray, frequency: str | None) -> pd.DataFrame:
    """Return a long frame of simulated series (series, row)."""
    rows = values.shape[1]
    ds = (
        np.arange(rows) if frequency is None else pd.date_range("2000-01-01", None, rows, frequency)
    )
    parts = [
        pd.DataFrame({"unique_id": f"s{number:03d}", "ds": ds, "y": y})
        for number, y in enumerate(values)
    ]
    return pd.concat(parts)


def walks(
    rows: int, seed: int, scale: float = 0.01, *, series: int = SERIES, positive: bool = True
) -> np.ndarray:
    """Simulate random walks with the tails of stocks; positive ones walk in the logarithm."""
    steps = np.random.default_rng(seed).standard_t(5, (series, rows))
    return 100 * np.exp(scale * steps.cumsum(1)) if positive else steps.cumsum(1)


def seasonal(
    rows: int, seasons: dict[int, float], noise: float, *, trend: float = 0.0, log: bool = False
) -> np.ndarray:
    """Simulate seasons of given amplitudes on a wandering level."""
    random, steps, out = np.random.default_rng(0), np.arange(rows), []
    for _ in range(SERIES):
        pattern = np.zeros(rows)
        for season, strength in seasons.items():
            profile = random.normal(size=season)
            pattern += strength * (profile - profile.mean())[steps % season]
        level = trend * steps + 0.1 * random.normal(size=rows).cumsum()
        y = level + pattern + noise * random.normal(size=rows)
        out.append(100 * np.exp(0.1 * y) if log else 20 + y)
    return np.array(out)


def autoregressive(rows: int, weight: float, mean: float, seed: int) -> np.ndarray:
    """Simulate autoregressions of the first order around a mean."""
    shocks = np.random.default_rng(seed).normal(size=(SERIES, rows))
    y = np.zeros((SERIES, rows))
    for step in range(1, rows):
        y[:, step] = weight * y[:, step - 1] + shocks[:, step]
    return y + mean


def intermittent(rows: int, share: float, seed: int) -> np.ndarray:
    """Simulate sales on some days only."""
    random = np.random.default_rng(seed)
    return random.binomial(1, share, (SERIES, rows)) * random.poisson(4.0, (SERIES, rows)) * 1.0


def counts(rows: int) -> np.ndarray:
    """Simulate small counts with a weekly season, including zeros."""
    random, steps = np.random.default_rng(5), np.arange(rows)
    phase = random.uniform(0, 6, (SERIES, 1))
    return random.poisson(3 * np.exp(0.8 * np.sin(2 * np.pi * steps / 7 + phase))) * 1.0


CASES = {
    "walks, business days": Case(lambda: framed(walks(900, 0), "B"), 5, 5, 60),
    "walks, days": Case(lambda: framed(walks(900, 1), "D"), 7, 7, 60),
    "walks, weeks": Case(lambda: framed(walks(300, 2, 0.02, series=160), "W"), 52, 8, 30),
    "walks, months": Case(lambda: framed(walks(240, 3, 0.03), "MS"), 12, 12, 24),
    "walks, quarters": Case(lambda: framed(walks(100, 4, 0.03), "QS"), 4, 8, 12),
    "walks, years": Case(lambda: framed(walks(60, 5, 0.05, series=400), "YS"), 1, 5, 6),
    "walks, hours": Case(lambda: framed(walks(1500, 6), "h"), 24, 24, 30, 4),
    "walks, 5 minutes": Case(lambda: framed(walks(2000, 7, 0.001), "5min"), 288, 12, 40, 3),
    "walks, whole numbers": Case(lambda: framed(walks(500, 8), None), 1, 5, 40),
    "walks below zero": Case(lambda: framed(walks(500, 9, positive=False), "D"), 7, 7, 40),
    "trends, months": Case(
        lambda: framed(seasonal(240, {}, 1.0, trend=0.1), "MS"), 12, 12, 24
    ),
    "seasons, months": Case(
        lambda: framed(seasonal(180, {12: 2.0}, 0.7, trend=0.02, log=True), "MS"), 12, 12, 24
    ),
    "seasons, quarters": Case(
        lambda: framed(seasonal(80, {4: 2.0}, 0.7, trend=0.02, log=True), "QS"), 4, 8, 8
    ),
    "seasons, days": Case(lambda: framed(seasonal(700, {7: 2.0}, 1.0), "D"), 7, 14, 40),
    "two seasons, hours": Case(
        lambda: framed(seasonal(1500, {24: 2.0, 168: 1.0}, 1.0), "h"), 24, 48, 20, 6
    ),
    "two seasons, whole numbers": Case(
        lambda: framed(seasonal(1500, {24: 2.0, 168: 1.0}, 1.0), None), 24, 48, 20, 6
    ),
    "intermittent, days": Case(lambda: framed(intermittent(700, 0.3, 0), "D"), 7, 14, 30, 2),
    "intermittent, weeks": Case(lambda: framed(intermittent(200, 0.5, 1), "W"), 52, 8, 20),
    "counts, days": Case(lambda: framed(counts(700), "D"), 7, 14, 30, 2),
    "noise, days": Case(lambda: framed(autoregressive(400, 0.0, 0, 0), "D"), 7, 7, 40),
    "autoregression 0.5, days": Case(
        lambda: framed(autoregressive(400, 0.5, 50, 1), "D"), 7, 7, 40
    ),
    "autoregression 0.9, months": Case(
        lambda: framed(autoregressive(300, 0.9, 50, 2), "MS"), 12, 12, 30
    ),
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description="Any panel with the defaults.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"any of {', '.join(CASES)}")
    parser.add_argument("--output", type=Path, default=Path(__file__).with_suffix(".csv"))
    parser.add_argument("--quick", action="store_true", help="a try; writes to a temporary folder")
    options = parser.parse_args()
    if options.quick:
        options.names = ["walks, whole numbers", "seasons, quarters"]
        options.output = Path(tempfile.mkdtemp()) / options.output.name
    warnings.simplefilter("ignore")
    rows: dict[str, object] = {}
    if options.output.exists():
        rows = {row["panel"]: row for row in pd.read_csv(options.output).to_dict("records")}
    for name in options.names or CASES:
        rows[name] = {"panel": name, **measured(CASES[name])}
        print(rows[name], flush=True)
        pd.DataFrame(rows.values()).round(3).to_csv(options.output, index=False)


def measured(case: Case) -> dict[str, float]:
    """Measure one panel; return its row."""
    began = time.perf_counter()
    panel = fc.load_panel(case.make())
    frame = fc.cross_validation(
        panel, fc.Config(horizon=case.horizon), case.n_windows, case.step_size
    )
    frame = frame.assign(season=before(frame, panel, case.season))
    errors = frame[["LSTM", "Naive", "season"]].sub(frame["y"], axis=0).abs()
    errors = errors.groupby(frame["unique_id"]).mean()
    errors = errors[(errors["Naive"] > 0) & (errors["season"] > 0)]
    relative = errors[["LSTM"]].to_numpy() / errors[["Naive", "season"]].to_numpy()
    naive, season = relative.mean(0)
    inside = frame["y"].between(frame["LSTM-lo-80"], frame["LSTM-hi-80"])
    return {
        "naive": float(naive),
        "season": float(season),
        "worst": float(max(naive, season)),
        "coverage": float(inside.mean()),
        "seconds": round(time.perf_counter() - began, 1),
    }


def before(frame: pd.DataFrame, panel: fc.Panel, season: int) -> np.ndarray:
    """Return each row's seasonal naive forecast: the last value at the same phase."""
    out = np.full(len(frame), np.nan)
    ahead = frame.groupby(["unique_id", "cutoff"]).cumcount().to_numpy()
    for row, name in enumerate(panel.ids):
        mine = np.flatnonzero((frame["unique_id"] == name).to_numpy())
        seen = panel.mask[row]
        times, y = panel.times[seen], panel.channel(panel.target)[row, seen]
        at = np.searchsorted(times, frame["cutoff"].to_numpy(times.dtype)[mine])
        out[mine] = y[np.maximum(at - season + 1 + ahead[mine] % season, 0)]
    return out


if __name__ == "__main__":
    main()
