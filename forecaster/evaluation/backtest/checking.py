"""Check the tables of an evaluation's folder, which may be damaged, edited, or made to do harm.

All functions raise ValueError that names the table and the column.
"""

import re
from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd
from pandas.api import types

from forecaster.evaluation.backtest.summary import Summary
from forecaster.evaluation.origins.rolling_origin import NAIVE
from forecaster.forecasting import FORECAST_BY, KEYS

_HOLDS = {
    **dict.fromkeys(("unique_id", "model", "test", FORECAST_BY), "text"),
    **dict.fromkeys(("ds", "cutoff"), "times"),
    "horizon": "whole numbers",
}
"""What the columns hold that are never empty; all others hold numbers."""
_DTYPES = {"times": "Miu", "whole numbers": "iu", "numbers": "biuf"}
_OF_TESTS = (
    "unique_id", "horizon", "test", "model", "value", "statistic", "p_value", "p_adjusted",
    "difference", "degrees",
)  # fmt: skip
_LEVELLED = re.compile(r"(pinball|coverage|width|winkler|fz0)-(?!\d+(\.\d+)?(e-\d+)?$)")


def check_tables(
    scores: pd.DataFrame, tests: pd.DataFrame, daily: pd.DataFrame, summary: Summary
) -> None:
    """Raise ValueError for tables other than those that an evaluation writes.

    All models have a score for the same series and steps ahead. A series that ends soon after its
    first cutoff has no outcome, and no row, at later steps.
    """
    keys = ["unique_id", "horizon", "model"]
    check_table("scores", scores, [*keys, "mae", "rmse"], keys)
    check_table("tests", tests, _OF_TESTS, [*keys, "test"])
    known = {"mae", "crps"} & set(scores)
    check_table("daily", daily, ["cutoff", "model", *known], ["cutoff", "model"])
    if NAIVE not in set(daily["model"]):
        raise ValueError(f"daily: model: no rows of {NAIVE}")
    pairs = len(scores[["unique_id", "horizon"]].drop_duplicates())
    if not pairs or scores["horizon"].min() != 1:
        raise ValueError("scores: horizon: expected steps ahead, from 1")
    for name in {summary.model, NAIVE}:
        if (count := int((scores["model"] == name).sum())) != pairs:
            raise ValueError(
                f"scores: model {name!r}: {count} rows; expected {pairs}, one for each series and "
                "step ahead"
            )
    if wrong := [name for name in map(str, scores) if _LEVELLED.match(name)]:
        raise ValueError(f"scores: column {wrong[0]!r}: expected a number after the first hyphen")
    if wrong := sorted(set(scores["model"]) ^ set(summary.models)):
        raise ValueError(f"scores: model {wrong[0]!r}: is only in the scores or in the summary")


def check_forecasts(frame: pd.DataFrame, columns: Iterable[str]) -> None:
    """Raise ValueError unless these columns of the forecasts are there, with their types."""
    check_table("forecasts", frame, [*KEYS, *columns])
    if types.is_integer_dtype(frame["ds"]) != types.is_integer_dtype(frame["cutoff"]):
        raise ValueError(
            f"forecasts: column 'cutoff': expected times like those of 'ds' ({frame['ds'].dtype}); "
            f"got {frame['cutoff'].dtype}"
        )


def check_table(
    table: str, frame: pd.DataFrame, needed: Iterable[str], keys: Sequence[str] = ()
) -> None:
    """Raise ValueError for a column that lacks or is of another kind, and for repeated ``keys``."""
    for name in needed:
        if name not in frame:
            raise ValueError(f"{table}: no column {name!r}")
    for name in map(str, frame.columns):
        column, expected = frame[name], _HOLDS.get(name, "numbers")
        if expected == "text":
            sound = types.is_string_dtype(column) or column.dtype == "category"
        else:
            sound = column.dtype.kind in _DTYPES[expected]
        if not sound:
            raise ValueError(f"{table}: column {name!r}: expected {expected}; got {column.dtype}")
        if name in _HOLDS and column.isna().any():
            raise ValueError(f"{table}: column {name!r}: a value is missing")
        if table == "forecasts" and expected == "numbers" and np.isinf(column).any():
            raise ValueError(f"forecasts: column {name!r}: an infinite number")
    if keys and frame.duplicated(keys).any():
        raise ValueError(f"{table}: more than one row of the same {', '.join(keys)}")
