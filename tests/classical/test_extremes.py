"""Classical models of short and of extreme series: none, or finite forecasts."""

import numpy as np
import pytest

from forecaster.classical import MODELS

FEWEST = {"ets": 5, "theta": 4, "ces": 5}
HARDLY = [np.zeros(30), np.full(30, 7.0), np.r_[5.0, np.zeros(29)]]
EXTREME = [
    np.r_[np.zeros(29), 5.0], 1.5 ** np.arange(30), (-1.0) ** np.arange(30),
    np.r_[1e-100, np.full(40, 1e100)],
]  # fmt: skip


def ahead(name: str, row: np.ndarray, horizon: int) -> np.ndarray:
    """Forecasts made at every value, by the model of all values with a season of four."""
    model = MODELS[name].functions
    return model.ahead([row], model.fit([row], 4), [len(row)], horizon)[0]


@pytest.mark.parametrize("length", range(1, 12))
@pytest.mark.parametrize("name", FEWEST)
def test_short_series_get_what_they_carry(name, length):
    made = ahead(name, np.arange(1.0, length + 1), 3)
    assert made.shape == (length, 3)
    assert np.isfinite(made).all() == (length >= FEWEST[name])


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("name", "row", "horizon"),
    [("ets", row, 12) for row in HARDLY]
    + [("theta", row, 4) for row in HARDLY]
    + [("ces", row, 2000) for row in HARDLY + EXTREME],
)
def test_extreme_series_stay_finite(name, row, horizon):
    assert np.isfinite(ahead(name, row, horizon)[-1]).all()
