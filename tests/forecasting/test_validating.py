"""Forecasts of held-back rows are compared with outcomes in parts, with the bits of the whole."""

import dataclasses

import numpy as np
import pytest

from forecaster.config import Config
from forecaster.forecasting.bands.counts import Units
from forecaster.forecasting.bands.distribution import Distribution
from forecaster.forecasting.bands.drift import Moves
from forecaster.forecasting.fitting import validating
from forecaster.forecasting.fitting.validating import Job, Span

SERIES, ORIGINS, HORIZON = 5, 7, 2


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("kind", ["prices", "counts", "values"])
def test_parts_have_the_bits_of_the_whole(kind, threads, monkeypatch):
    random = np.random.default_rng(0)
    forecasts = SERIES, ORIGINS, HORIZON
    made = Distribution(
        random.normal(size=forecasts), np.exp(0.3 * random.normal(size=forecasts)),
        4 + random.random(forecasts),
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
    monkeypatch.setattr(validating, "distribution_of", lambda *_: made)
    nothing = np.zeros((SERIES, 1))
    span = Span({}, nothing, nothing, nothing, outcomes, units, moves, common)
    job = Job(Config(), None, ((0.0, 0.6, 0.6),) * HORIZON, 1.0)
    whole = validating._validate(job, span, threads)
    monkeypatch.setattr(validating, "_COMPARED_AT_ONCE", 2)
    for one, other in zip(validating._validate(job, span, threads), whole, strict=True):
        np.testing.assert_array_equal(one, other)
    assert np.isfinite(whole.median).all() and len(np.unique(whole.median)) > SERIES


def _validated(
    monkeypatch, made: Distribution, outcome: float, common=None, opinions=(), weight=1.0
):
    """Return what becomes of one outcome under the distributions of one forecast."""
    monkeypatch.setattr(validating, "distribution_of", lambda *_: made)
    nothing = np.zeros((1, 1))
    outcomes = np.full((1, 1, 1), outcome)
    span = Span({}, nothing, nothing, nothing, outcomes, None, None, common)
    return validating._validate(Job(Config(), None, opinions, weight), span, threads=1)


def test_a_score_is_that_of_the_width_by_both_opinions(monkeypatch):
    normal = Distribution.unit((1, 1, 1), np.inf)
    common, opinions = np.full((1, 1, 1), np.log(4.0)), ((0.0, 0.6, 0.5),)
    made = _validated(monkeypatch, normal, 3.0, common, opinions)
    # The networks' width is 1, whose logarithm is 0, so that half of the other one is left.
    np.testing.assert_allclose(made.scores, 3.0 / np.sqrt(4.0))


def test_networks_count_for_half_beside_a_forecast(monkeypatch):
    ahead = dataclasses.replace(
        Distribution.unit((1, 1, 1), np.inf), location=np.full((1, 1, 1), 2.0)
    )
    made = _validated(monkeypatch, ahead, 3.0, weight=0.5)
    np.testing.assert_allclose((made.median, made.scores), ([[[1.0]]], [[[2.0]]]))
