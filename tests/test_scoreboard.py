"""The scores of ``scripts/accuracy/scoreboard.py`` by hand, and its invented panels' truth."""

import numpy as np
import pandas as pd
import pytest

import forecaster as fc
from tests.conftest import script

scoreboard = script("accuracy/scoreboard.py")


def as_forecast(task) -> pd.DataFrame:
    """Return the true distribution of a panel as the forecasts of a cross-validation."""
    frame = task.rivals.rename(columns=lambda name: name.replace(scoreboard.TRUTH, "LSTM"))
    panel, parts = task.panel, []
    for row, name in enumerate(panel.ids):
        seen = panel.mask[row]
        y = panel.channel(panel.target)[row, seen]
        parts.append(pd.DataFrame({"unique_id": name, "ds": panel.times[seen], "y": y}))
    cutoff = panel.times[-1 - task.horizon * task.n_windows]
    frame = frame.merge(pd.concat(parts), on=["unique_id", "ds"])
    return frame[frame["ds"] > cutoff].assign(cutoff=cutoff, Naive=1.0)


@pytest.mark.parametrize("name", scoreboard.INVENTED)
def test_the_truth_of_an_invented_panel_is_true(name):
    task = scoreboard.SETS[name](True)
    y = pd.Series(task.panel.channel(task.panel.target)[task.panel.mask])
    assert np.isfinite(y).all() and task.rivals["truth-lo-80"].notna().mean() > 0.9
    row = scoreboard.scored(as_forecast(task), task)
    assert row["of_rival"] == 1.0 and row["rival"] == scoreboard.TRUTH
    assert 0.6 <= row["coverage_80"] <= 1 and row["coverage_99"] > 0.93, row


def test_scores_by_hand():
    days = pd.date_range("2024-01-01", periods=12)
    y = np.array([1.0, 3, 1, 3, 1, 3, 1, 3, 1, 3, 2, 4])  # changes by 2 from day to day
    panel = fc.load_panel(pd.DataFrame({"unique_id": "a", "ds": days, "y": y}))
    frame = pd.DataFrame({"unique_id": "a", "ds": days[10:], "cutoff": days[9], "y": y[10:]})
    frame = frame.assign(LSTM=2.0, Naive=3.0)
    for level in scoreboard.LEVELS:
        frame[f"LSTM-lo-{level}"], frame[f"LSTM-hi-{level}"] = 1.0, 3.0
    rivals = frame[["unique_id", "ds"]].assign(bad=9.0, good=3.0)
    for model in ("bad", "good"):
        rivals[f"{model}-lo-80"] = rivals[f"{model}-hi-80"] = rivals[model]
    row = scoreboard.scored(frame, scoreboard.Task(panel, 1, 2, rivals=rivals))
    # Outcomes 2 and 4: losses of the quantile p at 1, at 2 and at 3, in units of 2.
    low, high = (1 + 3) / 2 / 2, ((1 - 0.9) * 1 + 0.9 * 1) / 2 / 2
    assert row["mase"] == pytest.approx((0 + 2) / 2 / 2)
    assert row["loss_1"] == pytest.approx(0.01 * low)
    assert row["quantile_loss"] == pytest.approx((0.1 * low + 0.5 * 1 / 2 + high) / 3, abs=1e-5)
    below = sum(0.01 * q * low for q in range(1, 50))
    above = sum(((1 - 0.01 * q) + 0.01 * q) / 4 for q in range(51, 100))
    assert row["crps"] == pytest.approx(2 * (below + 0.25 + above) / 99, abs=1e-5)
    assert row["coverage_80"] == 0.5
    assert row["rival"] == "good"
    good = (1 + 1) / 2 / 2 * 0.5  # the three losses of a point, half of whose outcomes lie above
    assert row["of_rival"] == pytest.approx(row["quantile_loss"] / good, abs=1e-3)
    assert row["series"] == 1 and row["forecasts"] == 2
