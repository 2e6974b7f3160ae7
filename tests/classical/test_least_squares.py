"""Least squares of many series at once: the least is found, within bounds, each by itself."""

import numpy as np
import pytest

from forecaster.classical.ets_form import Form
from forecaster.classical.innovations import ROUNDS, estimate
from forecaster.classical.least_squares import least_squares

TIME = np.linspace(0, 4, 40)
BOUNDS = np.array([[0.1, 5.0], [0.05, 3.0]])


def decays(height: np.ndarray, rate: np.ndarray) -> np.ndarray:
    return height[:, None] * np.exp(-rate[:, None] * TIME)


def errors_from(true: np.ndarray):
    random = np.random.default_rng(0)
    seen = decays(*true.T) + 0.05 * random.normal(size=(len(true), len(TIME)))
    return seen, lambda rows, tried: seen[rows] - decays(*tried.T)


def by_scipy(seen: np.ndarray, start: np.ndarray) -> np.ndarray:
    from scipy.optimize import least_squares as one

    def errors(tried: np.ndarray) -> np.ndarray:
        return seen - decays(*tried[:, None])[0]

    return one(errors, start, bounds=BOUNDS.T, xtol=1e-12).x


def test_the_least_is_found_also_at_a_bound():
    true = np.array([[2.0, 0.5], [0.7, 2.5], [4.0, 0.1], [6.0, 1.0], [3.0, 0.01]])
    seen, errors_of = errors_from(true)
    start = np.full(true.shape, 1.0)
    found = least_squares(errors_of, start, BOUNDS, rounds=40)
    assert (found >= BOUNDS[:, 0]).all() and (found <= BOUNDS[:, 1]).all()
    assert found[3, 0] == 5.0 and found[4, 1] == 0.05  # the true ones lie beyond
    expected = np.array([by_scipy(row, one) for row, one in zip(seen, start, strict=True)])
    np.testing.assert_allclose(found, expected, atol=2e-3)


def test_no_series_influences_another_and_rounds_never_harm():
    true = np.random.default_rng(1).uniform([0.2, 0.1], [4.5, 2.5], (30, 2))
    seen, errors_of = errors_from(true)
    start = np.full(true.shape, 0.6)
    found = least_squares(errors_of, start, BOUNDS, rounds=12)

    def alone(row: int) -> np.ndarray:
        def own(rows, tried):
            return seen[[row]] - decays(*tried.T)

        return least_squares(own, start[[row]], BOUNDS, rounds=12)[0]

    np.testing.assert_array_equal(found, [alone(row) for row in range(30)])
    squares = [
        (errors_of(np.arange(30), least_squares(errors_of, start, BOUNDS, rounds=n)) ** 2).sum(1)
        for n in range(6)
    ]
    assert (np.diff(squares, axis=0) <= 0).all()


def test_what_is_not_allowed_is_not_returned():
    true = np.array([[2.0, 0.5], [4.0, 2.0]])
    _, errors_of = errors_from(true)

    def allowed(rows, tried):
        return tried.sum(1) < np.array([3.0, 5.0])[rows]

    start = np.full(true.shape, 1.0)
    found = least_squares(errors_of, start, BOUNDS, rounds=40, allowed=allowed)
    anywhere = least_squares(errors_of, start, BOUNDS, rounds=40)
    np.testing.assert_array_equal(found[0], anywhere[0])
    assert anywhere[1].sum() > 5 > found[1].sum() > 3
    before, after = ((errors_of(np.arange(2), each) ** 2).sum(1)[1] for each in (start, found))
    assert after < before


@pytest.mark.parametrize("trend", ["additive", "damped"])
def test_exponential_smoothing_comes_within_a_thousandth_of_the_likelihood(trend):
    """Of that of ten times as many rounds, on 95 of 100 series."""
    form, series, steps = Form(trend, 4), 60, 64
    random = np.random.default_rng(2)
    level = np.cumsum(random.normal(size=(series, steps)) * random.uniform(0, 1, (series, 1)), 1)
    season = random.normal(size=(series, 4))[:, np.arange(steps) % 4]
    slope = random.normal(size=(series, 1)) * 0.1 * np.arange(steps)
    values = level + season + slope + 0.5 * random.normal(size=(series, steps))
    values -= values[:, :1]
    lengths = np.full(series, steps)
    found, best = (
        estimate(values, lengths, form.space, form.grid(), form.bounds(), rounds=rounds).squares
        for rounds in (ROUNDS, 10 * ROUNDS)
    )
    likelihood = -steps / 2 * np.log(best)
    lost = likelihood + steps / 2 * np.log(found)
    assert (lost <= 1e-3 * np.abs(likelihood)).mean() >= 0.95
