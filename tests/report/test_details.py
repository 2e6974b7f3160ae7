"""Tests of the page's packed data of one series against its forecasts."""

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest

from forecaster.report.page_data import WORST, of_all_series, page_data, time_axis
from tests.report.synthetic import synthetic

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


def of_all(evaluation) -> dict[str, Any]:
    return dict(of_all_series(evaluation, time_axis(evaluation)))


def unpack(text: str, low: float, high: float, width: int) -> np.ndarray:
    digits = np.array([LETTERS.index(letter) for letter in text]).reshape(-1, width)
    codes = digits @ 64 ** np.arange(width)[::-1]
    return low + codes / (64**width - 2) * (high - low)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return synthetic(tmp_path_factory.mktemp("some"), 3, cutoffs=23, horizon=5)


def test_fans_are_the_forecasts_of_cutoffs_that_do_not_overlap(made):
    times = time_axis(made)
    shown = of_all(made)["S001"]
    frame = made.forecasts(["LSTM", "LSTM-lo-95", "LSTM-hi-80"])
    frame = frame[frame["unique_id"] == "S001"]
    cutoffs = frame["cutoff"].unique()[[2, 7, 12, 17, 22]]  # from the last one backwards
    low, high = shown["range"]
    values = unpack(shown["y"], low, high, 3)
    known = frame.drop_duplicates("ds").set_index("ds")["y"]
    at = times[shown["at"] : shown["at"] + len(values)]
    np.testing.assert_allclose(values[1:], known[at[1:]], rtol=1e-4)
    assert [at[position] for position in shown["from"]] == list(cutoffs)
    assert shown["steps"] == [5] * 5
    own = frame[frame["cutoff"].isin(cutoffs)]
    for column, text in zip(
        ["LSTM", "LSTM-lo-95", "LSTM-hi-80"], np.array(shown["fans"])[[0, 1, 4]], strict=True
    ):
        step = (high - low) / 64**2
        np.testing.assert_allclose(unpack(text, low, high, 2), own[column], atol=step)


def test_the_worst_days_have_the_largest_errors_one_step_ahead(made):
    times = time_axis(made)
    worst = of_all(made)["S002"]["worst"]
    frame = made.forecasts(["LSTM", "Naive"])
    first = frame[frame["unique_id"] == "S002"].groupby("cutoff").head(1)
    error = (first["y"] - first["LSTM"]) / np.sqrt(((first["y"] - first["Naive"]) ** 2).mean())
    order = error.abs().sort_values(ascending=False).index
    assert len(worst) == WORST
    assert [times[row[0]] for row in worst] == first.loc[order[:8], "ds"].tolist()
    np.testing.assert_allclose([row[-1] for row in worst], error[order[:8]], rtol=1e-4)


def test_series_with_gaps_stand_where_they_were_observed(tmp_path):
    made = synthetic(tmp_path, 2, cutoffs=23, horizon=1)
    frame = pd.read_parquet(tmp_path / "forecasts.parquet")
    closed = pd.bdate_range("2020-04-07", "2020-04-10")
    gone = frame["ds"].isin(closed) | frame["cutoff"].isin(closed)
    gone &= frame["unique_id"] == "S001"
    frame[~gone].to_parquet(tmp_path / "forecasts.parquet")
    times = time_axis(made)
    shown = of_all(made)
    assert isinstance(shown["S000"]["at"], int) and isinstance(shown["S001"]["at"], list)
    observed = frame[~gone & (frame["unique_id"] == "S001")]["ds"]
    assert set(times[shown["S001"]["at"]]) >= set(observed)
    assert not set(times[shown["S001"]["at"]]) & set(closed)


@pytest.mark.slow
def test_five_hundred_series_stay_under_five_megabytes(tmp_path):
    """Measure the size per series for a year of days, five steps and eight models."""
    models = ("LSTM", "Naive", "EWMA", "GARCH", "GJR", "Drift", "Empirical", "PyTorch")
    sizes = {}
    for count in (2, 8):
        (folder := tmp_path / str(count)).mkdir()
        groups = {f"S{n:03d}": "Information Technology" for n in range(count)}
        made = synthetic(folder, count, models=models, torch_series=count, groups=groups)
        sizes[count] = len(json.dumps(page_data(made), separators=(",", ":"), allow_nan=False))
    each = (sizes[8] - sizes[2]) / 6
    shared = sizes[2] - 2 * each
    scripts = 250_000  # uPlot, the page's own scripts, and its text
    assert each > 1_000 and 500 * each + shared + scripts < 5_000_000, (each, shared)
