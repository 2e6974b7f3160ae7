"""The volatility of prices that have hardly any rows."""

import numpy as np

from forecaster.series.prices.features import with_few_changes


def test_few_changes_are_shrunk_to_what_is_usual():
    change = np.array([[np.nan, *[0.04] * 30]])
    known = np.arange(31)
    weight = 10 * np.maximum(1 - known / 10, 0)
    expected = np.sqrt((known * 0.04**2 + weight * 0.02**2) / (known + weight))
    shrunk = with_few_changes(change, change, 0.02)[0]
    np.testing.assert_allclose(shrunk, expected)
    assert (shrunk[10:] == 0.04).all()
    assert (np.diff(shrunk) >= 0).all()  # without a jump
