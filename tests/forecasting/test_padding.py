"""Histories are padded, so that the programs of one day serve the next one, too."""

import jax
import numpy as np
import pytest

import forecaster as fc
from forecaster.forecasting.fitting import common
from forecaster.forecasting.windows import padded_steps
from tests.markets import market

CONFIG = fc.Config(hidden=2, lookback=15, burn_in=5, horizon=2, validation=40, epochs=2, members=2)
ROWS = 130  # two rows more are padded to the same 136 steps


@pytest.fixture(scope="module")
def panel() -> fc.Panel:
    made = market([], 4, 1)
    return fc.load_panel(made._replace(observed=np.ones(made.observed.shape, bool)).frame())


def test_a_history_is_padded_by_a_sixteenth_at_most():
    for rows in (1, 2, 15, 16, 17, 31, 33, 72, 130, 1_000, 2_011, 2_520, 100_001):
        assert rows <= padded_steps(rows) <= rows * 17 / 16
    assert len({padded_steps(rows) for rows in range(2_000, 2_250)}) < 6


def test_the_fit_and_the_forecast_of_the_next_day_compile_nothing(panel, compilations):
    for rows in (ROWS, ROWS + 2):
        before = len(compilations)
        known = panel.until(panel.times[rows - 1])
        fc.predict(fc.fit(known, CONFIG), known)
    assert padded_steps(ROWS) == padded_steps(ROWS + 2)
    assert len(compilations) == before


def test_padding_changes_no_bit(panel, monkeypatch):
    known = panel.until(panel.times[ROWS - 1])
    models = [fc.fit(known, CONFIG)]
    monkeypatch.setattr(common, "padded_steps", lambda rows: rows)
    models.append(fc.fit(known, CONFIG))
    for one, other in zip(*(jax.tree.leaves(model.params) for model in models), strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(models[0].normal_scores, models[1].normal_scores)
