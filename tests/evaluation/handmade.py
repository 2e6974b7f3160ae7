"""Small evaluations made by hand, so that their numbers can be written out in tests."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from forecaster.evaluation import ALL, Evaluation, Summary

SUMMARY: dict[str, Any] = {
    "model": "LSTM",
    "models": ["EWMA", "LSTM", "Naive"],
    "series": 4,
    "cutoffs": 40,
    "step_size": 1,
    "horizon": 2,
    "levels": ["80", "95"],
    "first_cutoff": "2024-01-02",
    "last_cutoff": "2024-02-28",
    "first": "2020-01-01",
    "last": "2024-03-01",
    "refit": False,
    "seed": 7,
    "config": {
        "model": "lstm", "hidden": 4, "layers": 1, "horizon": 2,
        "lookback": 30, "burn_in": 10, "validation": 100, "training": "auto", "transform": "auto",
        "season": None, "market": None, "premium": 0.05, "common_volatility": True,
        "start": "independent", "members": 1, "shrinkage": 3.0, "epochs": 4,
        "patience": 4, "batch_size": 32, "learning_rate": 0.01, "weight_decay": 0.001, "clip": 1.0,
        "precision": "float32", "encoding": "none", "data_parallel": 1,
    },
    "target": "adj_close",
    "skipped": {"ZZZ": {"kind": "other", "detail": "too short", "reason": "too short"}},
    "failed": {"garch": {"a": "no convergence"}},
    "membership": False,
    "torch_series": 2,
    "seconds": {
        "training": 8.0, "fitting": 9.5, "torch": 12.0, "baselines": {"naive": 0.01, "ewma": 0.03},
        "all": 30.25,
    },
    "groups": {"a": "left", "b": "left", "c": "right"},
    "created": "2024-03-01T19:45:26+00:00",
    "python": "3.11.7",
    "versions": {"forecaster": "0.1.0", "jax": "0.10.2", "flax": "0.12.8"},
    "source": "files:prices.parquet",
    "data_sha256": "8338a932",
    "mask": ["copied", "reversed"],
    "stale": {"b": "no answer"},
}  # fmt: skip
"""A ``summary.json`` with every entry that there can be, in order."""

SERIES: tuple[str, ...] = ("a", "b", "c", "d")


def evaluation(
    folder: Path,
    scores: pd.DataFrame,
    tests: pd.DataFrame | None = None,
    daily: pd.DataFrame | None = None,
    forecasts: pd.DataFrame | None = None,
    **changes: Any,
) -> Evaluation:
    """An evaluation of these tables; ``changes``: of :data:`SUMMARY`."""
    tests = tests if tests is not None else outcomes(LSTM=np.ones(4))
    daily = daily if daily is not None else pd.DataFrame(columns=["cutoff", "model", "crps"])
    if forecasts is not None:
        forecasts.to_parquet(folder / "forecasts.parquet")
    plain = {
        "failed": {},
        "skipped": {},
        "groups": {},
        "models": list(dict.fromkeys(scores["model"])),
    }
    return Evaluation(folder, scores, tests, daily, Summary.from_dict(SUMMARY | plain | changes))


def scores_of(horizon: int = 1, unit: float = 1.0, **crps: Any) -> pd.DataFrame:
    """Scores of four series by model; the absolute error is twice the CRPS.

    ``unit``: the root mean squared error, which of "unchanged" one step ahead is the volatility.
    """
    parts = [
        pd.DataFrame(
            {
                "unique_id": SERIES, "horizon": horizon, "model": model,
                "crps": np.asarray(values, float), "mae": 2 * np.asarray(values, float),
                "rmse": unit,
            }
        )
        for model, values in crps.items()
    ]  # fmt: skip
    return pd.concat(parts, ignore_index=True)


def outcomes(
    test: str = "crps_against", horizon: int = ALL, p: Any = 0.5, **value: Any
) -> pd.DataFrame:
    """Tests of four series by the model that is compared with; adjusted p-values are doubled.

    Where ours is better, its loss is a tenth lower, else a tenth higher; a statistic of 2.
    """
    parts = [
        pd.DataFrame(
            {
                "unique_id": SERIES, "horizon": horizon, "test": test, "model": model,
                "value": np.asarray(values, float), "statistic": 2.0, "p_value": p,
                "difference": 0.1 - 0.2 * np.asarray(values, float), "degrees": 39.0,
            }
        )
        for model, values in value.items()
    ]  # fmt: skip
    table = pd.concat(parts, ignore_index=True)
    return table.assign(p_adjusted=2 * table["p_value"])


COUNTS: dict[str, Any] = {
    "LSTM": [0.0, 0.0, 6.0, 5.0],
    "Naive": [0.0, 0.0, 8.0, 10.0],
    "SBA": [0.01, 0.4, 7.0, 9.0],
}


def of_counts(folder: Path, **fields: Any) -> Evaluation:
    """Make an evaluation of counts by one cutoff; half of the series have no ratio to "unchanged".

    ``fields``: of :data:`SUMMARY`
    """
    tests = [
        outcomes(f"{score}_against", p=np.nan, Naive=[0, 0, 1, 1], SBA=[1, 1, 1, 1])
        for score in ("mae", "crps")
    ]
    made = scores_of(**COUNTS)
    return evaluation(folder, made, pd.concat(tests), target="y", cutoffs=1, **fields)
