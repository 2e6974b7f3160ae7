"""Complex exponential smoothing of many series, against the recursion in complex numbers."""

import numpy as np

from forecaster.classical import Ces, ces_ahead, fit_ces


def one_by_one(y: np.ndarray, model: Ces, horizon: int) -> tuple[np.ndarray, np.ndarray]:
    """One-step errors, and forecasts after the last value (Svetunkov et al. 2022, equation 7).

    A state is level + i potential. It moves by what a complex weight makes of the value and of its
    error, y + i e, and of its own opposite. The error moves what a step of the season adds.
    """
    weight, seasonal = complex(*model.parameters[:2]), model.parameters[2:]
    state, season = complex(*model.initial[:2]), [*model.initial[2:]] or [0.0]
    errors, forecasts = [], []
    for t in range(len(y) + horizon):
        place = t % len(season)
        mean = state.real + season[place]
        error = y[t] - mean if t < len(y) else 0.0
        errors.append(error)
        forecasts.append(mean)
        state = moved(state, weight, error)
        if seasonal:
            season[place] += seasonal[0] * error
    return np.array(errors[: len(y)]), np.array(forecasts[len(y) :])


def moved(state: complex, weight: complex, error: float) -> complex:
    return weight * (state.real + error + 1j * error) + (1 + 1j - weight) * state


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
    assert {model.season for model in models if model} == {1, 4}
    for row, model, made in zip(some, models, ces_ahead(some, models, 9), strict=True):
        assert model is not None
        for length in (10, len(row)):
            _, ahead = one_by_one(row[:length], model, 9)
            np.testing.assert_allclose(made[length - 1], ahead, rtol=1e-9)
