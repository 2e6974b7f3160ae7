"""Components are blended by their errors, and their errors say how wide bands are."""

import numpy as np
import pytest

from forecaster.series.combination.blend import blended, closed_ahead, level_of
from forecaster.series.combination.components import Blend
from forecaster.series.combination.learning import (
    ORIGINS,
    Sizes,
    Usual,
    learn_blends,
    learn_usual,
)

SERIES, HORIZON = 30, 8


def sizes(series: int) -> Sizes:
    """The sizes of series of 101 rows whose changes are all 1, at a level of 1."""
    ones = np.ones(series)
    return Sizes(ones, ones, 101 * ones, 100 * ones, 0 * ones)


def errors_of(*sizes: float, growth: float = 0.0, series: int = SERIES, seed: int = 0):
    """Errors (component, series, origin, horizon) of components of such sizes."""
    random = np.random.default_rng(seed)
    steps = np.arange(1, HORIZON + 1) ** growth
    return np.array([size * random.normal(size=(series, ORIGINS, HORIZON)) * steps
                     for size in sizes])  # fmt: skip


def blends(errors: np.ndarray, usual: Usual | None = None, held: float = 20.0) -> list[Blend]:
    series = errors.shape[1]
    usual = usual or learn_usual(errors, sizes(series))
    return learn_blends(errors, sizes(series), np.full(series, held), usual)


def test_the_better_component_has_more_weight():
    for one in blends(errors_of(1.0, 3.0)):
        assert one.weights[0] > 0.9 and sum(one.weights) == pytest.approx(1.0)
    for one in blends(errors_of(2.0, 2.0)):
        assert one.weights[0] == pytest.approx(0.5, abs=0.2)


@pytest.mark.parametrize("growth", [0.0, 0.5, 1.0])
def test_growth_and_size_of_errors_are_found(growth):
    errors = errors_of(2.0, growth=growth)
    usual = learn_usual(errors, sizes(SERIES))
    assert usual.growth == pytest.approx(growth, abs=0.05)
    assert usual.size == pytest.approx(2 * np.sqrt(2 / np.pi), rel=0.1)
    few, own = (blends(3 * errors[:, :1], usual, held)[0] for held in (3.0, 200.0))
    assert usual.size * 2 < own.size < usual.size * 3.1
    assert usual.size < few.size < usual.size * 1.4  # drawn to the panel's
    _, scale = blended(np.full(9, 5.0), [np.full((9, HORIZON), 5.0)], (), HORIZON, own)
    np.testing.assert_allclose(scale[-1] / scale[-1, 0], np.arange(1, HORIZON + 1) ** usual.growth)


def test_a_series_that_hardly_moved_is_drawn_to_the_change_of_its_panel():
    rest, moved = np.full(48, 50.0), np.full(48, 50.0)
    moved[20:] += 0.1
    often = 50 + np.random.default_rng(0).normal(size=48).cumsum()
    rows = [rest, moved, often]
    usual = Usual((1.0,), size=1.0, change=0.01, rest=0.9)

    def size(usual: Usual, row: int) -> float:
        each = Sizes.from_rows(rows, [()] * 3).only([row])
        return learn_blends(np.full((1, 1, 1, 1), np.nan), each, np.zeros(1), usual)[0].size

    assert size(usual, 0) == pytest.approx(0.01)  # a tenth of the rows move: it may be chance
    assert size(usual._replace(rest=0.2), 0) == 0.0
    assert 0.004 < size(usual, 1) < 0.006  # its mean change is that of a single row
    own = np.abs(np.diff(often)).mean() / level_of(often, ())[-1]
    assert size(usual, 2) == pytest.approx(own, rel=0.1)


def test_the_level_follows_the_latest_season_within_limits():
    z = np.repeat([10.0, 0.0, 1000.0], 40)
    level = level_of(z, (4,))
    assert level[39] == 10 and level[60] == pytest.approx(0.2 * z[:61].mean())
    assert level[83] == pytest.approx(5 * z[:84].mean())
    assert (level_of(np.zeros(9), ()) > 0).all()
    np.testing.assert_array_equal(level_of(-z, (4,)), level)


def shop(weeks: int = 30) -> np.ndarray:
    """Sales by the day of a shop that is closed on Sundays."""
    day = np.arange(7 * weeks)
    return np.where(day % 7 == 6, 0.0, 900.0 + day % 5)


def test_a_shop_that_opens_on_a_closed_day_is_no_longer_sure():
    z = shop()
    z[6 + 7 * 20] = 700.0
    sundays = closed_ahead(z, (7,), 1)[5::7, 0]
    assert sundays[10:21].all() and not sundays[21:24].any()
