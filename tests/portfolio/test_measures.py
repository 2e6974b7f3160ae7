"""Value at risk, expected shortfall and contributions against closed forms and a slow oracle."""

import numpy as np
import pytest
from scipy.stats import norm

from forecaster.portfolio import measures_of
from forecaster.portfolio.measures import standard_error

WEIGHTS = np.array([3.0, 2.0, 1.0, -1.5])
COVARIANCE = np.array(
    [[4.0, 1.2, 0.6, 2.0], [1.2, 2.0, 0.4, 0.8], [0.6, 0.4, 1.0, 0.3], [2.0, 0.8, 0.3, 3.0]]
)


def normal_profits(paths: int = 400_000) -> np.ndarray:
    """Draw profits of jointly normal positions whose sample moments are the true ones."""
    drawn = np.random.default_rng(0).standard_normal((4, paths // 2))
    drawn = np.concatenate([drawn, -drawn], axis=1)
    drawn = np.linalg.solve(np.linalg.cholesky(np.cov(drawn)), drawn)
    return WEIGHTS[:, None] * (np.linalg.cholesky(COVARIANCE) @ drawn)


@pytest.mark.parametrize("level", [95, 97.5, 99])
def test_of_normal_profits_all_is_known(level):
    its = measures_of(normal_profits(), level, 252)
    deviation, score = np.sqrt(WEIGHTS @ COVARIANCE @ WEIGHTS), norm.ppf(level / 100)
    mills = norm.pdf(score) / (1 - level / 100)
    marginal = WEIGHTS * (COVARIANCE @ WEIGHTS) / deviation  # Euler allocation of the deviation
    alone = np.abs(WEIGHTS) * np.sqrt(COVARIANCE.diagonal())
    assert its.var == pytest.approx(score * deviation, rel=0.01)
    assert its.es == pytest.approx(mills * deviation, rel=0.01)
    np.testing.assert_allclose(its.es_parts, mills * marginal, atol=0.02 * its.es)
    np.testing.assert_allclose(its.var_parts, score * marginal, atol=0.1 * its.var)
    np.testing.assert_allclose(its.var_alone, score * alone, rtol=0.01)
    np.testing.assert_allclose(its.es_alone, mills * alone, rtol=0.01)
    assert its.es_parts[3] < 0 and its.var_parts[3] < 0  # a hedge


def test_contributions_add_up_and_the_shortfall_is_the_mean_beyond():
    profits = np.random.default_rng(1).standard_t(4, (7, 1010))
    its = measures_of(profits, 97.5, 12)
    assert its.var_parts.sum() == pytest.approx(its.var, rel=1e-12)
    assert its.es_parts.sum() == pytest.approx(its.es, rel=1e-12)
    losses = np.sort(-profits.sum(0))[::-1]  # 25.25 paths lie beyond
    assert its.es == pytest.approx((losses[:25].sum() + 0.25 * losses[25]) / 25.25)
    assert losses[29] < its.var < losses[20] and its.es > its.var


def test_the_standard_error_is_that_of_repeated_samples():
    random = np.random.default_rng(2)
    made = [measures_of(random.standard_normal((1, 1000)), 95, np.inf) for _ in range(400)]
    assert np.mean([one.var_error for one in made]) == pytest.approx(
        np.std([one.var for one in made]), rel=0.15
    )
    # Of few periods: the mean size of 12 normal errors, as of repeated samples of 12.
    sizes = np.abs(random.standard_normal((20_000, 12))).mean(1)
    exact = norm.ppf((np.arange(100_000) + 0.5) / 100_000)
    relative = standard_error(exact, 2.0, 0.95, 12) / 2.0
    assert relative == pytest.approx(sizes.std() / sizes.mean(), rel=0.03)
    assert measures_of(np.zeros((2, 1000)), 99, 12).var_error == 0
