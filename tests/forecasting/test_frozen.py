"""Series that did not move, and then do: bands that are bounded, and no cost to other series."""

import numpy as np
import pandas as pd
import pytest

import forecaster as fc
from forecaster.errors import ForecasterWarning, ModelError
from forecaster.forecasting.predicting import forecast as path
from tests.frames import long
from tests.messages import refuses, warns

HORIZON, STILL, MOVING = 5, 270, 30
SMALL = fc.Config(horizon=HORIZON, validation=60, epochs=3, members=1)


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    """Return four series that move, and three that hardly do, or not at all, for nine months."""
    random = np.random.default_rng(7)
    late = random.poisson(20, MOVING) + 1.0
    rows = {f"moves {n}": random.poisson(30, STILL + MOVING) + 1.0 for n in range(4)}
    rows["still"] = np.r_[np.full(STILL, 5.0), late]
    rows["hardly"] = np.r_[5 + 1e-4 * random.normal(size=STILL), late]
    rows["stopped"] = np.r_[random.poisson(20, 20) + 1.0, np.full(STILL - 20, 5.0), late]
    return long(rows, pd.date_range("2024-01-01", periods=STILL + MOVING))


@pytest.fixture(scope="module")
def fitted(frame):
    return fc.fit(frame, SMALL)


@pytest.mark.slow
def test_bands_of_a_series_that_begins_to_move_are_bounded(frame, fitted):
    made = fc.predict(fitted, frame, [80, 95, 99])
    last = made[~made["unique_id"].str.startswith("moves")]
    assert set(last["forecast_by"]) == {"own networks"}
    assert last["LSTM-hi-95"].max() < 250 and last["LSTM-hi-99"].max() < 2000
    assert (last["LSTM-lo-80"] < 20).all() and (last["LSTM-hi-80"] > 22).all()


def test_a_forecast_that_is_not_finite_costs_the_other_series_nothing(frame, fitted, monkeypatch):
    whole = fc.predict(fitted, frame)
    original = path.forecast_latest

    def broken(*args):
        made = original(*args)
        for values in made.values():
            values[args[1].ids.index("still")] = np.inf
        return made

    monkeypatch.setattr(path, "forecast_latest", broken)
    with warns(ForecasterWarning):
        made = fc.predict(fitted, frame)
    others = whole[whole["unique_id"] != "still"].reset_index(drop=True)
    pd.testing.assert_frame_equal(made, others)
    alone = frame[frame["unique_id"] == "still"]
    with refuses(ModelError):
        fc.predict(fitted, alone)
