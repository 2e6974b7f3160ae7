"""Complex exponential smoothing of many series, against the recursion in complex numbers."""

import numpy as np
import pytest

from forecaster.classical import Ces, ces_ahead, fit_ces
from forecaster.classical.ces import _HIGHEST, _Form, _initial, _is_stable


def one_by_one(y: np.ndarray, model: Ces, horizon: int) -> tuple[np.ndarray, np.ndarray]:
    """One-step errors, and forecasts after the last value (Svetunkov et al. 2022, equation 7).

    The state is level + i potential. It moves by what a complex weight makes of the value and of
    its error, y + i e, and of its own opposite.
    """
    weight = complex(*model.parameters[:2])
    state = complex(*model.initial[:2])
    season = list(model.initial[2:]) or [0.0]
    errors, forecasts = [], []
    for t in range(len(y) + horizon):
        place = t % len(season)
        mean = state.real + season[place]
        value = y[t] if t < len(y) else mean
        error = value - mean
        errors.append(error)
        forecasts.append(mean)
        part = complex(1 + 1j - weight) * state
        moved = weight * (state.real + error + 1j * error)
        state = complex(moved.real + part.real, moved.imag + part.imag)
        if model.form == "partial":
            season[place] += model.parameters[2] * error
    return np.array(errors[: len(y)]), np.array(forecasts[len(y) :])


def simulated(model: Ces, length: int, seed: int, scale: float = 1.0) -> np.ndarray:
    """Simulate a series by the state's three equations."""
    rng = np.random.default_rng(seed)
    (real, imaginary), beta = model.parameters[:2], model.parameters[2:]
    level, potential, season, y = *model.initial[:2], list(model.initial[2:]), []
    for t in range(length):
        error = scale * rng.normal()
        y.append(level + error)
        if season:
            place = t % len(season)
            y[-1] += season[place]
            season[place] += beta[0] * error
        level, potential = (
            level + (imaginary - 1) * potential + (real - imaginary) * error,
            level + (1 - real) * potential + (real + imaginary) * error,
        )
    return np.array(y)


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
    for row, model, made in zip(some, models, ces_ahead(some, models, 9), strict=True):
        assert model is not None
        for length in (10, len(row)):
            _, ahead = one_by_one(row[:length], model, 9)
            np.testing.assert_allclose(made[length - 1], ahead, rtol=1e-9)


def test_no_parameters_near_by_are_better():
    some = rows(1)
    for row, model in zip(some, fit_ces(some, 4), strict=True):
        assert model is not None
        best = (one_by_one(row, model, 1)[0] ** 2).sum()
        for number in range(len(model.parameters)):
            for step in (-0.004, 0.004):
                near = list(model.parameters)
                near[number] = np.clip(near[number] + step, 0.01, _HIGHEST[number])
                form = _Form(model.form, model.season)
                if _is_stable(form, np.array([[near]]), np.array([len(row)])):
                    begin = tuple(_initial(form, [row], np.array([near]))[:, 0])
                    other = model._replace(parameters=tuple(near), initial=begin)
                    assert (one_by_one(row, other, 1)[0] ** 2).sum() > best * 0.998


@pytest.mark.parametrize("form", ["none", "partial"])
def test_parameters_of_a_simulated_series_are_found(form):
    season = (3.0, -1.0, 2.0, -4.0) if form == "partial" else ()
    true = Ces(form, 4, (1.4, 0.9, 0.2)[: 2 + bool(season)], (0.0, 0.0, *season))
    y = simulated(true, 2000, seed=0)
    (found,) = fit_ces([y], 4)
    assert found is not None and found.form == form
    np.testing.assert_allclose(found.parameters, true.parameters, atol=0.1)
    assert (one_by_one(y, found, 1)[0] ** 2).mean() == pytest.approx(1, rel=0.1)


def test_a_season_and_growth_go_on():
    t = np.arange(72)
    y = 100 + t + 20 * np.sin(2 * np.pi * t / 12) + np.random.default_rng(2).normal(size=72)
    (model,) = fit_ces([y[:60]], 12)
    assert model is not None and model.form == "partial"
    made = ces_ahead([y[:60]], [model], 12)[0][-1]
    assert np.abs(made - y[60:]).mean() < 4


@pytest.mark.parametrize("season", [1, 4])
@pytest.mark.parametrize("length", [10, 300])
def test_stability_is_that_of_the_eigenvalues(season, length):
    rng = np.random.default_rng(3)
    form = _Form("partial" if season > 1 else "none", season)
    parameters = rng.uniform(0.01, 1.9, (1, 400, form.parameters))
    parameters[..., 2:] *= 0.2
    largest = []
    for real, imaginary, *beta in parameters[0]:
        size = 2 + (season if beta else 0)
        moved, output, gain = np.eye(size, k=1), np.zeros(size), np.zeros(size)
        moved[:2, :2] = [[1, imaginary - 1], [1, 1 - real]]
        moved[1, 2:] = 0
        output[0], gain[:2] = 1, (real - imaginary, real + imaginary)
        if beta:
            output[2], moved[-1, 2], gain[-1] = 1, 1, beta[0]
        largest.append(np.abs(np.linalg.eigvals(moved - np.outer(gain, output))).max())
    stable = _is_stable(form, parameters, np.array([length]))[0]
    np.testing.assert_array_equal(stable, np.array(largest) < 1 + 0.25 / length)
    assert 0.05 < stable.mean() < 0.95


def test_units_do_not_matter():
    some = rows(4)
    plain = ces_ahead(some, fit_ces(some, 4), 5)
    counted = [row * 1e9 for row in some]
    for one, other in zip(plain, ces_ahead(counted, fit_ces(counted, 4), 5), strict=True):
        np.testing.assert_allclose(one * 1e9, other, rtol=1e-6)


def test_a_series_is_by_itself_to_the_bit():
    some = rows(4)
    alone = ces_ahead([some[2]], fit_ces([some[2]], 4), 5)[0]
    np.testing.assert_array_equal(ces_ahead(some, fit_ces(some, 4), 5)[2], alone)
    mixed = some[::-1] * 3
    np.testing.assert_array_equal(ces_ahead(mixed, fit_ces(mixed, 4), 5)[2], alone)


def test_later_values_change_no_earlier_forecast():
    some = [row[:25] for row in rows(5)]
    models = fit_ces(some, 4)
    more = [np.concatenate([row, row * 9]) for row in some]
    for one, other in zip(ces_ahead(some, models, 4), ces_ahead(more, models, 4), strict=True):
        np.testing.assert_array_equal(one, other[: len(one)])
        assert np.isfinite(other).all()


def test_what_is_not_learned_from_is_still_smoothed():
    y = simulated(Ces("none", 1, (1.3, 1.0), (1000.0, 900.0)), 2500, seed=6)
    (whole,), (late,) = fit_ces([y], 1), fit_ces([y[-2048:]], 1)
    assert whole is not None and late is not None
    np.testing.assert_allclose(whole.parameters, late.parameters, atol=1e-6)
    assert np.abs(one_by_one(y, whole, 1)[0][:50]).mean() < 2


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


def test_no_series_at_all():
    assert fit_ces([], 4) == []
    assert ces_ahead([], [], 4) == []
