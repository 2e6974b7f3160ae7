"""Tests of past risk against values that are published, or computed by hand."""

import numpy as np
import pytest
from scipy.stats import norm

import forecaster as fc
from forecaster.errors import UsageError
from tests.messages import refuses


def of_breaches(at: list[int], periods: int, level: float):
    losses = np.zeros(periods)
    losses[at] = 2.0
    return fc.backtest_risk(losses, np.ones(periods), np.full(periods, 2.0), level)


@pytest.mark.parametrize(
    ("breaches", "zone"), [(0, "green"), (4, "green"), (5, "yellow"), (9, "yellow"), (10, "red")]
)
def test_zones_are_those_of_the_basel_committee(breaches, zone):
    assert of_breaches([*range(breaches)], 250, 99).zone == zone


@pytest.mark.parametrize("periods", [1, 3, 5])
def test_no_breach_is_green_however_few_the_periods_are(periods):
    assert of_breaches([], periods, 99).zone == "green"


def test_likelihood_ratios_by_hand():
    # Of 10 periods 3 are breaches, at 1, 2 and 8: after a breach 1 of 3, else 2 of 6.
    made = of_breaches([1, 2, 8], 10, 80)
    unconditional = 2 * (3 * np.log(0.3 / 0.2) + 7 * np.log(0.7 / 0.8))
    assert made.kupiec == pytest.approx(2 * norm.sf(np.sqrt(unconditional)))
    assert made.independence == pytest.approx(1.0, abs=1e-6)  # 1 of 3 and 2 of 6 are as many
    assert made.both == pytest.approx(np.exp(-unconditional / 2))
    clustered = of_breaches([4, 5, 6, 7], 12, 80)  # after a breach 3 of 4, else 1 of 7
    split = 3 * np.log(3 / 4) + np.log(1 / 4) + np.log(1 / 7) + 6 * np.log(6 / 7)
    pooled = 4 * np.log(4 / 11) + 7 * np.log(7 / 11)
    assert clustered.independence == pytest.approx(2 * norm.sf(np.sqrt(2 * (split - pooled))))
    assert (made.breaches, made.expected, made.periods) == (3, pytest.approx(2.0), 10)
    # Losses of 2 where 2 were expected: 3 breaches instead of 2.
    assert made.shortfall == pytest.approx(1 - 3 / 2)


@pytest.mark.parametrize("level", [90, 95, 97.5, 99])
def test_exactly_as_many_as_expected_has_the_p_value_one(level):
    made = of_breaches([*range(0, 400, round(100 / (100 - level)))], 400, level)
    assert made.breaches == round(made.expected) and made.kupiec == pytest.approx(1.0)


def test_right_risk_passes_and_too_small_risk_does_not():
    losses = np.random.default_rng(0).standard_normal(2500)
    var, es = norm.ppf(0.975), norm.pdf(norm.ppf(0.975)) / 0.025
    right = fc.backtest_risk(losses, np.full(2500, var), np.full(2500, es), 97.5)
    assert min(right.kupiec, right.independence) > 0.01 and abs(right.shortfall) < 0.25
    small = fc.backtest_risk(losses, np.full(2500, var / 1.5), np.full(2500, es / 1.5), 97.5)
    assert small.kupiec < 1e-6 and small.zone == "red" and small.shortfall < -0.7
    with refuses(UsageError):
        fc.backtest_risk(losses, [var], [es], 97.5)
