"""Tests that never stop: how soon they find bands that no longer cover, how often falsely."""

import numpy as np
import pytest
from scipy import stats

from forecaster.record import RATE, sequential

LEVELS = (80.0, 95.0)
DAYS, SERIES, MONTH = 252, 500, 21


def outcomes(seed: int, *, shared: float, degrees: float) -> np.ndarray:
    """Student-t moves of a market, (day, series); ``shared``: correlation between any two."""
    random = np.random.default_rng(seed)
    market, own = random.normal(size=(DAYS, 1)), random.normal(size=(DAYS, SERIES))
    normal = np.sqrt(shared) * market + np.sqrt(1 - shared) * own
    return stats.t.ppf(stats.norm.cdf(normal), degrees)


def found(moves: np.ndarray, degrees: float) -> np.ndarray:
    """Which series are reported each day, by bands that hold for moves as they were."""
    flat, middle = moves.ravel(), np.zeros(moves.size)
    half = [stats.t.ppf(0.5 + level / 200, degrees) for level in LEVELS]
    bounds = [(middle - width, middle + width) for width in half]
    tail = sequential.tail_probabilities(flat, middle, bounds, LEVELS).reshape(moves.shape)
    e_values = [sequential.e_values_of_tails(tail, LEVELS)]
    most = sequential.most_remembered(moves.shape[1], RATE)
    return sequential.reported(sequential.detectors(e_values, most, summed=True), RATE)


@pytest.mark.parametrize(("shared", "degrees"), [(0.0, 5.0), (0.3, 5.0), (0.3, 50.0)])
def test_calibrated_bands_raise_less_than_one_alarm_a_month(shared, degrees):
    false = 0
    for seed in range(4):
        reported = found(outcomes(seed, shared=shared, degrees=degrees), degrees)
        false += (reported[1:] & ~reported[:-1]).sum() + reported[0].sum()
    assert false / (4 * DAYS / MONTH) < 1


@pytest.mark.parametrize(("degrees", "least"), [(5.0, 0.6), (50.0, 0.85)])
def test_moves_times_four_are_found_within_ten_sessions(degrees, least):
    delays = []
    for seed in range(12):  # one series of 500 at a time, which is hardest
        moves = outcomes(seed, shared=0.0, degrees=degrees)[: 126 + 30]
        for series in range(3):
            changed = moves.copy()
            changed[126:, series] *= 4
            reported = found(changed, degrees)[126:, series]
            delays.append(reported.argmax() + 1 if reported.any() else np.inf)
    assert np.median(delays) <= 9 and np.mean(np.array(delays) <= 10) >= least


def test_a_change_is_reported_until_the_bands_cover_again():
    moves = outcomes(1, shared=0.0, degrees=5.0)
    moves[100:160, 0] *= 5
    reported = found(moves, 5.0)[:, 0]
    assert not reported[:100].any() and reported[115:160].mean() > 0.9
    assert not reported[185:].any()


def test_detectors_equal_their_definition():
    random = np.random.default_rng(1)
    e_values = random.lognormal(-0.5, 1, (30, 2))
    for total, summed in ((sum, True), (max, False)):
        slow = [[total(np.prod(e_values[j : t + 1, s]) for j in range(t + 1)) for s in range(2)]
                for t in range(30)]  # fmt: skip
        fast = sequential.detectors([e_values], np.inf, summed=summed)
        np.testing.assert_allclose(fast, np.array(slow), rtol=1e-9)


def test_reports_equal_their_definition():
    random = np.random.default_rng(2)
    values = np.exp(random.normal(3, 2, (50, 8)))
    for row, told in zip(values, sequential.reported(values, 0.2), strict=True):
        ranked = sorted(row, reverse=True)
        most = max((k for k in range(1, 9) if ranked[k - 1] >= 8 / (0.2 * k)), default=0)
        assert told.sum() == most
    assert not sequential.reported(np.zeros((3, 0)), 0.1).any()


def test_bets_find_losses_that_last_and_no_others():
    random = np.random.default_rng(3)
    even, worse = random.uniform(-1, 1, (400, 50)) * 0.8, random.uniform(-0.5, 1, (400, 50))
    for excess, least, most in ((even - 0.1, 0, 0), (worse - 0.1, 40, 50)):
        bets = sequential.e_values_of_bets(excess, -1.1)
        reported = sequential.reported(sequential.detectors(bets, np.inf, summed=False), 0.01)
        assert least <= reported[-1].sum() <= most
