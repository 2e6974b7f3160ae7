"""Distributions of forecasts and their loss: exact against SciPy's, in the middle and far out."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

from forecaster.forecasting.bands import Distribution, loss_of, said_by

ALONE = [(0.3, 2.0, 5.0), (-1.0, 0.5, 2.5), (1.0, 3.0, 1e4)]


def distribution(location: float, scale: float, dof: float) -> Distribution:
    return Distribution(np.array([location]), np.array([scale]), np.array([dof]))


def by_scipy(location: float, scale: float, dof: float):
    """Return the same distribution."""
    return stats.t(dof, location, scale)


@pytest.mark.parametrize("parts", ALONE)
def test_scores_and_probabilities_are_exact_in_both_tails(parts):
    values, true = np.array([-30.0, -2.0, 0.0, 0.7, 25.0]), by_scipy(*parts)
    below, above = true.cdf(values), true.sf(values)
    expected = np.clip(np.where(below < 0.5, stats.norm.ppf(below), stats.norm.isf(above)), -8, 8)
    made = distribution(*parts)
    np.testing.assert_allclose(made.scores(values), expected, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(made.probability_above(values), above, rtol=1e-9)


@pytest.mark.parametrize("parts", ALONE)
@pytest.mark.parametrize("score", [-6.0, -1.3, 0.0, 0.2, 1.3, 6.0])
def test_quantiles_have_exactly_that_chance_below_them(parts, score):
    (quantile,) = distribution(*parts).quantiles(np.array([score]))
    true = by_scipy(*parts)
    chance = true.cdf(quantile) if score < 0 else true.sf(quantile)
    assert chance == pytest.approx(stats.norm.cdf(-abs(score)), rel=1e-6)


@pytest.mark.parametrize("parts", ALONE)
@pytest.mark.parametrize("value", [-9.0, 0.0, 0.7, 4.0])
def test_the_crps_is_the_integral_of_squared_differences_of_probabilities(parts, value):
    true = by_scipy(*parts)
    below, _ = integrate.quad(lambda x: true.cdf(x) ** 2, -np.inf, value, epsabs=1e-10)
    above, _ = integrate.quad(lambda x: true.sf(x) ** 2, value, np.inf, epsabs=1e-10)
    (crps,) = distribution(*parts).crps(np.array([value]))
    assert crps == pytest.approx(below + above, rel=1e-6)


def test_networks_are_combined_by_their_quantiles():
    """Two that are equally sure of different places are together as sure as each."""
    members = np.array([[[-1.0, 1.0]], [[1.0, 4.0]], [[5.0, 5.0]]])
    made = Distribution.of_members(*members)
    assert (made.location, made.scale, made.dof) == (0.0, pytest.approx(2.0), 5.0)
    alike = Distribution.of_members(
        *(np.array([[2.0, 2.0]]), np.ones((1, 2)), np.full((1, 2), 5.0))
    )
    scores = np.array([[-2.0], [0.0], [1.0]])
    same = distribution(2.0, 1.0, 5.0)
    np.testing.assert_allclose(alike.quantiles(scores), same.quantiles(scores), rtol=1e-12)


def test_the_loss_is_scipys_negative_log_density_of_counts_that_of_a_normal_distribution():
    random = np.random.default_rng(0)
    outputs = jnp.asarray(random.normal(size=(5, 7, 6)), jnp.float32)
    constants = jnp.asarray(random.normal(size=3), jnp.float32)
    targets = jnp.asarray(random.normal(size=(5, 7, 3)) * 3, jnp.float32)
    location, scale, dof = map(np.asarray, said_by(outputs, constants))
    assert (dof > 2).all() and dof.shape == location.shape
    counted = np.arange(5)[:, None, None] < 2
    expected = -np.where(
        counted,
        stats.norm.logpdf(targets, location, scale),
        stats.t.logpdf(targets, dof, location, scale),
    )
    got = loss_of(outputs, constants, targets, counted=jnp.asarray(counted))
    np.testing.assert_allclose(got[2:], expected[2:], rtol=2e-4, atol=2e-5)
    near = np.abs((targets - location) / scale)[:2] < 3
    np.testing.assert_allclose(got[:2][near], expected[:2][near], rtol=5e-3, atol=2e-3)


@pytest.mark.parametrize("out", [-1e3, 1e3])
def test_losses_stay_finite_far_out(out):
    def loss(outputs):
        one = jnp.ones((1, 1), bool)
        return loss_of(outputs, jnp.zeros(1), jnp.ones((1, 1)), counted=~one).sum()

    value, slope = jax.value_and_grad(loss)(jnp.full((1, 2), out))
    assert np.isfinite(value) and np.isfinite(slope).all()
