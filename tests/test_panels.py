"""The scores of ``scripts/accuracy/panels.py`` by hand, and its models on a small panel."""

import numpy as np
import pytest

from tests.conftest import script

panels = script("accuracy/panels.py")


def panel(length: int = 40, horizon: int = 6):
    random = np.random.default_rng(0)
    rows = 100 + random.normal(size=(5, length + horizon)).cumsum(1)
    return panels.Panel(4, horizon, list(rows[:, :length]), list(rows[:, length:]))


def test_scores_by_hand():
    known = [np.array([1.0, 3, 2, 4]), np.array([0.0, 0, 0, 0]), np.array([np.nan, 2, np.nan, 6])]
    came = [np.array([7.0, 4]), np.array([0.0, 2]), np.array([6.0, np.nan])]
    mean = np.array([[4.0, 4], [0, 0], [np.nan, np.nan]])
    made = panels.Made(mean, mean - 1, mean + 2, 1.234, 56.7)
    found = panels.scored(panels.Panel(2, 2, known, came), made)
    assert found["refused"] == 1  # and forecast by its last value, 6, which came
    assert found["mase"] == pytest.approx((1.5 / 1 + 0 / 4) / 2)
    assert found["smape"] == pytest.approx((300 / 11 + 100 + 0) / 3, abs=1e-3)
    assert found["coverage"] == 0.75
    assert found["seconds"] == 1.23 and found["memory"] == 57 and found["series"] == 3


@pytest.mark.parametrize("model", panels.OURS)
def test_our_models_forecast_a_panel(model):
    some = panel()
    made = panels.by_ours(model, some)
    assert made.mean.shape == (5, 6) and (made.low < made.mean).all()
    found = panels.scored(some, made)
    assert found["refused"] == 0 and 0 < found["mase"] < 5 and 0.3 < found["coverage"] <= 1
