"""Croston's method, SBA, TSB and ADIDA: against plain loops, and causal."""

import numpy as np
import pytest

from forecaster.classical import INTERMITTENT, adida, croston, tsb


def demands(count: int = 40, seed: int = 0) -> list[np.ndarray]:
    """Series of unequal lengths, some of them of zeros or of one demand alone."""
    random = np.random.default_rng(seed)
    rows = [
        random.poisson(random.uniform(0.1, 2), length) * float(random.integers(1, 4))
        for length in random.integers(1, 50, count)
    ]
    return [*rows, np.zeros(9), np.r_[np.zeros(5), 3.0], np.r_[2.0, np.zeros(20)]]


def smoothed(values: list[float], weight: float) -> float:
    mean = values[0]
    for value in values[1:]:
        mean = weight * value + (1 - weight) * mean
    return mean


def croston_of(y: np.ndarray) -> float:
    """Croston (1972), step by step."""
    sizes, intervals, since = [], [], 0
    for value in y:
        since += 1
        if value > 0:
            sizes.append(float(value))
            intervals.append(since)
            since = 0
    return smoothed(sizes, 0.1) / smoothed(intervals, 0.1) if sizes else 0.0


def tsb_of(y: np.ndarray) -> float:
    sizes = [float(value) for value in y if value > 0]
    return smoothed(sizes, 0.1) * smoothed([float(v > 0) for v in y], 0.1) if sizes else 0.0


def blocks_of(y: np.ndarray) -> tuple[list[float], int]:
    """The sums that ADIDA smooths, and the length of each."""
    last = np.flatnonzero(y)[-1] + 1
    length = round(last / np.count_nonzero(y))
    begin = len(y) % length
    return [float(y[at : at + length].sum()) for at in range(begin, len(y), length)], length


def squared_errors(sums: list[float], weight: float) -> float:
    return sum((sums[n] - smoothed(sums[:n], weight)) ** 2 for n in range(1, len(sums)))


ORACLES = {"croston": croston_of, "sba": lambda y: 0.95 * croston_of(y), "tsb": tsb_of}


@pytest.mark.parametrize("name", ORACLES)
def test_each_step_is_that_of_a_plain_loop(name):
    for y in demands(20):
        expected = [ORACLES[name](y[: end + 1]) for end in range(len(y))]
        np.testing.assert_allclose(INTERMITTENT[name](y), expected, rtol=1e-12, atol=0)


def test_blocks_are_smoothed_by_the_weight_that_was_best():
    for y in [row for row in demands() if row.any()]:
        sums, length = blocks_of(y)
        made = adida(y)[-1]
        tried = [n / 100 for n in range(10, 31)]
        least = min(squared_errors(sums, weight) for weight in tried)
        best = [weight for weight in tried if squared_errors(sums, weight) <= least + 1e-9]
        assert any(made == pytest.approx(smoothed(sums, weight) / length) for weight in best)


@pytest.mark.parametrize("name", INTERMITTENT)
def test_later_steps_change_nothing(name):
    for y in demands():
        half = len(y) // 2 + 1
        np.testing.assert_array_equal(INTERMITTENT[name](y)[:half], INTERMITTENT[name](y[:half]))


def test_what_is_no_longer_asked_for_is_no_longer_forecast_by_tsb_alone():
    y = np.r_[np.ones(20), np.zeros(40)]
    assert tsb(y)[-1] < 0.02 and croston(y)[-1] == pytest.approx(1.0)
    assert adida(y)[-1] < 0.05
