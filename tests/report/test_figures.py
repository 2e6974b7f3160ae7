"""Which models the figures show, and that they draw their numbers."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from forecaster.report import figures
from tests.evaluation.handmade import SERIES, evaluation, outcomes, scores_of

OURS, NAIVE = [1.0, 2.0, 3.0, 4.0], [2.0, 2.5, 3.0, 2.0]
DAYS = pd.bdate_range("2024-01-01", periods=3)


@pytest.fixture
def made(tmp_path):
    widths = {"width-80": 2.0, "coverage-80": [0.7, 0.8, 0.9, 1.0] * 2}
    scores = scores_of(LSTM=OURS, Naive=NAIVE).assign(**widths)
    rows = [
        {"unique_id": name, "ds": DAYS[day + 1], "cutoff": DAYS[day], "y": number + day,
         "LSTM": 1.0, "LSTM-lo-80": 0.5, "LSTM-hi-80": 2.5}
        for number, name in enumerate(SERIES)
        for day in (0, 1)
    ]  # fmt: skip
    daily = pd.DataFrame(
        {"cutoff": [*DAYS[:2]] * 2, "model": ["LSTM"] * 2 + ["Naive"] * 2, "crps": [1.0, 3, 2, 2]}
    )
    tests = outcomes(Naive=[1, 1, 0, 0], p=[0.01, 0.2, 0.3, 0.02])
    return evaluation(tmp_path, scores, tests, daily, pd.DataFrame(rows), levels=["80"])


def test_four_models_are_shown_ours_first(tmp_path):
    def shown(*models, **changes):
        made = evaluation(tmp_path, scores_of(LSTM=OURS), models=list(models), **changes)
        return figures.shown(made)

    assert shown("Drift", "EWMA", "GARCH", "LSTM", "Naive") == ["LSTM", "Naive", "GARCH", "EWMA"]
    assert shown("Drift", "LSTM", "Naive") == ["LSTM", "Naive", "Drift"]
    assert shown("LSTM", "PyTorch", "Naive", torch_series=2) == ["LSTM", "Naive"]
    assert shown("LSTM", "PyTorch", "Naive", torch_series=4) == ["LSTM", "PyTorch", "Naive"]


def test_every_model_has_a_colour_and_ours_always_the_same(tmp_path):
    names = [f"M{number}" for number in range(9)]
    first = evaluation(tmp_path, scores_of(LSTM=OURS), models=["LSTM", *names])
    last = evaluation(tmp_path, scores_of(LSTM=OURS), models=[*names, "LSTM"])
    assert figures.colours(first) == figures.colours(last)
    assert set(figures.colours(first)) == {"LSTM", *names}


def lines(figure, axes: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """The lines of a figure's axes, by label."""
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
    np.testing.assert_allclose(widths, [[2.0], [2.0]])


def test_where_draws_ratios_to_the_naive(made):
    figure = figures.where(made)
    horizon, ratio = lines(figure, 0)["LSTM"]
    np.testing.assert_allclose(ratio, [np.mean([1 / 2, 2 / 2.5, 3 / 3, 4 / 2])])
    assert horizon.tolist() == [1] and "Naive" not in lines(figure, 0)
    dates = figure.axes[1].get_lines()[0]
    np.testing.assert_allclose(np.asarray(dates.get_ydata(), float), [1 / 2, (1 + 3) / (2 + 2)])


def test_paired_marks_the_series_that_differ(made):
    scatter = figures.paired(made).axes[0]
    same, different = (np.asarray(p.get_offsets()).tolist() for p in scatter.collections)
    assert same == [[2.5, 2.0], [3.0, 3.0]] and different == [[2.0, 1.0], [2.0, 4.0]]
    assert scatter.get_xlabel() == "CRPS of Naive, scaled"


def test_error_distributions_have_a_row_per_score(made):
    axes = figures.error_distributions(made).axes
    assert [ax.get_xlabel() for ax in axes[::3]] == [
        "absolute error (MASE)",
        "CRPS, scaled as MASE",
    ]
    x, share = (np.asarray(part) for part in axes[4].get_lines()[0].get_data())
    np.testing.assert_allclose(x, OURS)
    np.testing.assert_allclose(share, [0.25, 0.5, 0.75, 1])


def test_networks_of_pytorch_have_a_figure_of_their_own(made, tmp_path):
    assert list(figures.figures_of(made)) == list(figures.FIGURES)
    torch = evaluation(tmp_path, scores_of(LSTM=OURS, PyTorch=NAIVE))
    assert list(figures.figures_of(torch)) == [*figures.FIGURES, "by_torch"]
    assert set(figures.by_torch(torch).axes[0].get_legend_handles_labels()[1]) == set(
        torch.summary.models
    )
