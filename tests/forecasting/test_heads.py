"""Heads against scipy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

from forecaster.forecasting.bands.heads import HEADS, Point, StudentT, _log_gamma_ratio


def test_student_t_loss_is_scipys_negative_log_density():
    random = np.random.default_rng(0)
    head = StudentT(3)
    outputs = jnp.asarray(random.normal(size=(5, 7, head.outputs)), jnp.float32)
    constants = jnp.asarray(random.normal(size=head.constants), jnp.float32)
    targets = jnp.asarray(random.normal(size=(5, 7, 3)) * 3, jnp.float32)
    location, scale, dof = map(np.asarray, head.distribution(outputs, constants))
    assert (dof > 2).all() and dof.shape == location.shape
    expected = -stats.t.logpdf(targets, dof, location, scale)
    np.testing.assert_allclose(
        head.loss(outputs, constants, targets), expected, rtol=2e-4, atol=2e-5
    )


def test_the_constant_of_students_t_is_right_to_the_last_digits():
    x = jnp.geomspace(1.05, 1e5, 500)
    exact = np.asarray(x, np.float64)
    expected = special.gammaln(exact + 0.5) - special.gammaln(exact)
    np.testing.assert_allclose(_log_gamma_ratio(x), expected, rtol=3e-7, atol=3e-7)
    slope = jax.vmap(jax.grad(_log_gamma_ratio))(x)
    expected = special.digamma(exact + 0.5) - special.digamma(exact)
    np.testing.assert_allclose(slope, expected, rtol=2e-6)


def test_point_loss_is_the_squared_error():
    outputs = jnp.array([[1.0, -2.0]])
    head = Point(2)
    location, scale, _ = head.distribution(outputs, jnp.zeros(0))
    np.testing.assert_array_equal(location, outputs)
    np.testing.assert_array_equal(scale, 1)
    np.testing.assert_array_equal(head.loss(outputs, jnp.zeros(0), jnp.zeros((1, 2))), [[1, 4]])


def test_losses_stay_finite_far_out():
    for head in (kind(1) for kind in HEADS.values()):
        constants = jnp.zeros(head.constants)
        for out in (-1e3, 1e3):
            value, grad = jax.value_and_grad(
                lambda o, head=head, constants=constants: head.loss(o, constants, jnp.ones(1)).sum()
            )(jnp.full(head.outputs, out))
            assert np.isfinite(value) and np.isfinite(grad).all()


@pytest.mark.slow
def test_networks_of_counts_learn_mean_and_variance_and_others_as_before():
    """Under Student's t, counts that are mostly zero are likeliest at zero, without width."""
    targets = jnp.where(jnp.arange(400) % 10 == 0, 2.7, -0.3)[:, None]
    every = jnp.ones((400, 1), bool)
    outputs = jnp.tile(jnp.array([targets.mean(), jnp.log(targets.std())]), (400, 1))
    for head in (StudentT(1), Point(1)):
        made = outputs[:, : head.outputs]
        constants = jnp.zeros(head.constants)
        slope = jax.grad(lambda o, h=head, c=constants: h.loss(o, c, targets, counted=every).sum())(
            made
        )
        np.testing.assert_allclose(slope.mean(0), 0, atol=2e-3)
    head, which = StudentT(1), jnp.array([[True], [False]])
    both = head.loss(jnp.zeros((2, 2)), jnp.zeros(1), jnp.full((2, 1), 3.0), counted=which)
    np.testing.assert_allclose(both[0], -stats.norm.logpdf(3.0), rtol=1e-3)
    np.testing.assert_array_equal(
        both[1], head.loss(jnp.zeros((1, 2)), jnp.zeros(1), jnp.full((1, 1), 3.0))[0]
    )
