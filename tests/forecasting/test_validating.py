"""Forecasts of held-back rows are compared with outcomes in parts, with the bits of the whole."""

import numpy as np
import pytest

from forecaster.config import Config
from forecaster.forecasting.bands.counts import Units
from forecaster.forecasting.bands.drift import Moves
from forecaster.forecasting.bands.mixture import Mixture
from forecaster.forecasting.fitting import validating
from forecaster.forecasting.fitting.validating import Job, Span

SERIES, ORIGINS, HORIZON, MEMBERS = 5, 7, 2, 3


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("kind", ["prices", "counts", "values"])
def test_parts_have_the_bits_of_the_whole(kind, threads, monkeypatch):
    random = np.random.default_rng(0)
    forecasts, members = (SERIES, ORIGINS, HORIZON), (SERIES, ORIGINS, HORIZON, MEMBERS)
    mixture = Mixture(
        random.normal(size=members), np.exp(0.3 * random.normal(size=members)),
        4 + random.random(members),
    )  # fmt: skip
    outcomes = random.normal(size=forecasts)
    outcomes[random.random(forecasts) < 0.2] = np.nan
    units = moves = common = None
    if kind == "counts":
        counted = np.arange(SERIES) % 2 == 0
        base = np.rint(5 * random.random(forecasts))
        units = Units(counted, base, 0.5 + random.random(forecasts), random.random(forecasts))
    if kind == "prices":
        expected = 0.1 * random.normal(size=forecasts)
        moves = Moves(expected, expected - 0.5, expected + 0.5)
        common = 0.2 * random.normal(size=forecasts)
    monkeypatch.setattr(validating, "mixture_of", lambda *_: mixture)
    nothing = np.zeros((SERIES, 1))
    span = Span({}, nothing, nothing, nothing, outcomes, units, moves, common)
    job = Job(Config(), None, ((0.0, 0.6, 0.6),) * HORIZON)
    whole = validating._validate(job, span, threads)
    monkeypatch.setattr(validating, "_COMPARED_AT_ONCE", 2)
    for one, other in zip(validating._validate(job, span, threads), whole, strict=True):
        np.testing.assert_array_equal(one, other)
    assert np.isfinite(whole.median).all() and len(np.unique(whole.median)) > SERIES
