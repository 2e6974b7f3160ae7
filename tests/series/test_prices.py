"""The volatility of prices that have hardly any rows."""

import numpy as np
import pandas as pd

import forecaster as fc
from forecaster.series.features.transforms import Learned, Transform
from forecaster.series.prices.features import with_few_changes


def panel(moves: dict[str, np.ndarray]) -> fc.Panel:
    days = pd.bdate_range("2024-01-01", periods=60)
    return fc.load_panel(
        pd.concat(
            pd.DataFrame({"unique_id": n, "ds": days[: len(m)], "close": np.exp(np.cumsum(m))})
            for n, m in moves.items()
        )
    )


def test_few_changes_are_shrunk_to_what_is_usual():
    change = np.array([[np.nan, *[0.04] * 30]])
    known = np.arange(31)
    weight = 10 * np.maximum(1 - known / 10, 0)
    expected = np.sqrt((known * 0.04**2 + weight * 0.02**2) / (known + weight))
    shrunk = with_few_changes(change, change, 0.02)[0]
    np.testing.assert_allclose(shrunk, expected)
    assert (shrunk[10:] == 0.04).all()
    assert (np.diff(shrunk) >= 0).all()  # without a jump


def test_later_rows_change_no_early_step():
    moves = 0.01 * np.random.default_rng(0).standard_normal(40)
    known = Transform("log_return", learned=Learned(volatility=0.03))
    young, old = (known.apply(panel({"A": moves[:rows]}), 5) for rows in (8, 40))
    np.testing.assert_array_equal(old.scale[0, :8], young.scale[0])
    np.testing.assert_array_equal(old.features[0, :8], young.features[0])
