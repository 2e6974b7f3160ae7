"""Tests of the models and numbers in the figures that are written to files."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from forecaster.report import figures
from tests.evaluation.handmade import SERIES, evaluation, outcomes, scores_of

OURS, NAIVE = [1.0, 2.0, 3.0, 4.0], [2.0, 2.5, 3.0, 2.0]
RATIOS = [1 / 2, 2 / 2.5, 3 / 3, 4 / 2]
DAYS = pd.bdate_range("2024-01-01", periods=3)


@pytest.fixture
def made(tmp_path):
    widths = {"width-80": 2.0, "coverage-80": [0.7, 0.8, 0.9, 1.0] * 2}
    scores = scores_of(1, 2.0, LSTM=OURS, Naive=NAIVE).assign(**widths)
    rows = [
        {"unique_id": name, "ds": DAYS[day + 1], "cutoff": DAYS[day], "y": number + day,
         "LSTM": 1.2, "LSTM-lo-80": 0.5, "LSTM-hi-80": 2.5}
        for number, name in enumerate(SERIES)
        for day in (0, 1)
    ]  # fmt: skip
    daily = pd.DataFrame(
        {"cutoff": [*DAYS[:2]] * 2, "model": ["LSTM"] * 2 + ["Naive"] * 2, "crps": [1.0, 3, 2, 2]}
    )
    tests = outcomes(Naive=[1, 1, 0, 0], p=[0.01, 0.2, 0.3, 0.02])
    return evaluation(tmp_path, scores, tests, daily, pd.DataFrame(rows), levels=["80"])


def lines(figure, axes: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return the lines of a figure's axes, by label."""
    drawn = figure.axes[axes].get_lines()
    return {line.get_label(): (line.get_xdata(), line.get_ydata()) for line in drawn}


def test_calibration_draws_what_is_held_less_what_should_be(made):
    figure = figures.calibration(made)
    level, excess = lines(figure, 0)["LSTM"]
    np.testing.assert_allclose(level, [0.8])
    np.testing.assert_allclose(excess, [0.05])
    bars: list[Any] = list(figure.axes[1].patches)
    shares = [bar.get_height() * bar.get_width() for bar in bars]
    np.testing.assert_allclose(shares, [1 / 8, 2 / 8, 2 / 8, 3 / 8])  # y: 0 1, 1 2, 2 3, 3 4
    widths = [np.asarray(line.get_ydata(), float) for line in figure.axes[2].get_lines()]
    np.testing.assert_allclose(widths, [[1.0], [1.0]])  # volatilities of 2


def test_where_draws_ratios_to_the_naive(made):
    figure = figures.where(made)
    horizon, ratio = lines(figure, 0)["LSTM"]
    np.testing.assert_allclose(ratio, [np.mean(RATIOS)])
    assert horizon.tolist() == [1] and "Naive" not in lines(figure, 0)
    dates = figure.axes[1].get_lines()[0]
    np.testing.assert_allclose(np.asarray(dates.get_ydata(), float), [1 / 2, (1 + 3) / (2 + 2)])


def test_paired_sorts_differences_and_marks_those_that_are_significant(made):
    forest, scatter = figures.paired(made).axes
    kinds = {part.get_label(): np.asarray(part.get_offsets()) for part in forest.collections[1::2]}
    assert {k: len(v) for k, v in kinds.items()} == {
        "not significant": 2, "significantly better": 1, "significantly worse": 1,
    }  # fmt: skip
    np.testing.assert_allclose(kinds["significantly better"][:, 1], [-10])  # percent
    assert sorted(np.concatenate([v[:, 0] for v in kinds.values()])) == [1, 2, 3, 4]
    points = np.concatenate([np.asarray(p.get_offsets()) for p in scatter.collections])
    np.testing.assert_allclose(np.sort(points[:, 1]), np.sort(RATIOS))
    assert scatter.get_xlabel() == "CRPS of Naive, 'unchanged' = 1"


def test_error_distributions_show_every_series_in_both_units(made):
    axes = figures.error_distributions(made).axes
    assert [ax.get_xlabel() for ax in axes] == [
        "absolute error, 'unchanged' = 1", "absolute error, in volatilities",
        "CRPS, 'unchanged' = 1", "CRPS, in volatilities",
    ]  # fmt: skip
    for ax, errors in ((axes[2], RATIOS), (axes[3], np.divide(OURS, 2))):
        x, share = (np.asarray(part, float) for part in ax.get_lines()[0].get_data())
        np.testing.assert_allclose(x, np.sort(errors))
        np.testing.assert_allclose(share, [0.25, 0.5, 0.75, 1])
        low, high = ax.get_xlim()
        assert low < min(errors) and max(errors) < high  # the worst value is not cut off
