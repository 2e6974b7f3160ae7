"""What is known in advance of a series is learned from all of its rows."""

import numpy as np
import pandas as pd
import pytest

import forecaster as fc
from forecaster.series import Transform

DAYS, COUNT = 260, 8


@pytest.mark.slow
def test_what_was_learned_from_fewer_rows_is_forgotten():
    """Effects learned anew came from rows without the earlier ones, and were too small."""
    random, dates = np.random.default_rng(0), pd.date_range("2018-01-01", periods=DAYS)
    week = 0.1 * np.sin(2 * np.pi * np.arange(DAYS) / 7)
    parts = [
        pd.DataFrame(
            {
                "unique_id": f"{number}",
                "ds": dates,
                "y": 100 * np.exp(week + 0.1 * number * (dates.day >= 28) + 0.05 * noise),
            }
        )
        for number, noise in enumerate(random.normal(size=(COUNT, DAYS)))
    ]
    panel = fc.load_panel(pd.concat(parts))
    learned = Transform.choose("auto", panel).learned_from(panel, 7)
    assert learned.learned.known.calendar.groups
    once = learned.with_components(panel, 7)
    twice = learned.with_components(panel, 7, np.full(COUNT, DAYS // 2)).with_components(panel, 7)
    for name in panel.ids:
        assert np.ptp(once.natures[name].effects) > 0
        np.testing.assert_array_equal(twice.natures[name].effects, once.natures[name].effects)
