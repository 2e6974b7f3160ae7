"""Distributions, and bands: exact against slow oracles, with the coverage that they promise."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from scipy import integrate, stats
from scipy.special import ndtr, ndtri

import forecaster as fc
from forecaster.forecasting.bands import (
    KNOTS,
    Distribution,
    Widths,
    common_spread,
    common_tails,
    loss_of,
    said_by,
)
from forecaster.forecasting.fitting.fit import Scores, widths_of
from tests.bands import band_scores, calibrated
from tests.frames import long

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


MEAN_SIZE = np.sqrt(2 / np.pi)


def means_of(scores, now, prior):
    """Return the mean sizes of the scores of one series that became known at each origin."""
    means = []
    for before in range(now + 1):
        sizes = {
            k: abs(scores[before - k - 1, k]) / MEAN_SIZE / prior[k]
            for k in range(min(before, scores.shape[1]))
            if np.isfinite(scores[before - k - 1, k])
        }
        if sizes:
            means.append(np.average(list(sizes.values()), weights=[1 / (k + 1) for k in sizes]))
    return np.array(means)


def shrunk(values, decay, prior):
    """Return their exponentially weighted mean, shrunk to 1."""
    weights = decay ** np.arange(len(values))[::-1]
    return (prior + weights @ values) / (prior + weights.sum())


def spread_at(scores, now, h, prior):
    """Return the spread of all series times the long-run and the recent factor of one."""
    means = means_of(scores, now, prior)
    usual = np.array([shrunk(means[: n + 1], 0.998, 100) for n in range(len(means))])
    return prior[h] * shrunk(means, 0.998, 100) * shrunk(means / usual, 0.98, 20)


def test_bounds_are_those_of_the_definition():
    random = np.random.default_rng(0)
    scores = random.standard_t(4, (3, 70, 2)) + 0.3
    scores[1, :15] = np.nan
    scores[:, -1] = np.nan
    prior = np.array([1.1, 1.4])
    got = band_scores(scores, [80, 95], 12, prior=prior)
    for (series, origin), level in itertools.product(np.ndindex(3, 12), range(2)):
        spread = [spread_at(scores[series], 58 + origin, h, prior) for h in range(2)]
        lower, upper = got[level, :, series, origin]
        np.testing.assert_allclose(upper, ndtri((0.9, 0.975)[level]) * np.array(spread))
        np.testing.assert_allclose(lower, -upper)


def test_bands_follow_a_change_of_regime():
    """After forecasts become too sure, bands soon have their coverage again."""
    random = np.random.default_rng(2)
    scores = random.normal(size=(200, 900, 1))
    scores[:, 500:] *= 2
    lower, upper = band_scores(scores, [80], count=900)[0]
    inside = (scores >= lower) & (scores <= upper)
    assert abs(inside[:, 300:500].mean() - 0.8) < 0.01
    assert inside[:, 500:520].mean() < 0.6
    assert abs(inside[:, 750:].mean() - 0.8) < 0.03


def test_quantiles_are_continuous_and_probabilities_are_their_inverse():
    """Also with tails, and where the largest error limits them."""
    random = np.random.default_rng(5)
    scores = random.standard_t(3, (6, 300, 2))
    tails, some = np.stack([KNOTS, KNOTS * (1 + KNOTS / 8)]), np.arange(6) < 3
    reach = np.array([-2.3, 2.4])[:, None, None, None] * np.ones((2, 6, 1, 2))
    odd = np.array([0.5, 2.4])[:, None, None, None] * np.ones((2, 6, 1, 2))
    for chosen, limit in ((None, None), (tails, None), (tails, reach), (tails, odd)):
        used = None if chosen is None else some
        made = calibrated(scores, tails=chosen, tailed=used, reach=limit)
        usual = np.linspace(-4, 4, 8001)[:, None, None, None]
        steps = np.diff(made.scores(usual), axis=0)
        assert steps.min() >= 0 and steps[3500:4500].max() < 0.02
        for one in (-1.5, -0.01, 0.0, 0.3, 2.0):
            of_one = np.full((6, 1, 2), one)
            share = made.probability_below(made.scores(of_one))
            np.testing.assert_allclose(made.scores(ndtri(share)), made.scores(of_one), atol=1e-9)
            assert limit is not None or abs(share - ndtr(one)).max() < 1e-9
        np.testing.assert_array_equal(made.probability_below(np.full((6, 1, 2), np.inf)), 1)
        assert made.probability_below(np.full((6, 1, 2), -np.inf)).max() < 1e-15


def test_the_spread_of_all_series_is_drawn_to_one_and_then_to_the_step_before():
    random = np.random.default_rng(4)
    many, few = 2 * random.normal(size=(100, 500, 2)), np.full((1, 5, 2), 3.0)
    np.testing.assert_allclose(common_spread(many), 2, rtol=0.02)
    first = (15 / MEAN_SIZE + 25) / 30
    second = (15 / MEAN_SIZE + 600 * first) / 605
    np.testing.assert_allclose(common_spread(few), (first, second))
    far = np.concatenate([2 * random.normal(size=(100, 500, 1)), np.full((100, 500, 3), np.nan)], 2)
    np.testing.assert_allclose(common_spread(far), common_spread(far)[0], rtol=1e-12)
    np.testing.assert_array_equal(common_spread(np.full((2, 5, 1), np.nan)), 1)


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
