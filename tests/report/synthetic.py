"""An evaluation of any size, of random walks, without training anything."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

import forecaster as fc
from forecaster.evaluation import LEVELS, Evaluation, Summary
from forecaster.evaluation.backtest import joined
from forecaster.evaluation.scores.tables import Tables
from forecaster.forecasting import bounds_of
from tests.evaluation.handmade import SUMMARY


def synthetic(
    folder: Path,
    series: int,
    cutoffs: int = 250,
    horizon: int = 5,
    models: tuple[str, ...] = ("LSTM", "Naive", "EWMA"),
    **changes: Any,
) -> Evaluation:
    """An evaluation in a folder; every model has bands, each of a width of its own."""
    random = np.random.default_rng(series)
    days, names = pd.bdate_range("2020-01-01", periods=cutoffs + 60 + horizon), []
    parts, values = [], []
    for number in range(series):
        names.append(f"S{number:03d}")
        y = 50 * np.exp(np.cumsum(random.normal(0, 0.01 + 0.02 * random.random(), len(days))))
        values.append(pd.DataFrame({"unique_id": names[-1], "ds": days, "y": y}))
        parts.append(_forecasts(names[-1], y, days, cutoffs, horizon, models))
    frame = pd.concat(parts, ignore_index=True)
    panel = fc.Panel.from_frame(pd.concat(values))
    tables = joined([Tables.of_batch(frame, panel, models[0], 1)])
    frame.to_parquet(folder / "forecasts.parquet")
    described = {
        "models": list(models), "series": series, "cutoffs": cutoffs, "horizon": horizon,
        "levels": [f"{level:g}" for level in LEVELS], "failed": {}, "skipped": {}, "groups": {},
    }  # fmt: skip
    return Evaluation(folder, *tables, Summary.from_dict(SUMMARY | described | changes))


def _forecasts(
    name: str, y: np.ndarray, days: pd.DatetimeIndex, cutoffs: int, horizon: int,
    models: tuple[str, ...],
) -> pd.DataFrame:  # fmt: skip
    ahead = np.tile(np.arange(1, horizon + 1), cutoffs)
    origin = np.repeat(np.arange(60, 60 + cutoffs), horizon) - 1
    width = np.diff(np.log(y)).std() * np.sqrt(ahead) * y[origin]
    columns = {"unique_id": name, "ds": days[origin + ahead], "cutoff": days[origin],
               "y": y[origin + ahead]}  # fmt: skip
    for number, model in enumerate(models):
        middle = y[origin] if model == "Naive" else y[origin] * (1 + 0.001 * (number - 2))
        columns[model] = middle
        for level in LEVELS:
            half = stats.norm.ppf(0.5 + level / 200) * (0.8 + 0.1 * number) * width
            low, high = bounds_of(model, f"{level:g}")
            columns |= {low: middle - half, high: middle + half}
    return pd.DataFrame(columns)
