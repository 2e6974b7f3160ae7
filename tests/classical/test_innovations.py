"""Linear innovations models: fast products against slow, obvious loops."""

import numpy as np
import pytest

from forecaster.classical import Form
from forecaster.classical.innovations import (
    squares_of,
    squares_on_grid,
)

FORMS = [Form(trend, season) for trend in ("none", "additive", "damped") for season in (1, 4)]


def one_by_one(form: Form, parameters: np.ndarray, y: np.ndarray, start: np.ndarray) -> np.ndarray:
    """One-step errors by the textbook's recursion (Hyndman et al. 2008, table 2.2)."""
    given = dict(zip(form.names, parameters, strict=True))
    level, trend = start[0], start[1] if form.trend != "none" else 0.0
    seasons = list(start[-form.season :]) if form.season > 1 else [0.0]
    damping = given.get("damping", 1.0)
    errors = []
    for value in y:
        season = seasons.pop(0)
        error = value - (level + damping * trend + season)
        level, trend = (
            level + damping * trend + given["level"] * error,
            damping * trend + given["level"] * given.get("trend", 0.0) * error,
        )
        seasons.append(season + given.get("season", 0.0) * (1 - given["level"]) * error)
        errors.append(error)
    return np.array(errors)


def series(seed: int, lengths: list[int]) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    values = np.zeros((len(lengths), max(lengths)))
    for row, length in enumerate(lengths):
        t = np.arange(length)
        values[row, :length] = 50 + 0.3 * t + 5 * np.sin(t * np.pi / 2) + rng.normal(size=length)
    return values, np.array(lengths)


@pytest.mark.parametrize("longest", [20, 30])  # by matrix products, by Fourier transforms
@pytest.mark.parametrize("form", FORMS)
def test_errors_are_those_of_the_textbook_s_recursion(form, longest):
    values, lengths = series(0, [longest, longest - 4])
    parameters = form.grid()[[1, -2]]
    squares, initial = squares_of(values, lengths, form.space(parameters))
    for row, length in enumerate(lengths):
        errors = one_by_one(form, parameters[row], values[row, :length], initial[row])
        assert squares[row] == pytest.approx((errors**2).sum(), rel=1e-5)


@pytest.mark.parametrize("longest", [40, 200])  # by matrix products, by Fourier transforms
def test_a_grid_gives_what_each_model_gives_alone(longest):
    form = FORMS[-1]
    values, lengths = series(3, [longest, 30, longest - 7, 30, 25])
    grid = form.grid()[::17]
    all_at_once = squares_on_grid(values, lengths, form.space(grid))
    for number, parameters in enumerate(grid):
        space = form.space(np.tile(parameters, (len(values), 1)))
        alone, _ = squares_of(values, lengths, space)
        np.testing.assert_allclose(all_at_once[:, number], alone, rtol=1e-6)
