"""The search for the parameters of complex exponential smoothing, beside statsforecast's."""

import numpy as np
import pytest

from forecaster.classical.ces_search import Problem, exact_search, grid_of, rough_search
from forecaster.classical.ces_states import CesForm, guesses, pieces, squares_of

# Sums of squared errors and parameters by ``statsforecast.ces.cesmodel`` of statsforecast 2.1.1, on
# series by :func:`written` with these numbers, season and length; its kinds are N, P and F.
# Parameters of further series that are not stable were left out.
THEIRS = {
    (1, 4, 40, "none"): (1023.7952529278353, (1.07709, 1.000548)),
    (1, 4, 40, "partial"): (218.62185262221828, (1.63305, 1.002047, 0.01)),
    (2, 4, 60, "none"): (1731.8778265162189, (1.190037, 1.000807)),
    (2, 4, 60, "full"): (370.08733261550833, (1.278607, 0.95865, 1.350363, 1.027732)),
    (3, 12, 72, "partial"): (347.8385321379933, (1.527233, 1.001735, 0.01)),
    (3, 12, 72, "full"): (345.4161421719647, (1.532341, 1.001712, 0.992607, 0.99795)),
    (4, 12, 96, "full"): (477.9378380017984, (1.59045, 1.001213, 1.0048, 1.000675)),
}


def written(number: int, season: int, length: int) -> np.ndarray:
    """A trend, a season and a random walk whose bits no library decides."""
    state, noise = number, []
    for _ in range(length):
        state = state * 16807 % 2147483647
        noise.append(state / 2147483647 - 0.5)
    t = np.arange(length)
    walk = np.cumsum(noise) * 4
    return 100 + 0.2 * t + walk + 6 * np.sin(2 * np.pi * t / season) + 5 * np.array(noise[::-1])


def problem_of(form: CesForm, rows: list[np.ndarray]) -> Problem:
    (piece,) = pieces(rows, len(rows))
    return Problem(form, piece, piece.lengths, guesses(form, [rows[at] for at in piece.where]))


def form_of(kind: str, season: int) -> CesForm:
    return CesForm(kind, 1 if kind == "none" else season)


def some_rows(count: int = 60) -> list[np.ndarray]:
    random = np.random.default_rng(7)
    season = np.array([3.0, -1.0, 2.0, -4.0])
    return [
        50
        + np.cumsum(random.normal(0.2, random.uniform(0.05, 1), length))
        + random.uniform(0, 1) * season[np.arange(length) % 4]
        + random.normal(size=length)
        for length in random.integers(20, 70, count)
    ]


@pytest.mark.parametrize("which", THEIRS)
def test_squared_errors_are_those_of_statsforecast(which):
    (number, season, length, kind), (squares, parameters) = which, THEIRS[which]
    problem = problem_of(form_of(kind, season), [written(number, season, length)])
    made = problem.squares(np.array([[parameters]]), onwards=np.array([True]))
    assert made[0, 0] == pytest.approx(squares, rel=2e-4)  # parameters have six digits


@pytest.mark.parametrize("which", THEIRS)
def test_the_likelihood_is_no_worse_than_that_of_statsforecast(which):
    number, season, length, kind = which
    y, partial = written(number, season, length), None
    if kind == "full":
        form = form_of("partial", season)
        partial = exact_search(problem_of(form, [y]), grid_of(form, None)).parameters
    form = form_of(kind, season)
    found = exact_search(problem_of(form, [y]), grid_of(form, partial))
    ours, theirs = (
        -length / 2 * np.log(squares) for squares in (found.squares[0], THEIRS[which][0])
    )
    assert ours >= theirs - 1e-3 * abs(theirs)


@pytest.mark.parametrize("kind", ["none", "partial", "full"])
def test_an_exact_search_is_never_worse_than_the_rough_one_and_often_better(kind):
    form, rows = form_of(kind, 4), some_rows()
    problem = problem_of(form, rows)
    partial = np.tile([1.3, 1.0, 0.1], (len(rows), 1))
    grid = grid_of(form, partial if kind == "full" else None)
    rough, exact = rough_search(problem, grid), exact_search(problem, grid)
    assert (exact.squares <= rough.squares * (1 + 1e-9)).all()
    assert (exact.squares < rough.squares * 0.999).mean() > 0.1
    assert 0 < exact.onwards.mean() < 1 and not rough.onwards.any()
    assert problem.stable(exact.parameters[:, None]).all()
    left = squares_of(
        form, problem.piece, exact.parameters[:, None], np.ones((len(rows), 1), bool),
        problem.guess, onwards=exact.onwards,
    )  # fmt: skip
    np.testing.assert_allclose(left[:, 0], exact.squares, rtol=1e-9)
