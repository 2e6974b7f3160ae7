"""What quantiles imply, beside the distributions that they were taken from."""

import itertools

import numpy as np
import pytest
from scipy import integrate, stats

from forecaster.evaluation.scores.returns import Implied

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
