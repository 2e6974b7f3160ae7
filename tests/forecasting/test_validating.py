"""What networks forecast is combined with the common model of volatility and with the base."""

import types
from typing import Any

import numpy as np
import pytest

from forecaster.forecasting.bands.distribution import Distribution
from forecaster.forecasting.config import Config
from forecaster.forecasting.predicting import predicting


@pytest.fixture
def one(monkeypatch):
    """Return what becomes of the distribution of one forecast by networks."""

    def made(location: float, common: float | None = None, scale_weights=(), weight: float = 1.0):
        ahead = Distribution(*(np.full((1, 1, 1), part) for part in (location, 1.0, np.inf)))
        monkeypatch.setattr(predicting, "distribution_of", lambda *_: ahead)
        networks: Any = types.SimpleNamespace(
            networked=np.ones(1, bool), config=Config(horizon=1), network=None,
            params_of=lambda rows: {},
        )  # fmt: skip
        transformed: Any = types.SimpleNamespace(
            networks=weight, scale_weights=scale_weights, features=None, first=None,
            common=None if common is None else np.full((1, 1, 1), common),
        )  # fmt: skip
        return predicting.before_drift(networks, transformed, np.zeros((1, 1), int))

    return made


def test_a_width_is_that_by_both_scales(one):
    # The networks' width is 1, whose logarithm is 0, so that half of the other one is left.
    made = one(0.0, np.log(4.0), ((0.0, 0.6, 0.5),))
    np.testing.assert_allclose(made.scores(np.full((1, 1, 1), 3.0)), 3.0 / np.sqrt(4.0))


def test_networks_count_for_half_beside_a_forecast(one):
    made = one(2.0, weight=0.5)
    scores = made.scores(np.full((1, 1, 1), 3.0))
    np.testing.assert_allclose((made.location, scores), ([[[1.0]]], [[[2.0]]]))
