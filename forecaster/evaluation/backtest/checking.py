"""Check the tables of an evaluation's folder, which may be damaged, edited, or made to do harm.

All functions raise ValueError that names the table and the column.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from pandas.api import types

from forecaster.evaluation.backtest.summary import Summary
from forecaster.evaluation.origins.rolling_origin import NAIVE
from forecaster.forecasting import FORECAST_BY, KEYS

if TYPE_CHECKING:
    import pyarrow as pa

_KINDS: Mapping[str, tuple[Callable[[pd.Series], bool], str]] = {
    **dict.fromkeys(
        ("unique_id", "model", "test", FORECAST_BY),
        (lambda column: types.is_string_dtype(column) or column.dtype == "category", "text"),
    ),
    **dict.fromkeys(("ds", "cutoff"), (lambda column: column.dtype.kind in "Miu", "times")),
    "horizon": (lambda column: column.dtype.kind in "iu", "whole numbers"),
}
"""How the columns are checked that are never empty, and what they hold; all others hold numbers."""
_NUMBERS = (lambda column: column.dtype.kind in "biuf", "numbers")
_OF_TESTS = (
    "unique_id", "horizon", "test", "model", "value", "statistic", "p_value", "p_adjusted",
    "difference", "degrees",
)  # fmt: skip


def check_scores(scores: pd.DataFrame, summary: Summary) -> None:
    """Raise ValueError unless all models have a row for the same series and steps ahead.

    A series that ends soon after its first cutoff has no outcome, and no row, at later steps.
    """
    keys = ["unique_id", "horizon", "model"]
    _check("scores", scores, [*keys, "mae", "rmse"], keys)
    pairs = len(scores[["unique_id", "horizon"]].drop_duplicates())
    if not pairs or not (scores["horizon"] >= 1).all() or 1 not in set(scores["horizon"]):
        raise ValueError("scores: horizon: expected steps ahead, from 1")
    for name in {summary.model, NAIVE}:
        if (count := int((scores["model"] == name).sum())) != pairs:
            raise ValueError(
                f"scores: model {name!r}: {count} rows; expected {pairs}, one for each series and "
                "step ahead"
            )
    for column in map(str, scores.columns):
        kind, _, level = column.partition("-")
        if kind in ("pinball", "coverage", "width", "winkler", "fz0") and not _is_number(level):
            raise ValueError(f"scores: column {column!r}: expected {kind}- and a number")
    if unknown := set(scores["model"]) - set(summary.models):
        raise ValueError(f"scores: model: {sorted(unknown)[0]!r} is not in the summary")
    if lacking := set(summary.models) - set(scores["model"]):
        raise ValueError(f"scores: model {sorted(lacking)[0]!r}: no rows, but it is in the summary")


def check_tests(tests: pd.DataFrame) -> None:
    """Raise ValueError unless the table has a row for each series, step ahead, test and model."""
    _check("tests", tests, _OF_TESTS, ["unique_id", "horizon", "test", "model"])


def check_daily(daily: pd.DataFrame, scores: Iterable[str]) -> None:
    """Raise ValueError unless the table has a row for each cutoff and model.

    ``scores``: the columns of the table of scores
    """
    known = {"mae", "crps"} & set(scores)
    _check("daily", daily, ["cutoff", "model", *known], ["cutoff", "model"])
    if NAIVE not in set(daily["model"]):
        raise ValueError(f"daily: model: no rows of {NAIVE}")


def check_forecasts(schema: "pa.Schema", columns: Iterable[str]) -> None:
    """Raise ValueError unless these columns of the forecasts are there, with their types."""
    empty = schema.empty_table().to_pandas()
    _check("forecasts", empty, [*KEYS, *columns])
    if types.is_integer_dtype(empty["ds"]) != types.is_integer_dtype(empty["cutoff"]):
        raise ValueError(
            f"forecasts: column 'cutoff': expected times like those of 'ds' ({empty['ds'].dtype}); "
            f"got {empty['cutoff'].dtype}"
        )


def check_finite(forecasts: pd.DataFrame) -> None:
    """Raise ValueError for an infinite forecast or outcome; one that is missing is NaN."""
    for name in forecasts.columns.drop(FORECAST_BY, errors="ignore"):
        if np.isinf(forecasts[name]).any():
            raise ValueError(f"forecasts: column {name!r}: an infinite number")


def _check(
    table: str, frame: pd.DataFrame, needed: Iterable[str], keys: Sequence[str] = ()
) -> None:
    """Raise ValueError for a column that lacks or is of another kind, and for repeated ``keys``."""
    for name in needed:
        if name not in frame:
            raise ValueError(f"{table}: no column {name!r}")
    for name in map(str, frame.columns):
        column = frame[name]
        is_sound, expected = _KINDS.get(name, _NUMBERS)
        if not is_sound(column):
            raise ValueError(f"{table}: column {name!r}: expected {expected}; got {column.dtype}")
        if name in _KINDS and column.isna().any():
            raise ValueError(f"{table}: column {name!r}: a value is missing")
    if keys and frame.duplicated(keys).any():
        raise ValueError(f"{table}: more than one row of the same {', '.join(keys)}")


def _is_number(text: str) -> bool:
    try:
        return np.isfinite(float(text))
    except ValueError:
        return False
