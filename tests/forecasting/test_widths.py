"""The width and the tails that the bands of all series start from."""

import dataclasses

import numpy as np
import pandas as pd
from scipy.special import ndtri

import forecaster as fc
from forecaster.forecasting.bands import KNOTS, Widths, common_tails
from forecaster.forecasting.fitting.fit import Scores, widths_of
from tests.frames import long

HORIZON, ROWS = 6, 48


def panel_of(prices: dict[str, np.ndarray]) -> fc.Panel:
    dates = pd.date_range("2020-01-31", periods=ROWS, freq="ME")
    return fc.load_panel(long({name: row[:ROWS] for name, row in prices.items()}, dates))


def scores_of(random: np.random.Generator, shape: tuple[int, int, int]) -> np.ndarray:
    """Return scores of which nine in ten are near zero and the others far away."""
    return np.where(random.uniform(size=shape) < 0.9, 0.05, 3.0) * random.choice([-1, 1], shape)


def test_tails_are_those_of_all_series_where_they_are_heavier():
    scores = scores_of(np.random.default_rng(0), (2_000, 12, 1))
    tails = common_tails(scores, np.full(1, 0.5))
    inside = ndtri(0.94) > KNOTS
    np.testing.assert_array_equal(tails[0, inside], KNOTS[inside])  # a normal score is farther out
    assert (tails[0, (ndtri(0.96) < KNOTS) & (KNOTS < 3)] > 4).all()  # 3, in units of the spread


def test_tails_move_no_bound_beyond_the_largest_error_of_a_series():
    """Prices that rest, and have once risen by a tenth at most."""
    jumps = np.random.default_rng(2).uniform(0.01, 0.1, 20)
    rows = {
        str(n): np.where(np.arange(ROWS) < 10 + n, 50, 50 * (1 + j)) for n, j in enumerate(jumps)
    }
    panel = panel_of(rows)
    model = fc.fit(panel, fc.Config(horizon=HORIZON, transform="last_value"))
    far = model.widths._replace(tails=np.tile(50 * KNOTS, (HORIZON, 1)))
    made, plain = (
        fc.predict(one, panel, level=[99]).groupby("unique_id")["LSTM-hi-99"].max()[[*rows]]
        for one in (dataclasses.replace(model, widths=far), without_tails(model))
    )
    largest = 50 * (1 + jumps) ** 2
    np.testing.assert_allclose(made, np.maximum(largest, plain), rtol=1e-3)
    assert (plain < largest).sum() > 5


def test_counts_have_no_part_in_the_tails():
    config = fc.Config(horizon=2)
    random = np.random.default_rng(3)
    heavy, light = scores_of(random, (200, 12, 2)), random.normal(size=(300, 12, 2))
    nothing = np.zeros((0, 12, 2))
    with_counts = widths_of(config, [Scores(nothing, light, heavy)])
    alone = widths_of(config, [Scores(nothing, light, nothing)])
    assert (with_counts.without < alone.without).all()
    assert (with_counts.tails >= alone.tails).all()  # in units of a smaller spread
    only_counts = widths_of(config, [Scores(nothing, nothing, heavy)])
    np.testing.assert_array_equal(only_counts.tails, Widths.unit(2).tails)


def without_tails(model: fc.Model) -> fc.Model:
    normal = np.tile(KNOTS, (HORIZON, 1))
    return dataclasses.replace(model, widths=model.widths._replace(tails=normal))
