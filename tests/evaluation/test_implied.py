"""What quantiles imply, beside the distributions that they were taken from."""

import itertools

import numpy as np
import pytest
from scipy import integrate, stats

from forecaster.evaluation.scores.implied import HEAVIEST, Implied, enough

QUANTILES = np.array([0.025, *np.arange(1, 20) / 20, 0.975])
FEW = np.array([0.025, 0.1, 0.5, 0.9, 0.975])


def implied(distribution, quantiles=QUANTILES) -> Implied:
    return Implied(distribution.ppf(quantiles)[None], quantiles)


def below(distribution, probability: float) -> float:
    """The expected shortfall, by integration."""
    return distribution.expect(lambda x: x, ub=distribution.ppf(probability)) / probability


@pytest.mark.parametrize("quantiles", [QUANTILES, FEW])
def test_a_normal_distribution_is_read_exactly(quantiles):
    normal = stats.norm(0.3, 2.0)
    got = implied(normal, quantiles)
    assert got.second_moment() == pytest.approx(4.09, rel=1e-4)
    assert got.shortfall(0.025) == pytest.approx(below(normal, 0.025), rel=1e-4)
    outcomes = np.linspace(-9, 9, 37)
    some = Implied(np.tile(normal.ppf(quantiles), (37, 1)), quantiles)
    np.testing.assert_allclose(
        some.log_density(outcomes), stats.norm.logpdf(outcomes, 0.3, 2.0), atol=2e-3
    )


@pytest.mark.parametrize("dof", [3.0, 4.0, 6.0, 12.0])
def test_a_student_t_is_read_within_half_a_per_cent(dof):
    student = stats.t(dof, 0.1, 0.5)
    got = implied(student)
    assert got.second_moment() == pytest.approx(student.var() + 0.01, rel=0.005)
    assert got.shortfall(0.025) == pytest.approx(below(student, 0.025), rel=1e-6)
    assert got.shortfall(0.05) == pytest.approx(below(student, 0.05), rel=0.003)
    tail = student.ppf([0.001, 0.999])
    density = Implied(np.tile(student.ppf(QUANTILES), (2, 1)), QUANTILES).log_density(tail)
    np.testing.assert_allclose(density, stats.t.logpdf(tail, dof, 0.1, 0.5), atol=1e-3)


def test_tails_heavier_than_three_degrees_of_freedom_count_as_three():
    cauchy = implied(stats.cauchy())
    unit = stats.cauchy.ppf(0.975) / stats.t.ppf(0.975, HEAVIEST)
    tail = unit * below(stats.t(HEAVIEST), 0.025)
    assert np.isfinite(cauchy.second_moment()).all()
    assert cauchy.shortfall(0.025) == pytest.approx(tail)


@pytest.mark.parametrize("distribution", [stats.t(4), stats.skewnorm(4), stats.laplace()])
def test_the_density_has_mass_one_and_the_moments_that_are_told(distribution):
    one = implied(distribution)
    edges = [-np.inf, *one.values[0], np.inf]

    def integral(power: int, upper: float = np.inf) -> float:
        return sum(
            integrate.quad(lambda x: x**power * np.exp(one.log_density([x])[0]), low, high)[0]
            for low, high in itertools.pairwise(edges)
            if high <= upper
        )

    assert integral(0) == pytest.approx(1, abs=1e-6)
    assert one.second_moment() == pytest.approx(integral(2), rel=1e-4)
    assert one.shortfall(0.05) == pytest.approx(integral(1, one.values[0, 1]) / 0.05, rel=1e-5)


def test_without_any_width_there_is_no_density_but_a_second_moment():
    flat = Implied(np.full((1, 21), 0.2), QUANTILES)
    assert flat.second_moment() == pytest.approx(0.04)
    assert flat.shortfall(0.05) == pytest.approx(0.2)
    assert not np.isfinite(flat.log_density([0.2])).any()
    holes = Implied(np.where(QUANTILES < 0.1, np.nan, 0.2)[None], QUANTILES)
    assert np.isnan(holes.second_moment()).all() and np.isnan(holes.log_density([0.2])).all()


@pytest.mark.parametrize("quantiles", [[0.1, 0.25, 0.5, 0.75, 0.9], [0.05, 0.5, 0.95], [0.5], []])
def test_from_too_few_quantiles_nothing_is_read(quantiles):
    assert not enough(quantiles) and enough(QUANTILES) and enough(FEW)
