"""Complex exponential smoothing of many series, against the recursion in complex numbers."""

import numpy as np
import pytest

from forecaster.classical import Ces, ces_ahead, fit_ces
from forecaster.classical.ces import CesForm, is_stable


def one_by_one(y: np.ndarray, model: Ces, horizon: int) -> tuple[np.ndarray, np.ndarray]:
    """One-step errors, and forecasts after the last value (Svetunkov et al. 2022, equation 7).

    A state is level + i potential. It moves by what a complex weight makes of the value and of its
    error, y + i e, and of its own opposite. Each part of a season in the full form is such a state.
    """
    weight, seasonal = complex(*model.parameters[:2]), model.parameters[2:]
    state, rest = complex(*model.initial[:2]), model.initial[2:]
    season = [complex(part) for part in rest[: model.season]] or [0j]
    if model.form == "full":
        season = [complex(*part) for part in np.reshape(rest, (2, -1)).T]
    errors, forecasts = [], []
    for t in range(len(y) + horizon):
        place = t % len(season)
        mean = state.real + season[place].real
        error = y[t] - mean if t < len(y) else 0.0
        errors.append(error)
        forecasts.append(mean)
        state = moved(state, weight, error)
        if model.form == "partial":
            season[place] += seasonal[0] * error
        elif model.form == "full":
            season[place] = moved(season[place], complex(*seasonal), error)
    return np.array(errors[: len(y)]), np.array(forecasts[len(y) :])


def moved(state: complex, weight: complex, error: float) -> complex:
    return weight * (state.real + error + 1j * error) + (1 + 1j - weight) * state


def after(
    level: float, potential: float, weights: tuple[float, ...], error: float
) -> tuple[float, float]:
    real, imaginary = weights[:2]
    return (
        level + (imaginary - 1) * potential + (real - imaginary) * error,
        level + (1 - real) * potential + (real + imaginary) * error,
    )


def rows(seed: int = 0, count: int = 5) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [
        100
        + np.cumsum(rng.normal(0.3, 1, 25 + 4 * k))
        + (k % 2) * 9 * np.sin(np.arange(25 + 4 * k) * np.pi / 2)
        for k in range(count)
    ]


def test_forecasts_are_those_of_the_recursion():
    some = rows()
    models = fit_ces(some, 4)
    assert {model.form for model in models if model} == {"none", "partial"}
    seasons = (3.0, -1.0, 2.0, -4.0, 2.0, -1.0, 2.0, -3.0)
    some += some[:3]
    models += [Ces("full", 4, (1.4, 0.9, 1.2, 0.9), (90.0, 80.0, *seasons))] * 3
    for row, model, made in zip(some, models, ces_ahead(some, models, 9), strict=True):
        assert model is not None
        for length in (10, len(row)):
            _, ahead = one_by_one(row[:length], model, 9)
            np.testing.assert_allclose(made[length - 1], ahead, rtol=1e-9)


@pytest.mark.parametrize("kind", ["none", "partial", "full"])
@pytest.mark.parametrize("length", [10, 300])
def test_stability_is_that_of_the_eigenvalues(kind, length):
    """Errors of a state move as the state does where every value is 0."""
    rng = np.random.default_rng(3)
    form = CesForm(kind, 4 if kind != "none" else 1)
    parameters = rng.uniform(0.01, 1.9, (1, 400, form.parameters))
    parameters[..., 2:] *= 0.2 if kind == "partial" else 1
    if kind == "full":
        parameters[..., 2:] = 1 + 0.2 * (parameters[..., 2:] / 1.9 - 0.3)
        parameters[..., 0] = 1 + 0.4 * parameters[..., 0]
    largest = []
    for point in parameters[0]:
        size = 2 + (form.season if kind != "none" else 0) * (2 if kind == "full" else 1)
        columns = []
        for one in np.eye(size):
            state = one.copy()
            for t in range(form.season):
                error = -state[0] - (state[2 + t] if size > 2 else 0)
                if kind == "partial":
                    state[2 + t] += point[2] * error
                elif kind == "full":
                    part = [2 + t, 2 + form.season + t]
                    state[part] = after(state[part[0]], state[part[1]], tuple(point[2:]), error)
                state[:2] = after(state[0], state[1], tuple(point), error)
            columns.append(state)
        roots = np.abs(np.linalg.eigvals(np.array(columns).T)) ** (1 / form.season)
        largest.append(roots.max())
    stable = is_stable(form, parameters, np.array([length]))[0]
    expected = np.array(largest) < 1 + 0.25 / length
    clear = np.abs(np.array(largest) - (1 + 0.25 / length)) > 1e-6
    np.testing.assert_array_equal(stable[clear], expected[clear])
    assert 0.05 < stable.mean() < 0.95 and clear.mean() > 0.9


@pytest.mark.parametrize("length", range(1, 12))
def test_short_series(length):
    row = np.arange(1.0, length + 1)
    (model,) = fit_ces([row], 4)
    assert (model is not None) == (length >= 5)
    (made,) = ces_ahead([row], [model], 2)
    assert made.shape == (length, 2)
    assert np.isfinite(made).all() == (length >= 5)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "row",
    [
        np.zeros(30),
        np.full(30, 7.0),
        np.r_[5.0, np.zeros(29)],
        np.r_[np.zeros(29), 5.0],
        1.5 ** np.arange(30),
        (-1.0) ** np.arange(30),
        np.r_[1e-100, np.full(40, 1e100)],
    ],
)
def test_extreme_series_stay_finite(row):
    (made,) = ces_ahead([row], fit_ces([row], 4), 2000)
    assert np.isfinite(made).all()
