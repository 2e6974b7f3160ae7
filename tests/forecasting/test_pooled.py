"""Networks that start from one of all series, and their averages."""

import numpy as np
import pandas as pd
import pytest

import forecaster as fc
from forecaster.series.panel.panel import Panel


@pytest.fixture(scope="module")
def waves() -> Panel:
    """Series with the same rule, each too short to learn it from alone."""
    random = np.random.default_rng(0)
    parts = []
    for k in range(30):
        y = np.zeros(160)
        for t in range(2, 160):
            y[t] = -0.9 * (y[t - 1] - y[t - 2]) + y[t - 1] + random.normal()
        parts.append(pd.DataFrame({"unique_id": f"s{k:02d}", "ds": np.arange(160), "y": y}))
    return Panel.from_frame(pd.concat(parts))


@pytest.mark.slow
def test_short_series_hold_back_what_they_can_spare(waves):
    settings = fc.Config(hidden=4, lookback=20, horizon=2, epochs=1, members=1)
    parts = waves.to_frame()
    short = parts[(parts.unique_id == "s00") & (parts.ds >= 100)]
    mixed = Panel.from_frame(pd.concat([parts[parts.unique_id != "s00"], short]))
    model = fc.fit(mixed, settings, seed=0)
    known = np.isfinite(model.normal_scores[:, :, 0]).sum(1)
    assert known[model.ids.index("s01")] == 40
    assert known[model.ids.index("s00")] == 15
    assert not model.skipped
