"""Admissible parameters of exponential smoothing: their likelihood, beside statsforecast's."""

import itertools

import numpy as np
import pytest

from forecaster.classical import Form, fit_ets
from forecaster.classical.admissible import admissible
from forecaster.classical.innovations import Estimate, estimate

FORMS = {
    "ANN": Form("none"),
    "AAN": Form("additive"),
    "AAdN": Form("damped"),
    "ANA": Form("none", 4),
    "AAA": Form("additive", 4),
    "AAdA": Form("damped", 4),
}
# Logarithms of likelihoods by ``statsforecast.ets.ets_f`` of statsforecast 2.1.1: by series (a
# number and a kind of :func:`written`) and form.
THEIRS = {
    (1, "trended"): {
        "ANN": -138.970917,
        "AAN": -136.914376,
        "AAdN": -137.211298,
        "ANA": -107.699795,
        "AAA": -107.473605,
        "AAdA": -107.554665,
    },
    (4, "trended"): {
        "ANN": -378.410906,
        "AAN": -377.942923,
        "AAdN": -378.246729,
        "ANA": -301.011913,
        "AAA": -300.917609,
        "AAdA": -300.991308,
    },
    (11, "seasonal"): {"ANA": -46.487274, "AAA": -70.227086, "AAdA": -45.946101},
    (13, "seasonal"): {"ANA": -50.460082, "AAA": -46.994571, "AAdA": -48.470967},
}
LENGTHS = {(1, "trended"): 40, (4, "trended"): 96}  # 60 by default
WORTH = 1e-3  # share of a likelihood that counts as a difference


def noise(number: int, length: int) -> np.ndarray:
    """Numbers between -0.5 and 0.5 whose bits no library decides."""
    state, out = number, []
    for _ in range(length):
        state = state * 16807 % 2147483647
        out.append(state / 2147483647 - 0.5)
    return np.array(out)


def written(which: tuple[int, str]) -> np.ndarray:
    """A trend, a season and a random walk; or a level and a season that errors move strongly."""
    (number, kind), length = which, LENGTHS.get(which, 60)
    drawn = noise(number, length)
    if kind == "trended":
        t = np.arange(length)
        walk = np.cumsum(drawn) * 4
        return 100 + 0.2 * t + walk + 6 * np.sin(2 * np.pi * t / 4) + 5 * drawn[::-1]
    level, seasons, out = 100.0, [3.0, -1.0, 2.0, -4.0], []
    for error in drawn:
        out.append(level + seasons[0] + error)
        level += 0.7 * error
        seasons = [*seasons[1:], seasons[0] + 0.8 * error]
    return np.array(out)


def fits(form: Form, row: np.ndarray) -> tuple[Estimate, Estimate]:
    """Return the fits within the usual and the admissible bounds."""
    values, lengths = (row - row[0])[None], np.array([len(row)])
    usual = estimate(values, lengths, form.space, form.grid(), form.bounds())
    return usual, admissible(form, values, lengths)


def log_likelihood(found: Estimate, length: int) -> float:
    return float(-length / 2 * np.log(found.squares[0]))


@pytest.mark.parametrize("which", THEIRS)
def test_likelihoods_are_no_worse_than_those_of_statsforecast(which):
    row = written(which)
    for name, theirs in THEIRS[which].items():
        ours = log_likelihood(fits(FORMS[name], row)[1], len(row))
        assert ours >= theirs - WORTH * abs(theirs), name


def test_usual_bounds_miss_weights_of_the_season_above_one_minus_the_level():
    which = (11, "seasonal")
    usual, wide = fits(FORMS["ANA"], written(which))
    theirs = THEIRS[which]["ANA"]
    assert log_likelihood(usual, 60) < theirs - 0.1 * abs(theirs)
    level, share = wide.parameters[0]
    assert (level, share * (1 - level)) == pytest.approx((0.7022, 0.9414), abs=0.03)


def growth(form: Form, parameters: np.ndarray) -> np.ndarray:
    """The factor by which errors of the initial state grow each step, at most."""
    space = form.space(parameters)
    turned = space.transition - space.gain[:, :, None] * space.output[:, None]
    return np.abs(np.linalg.eigvals(turned)).max(1)


@pytest.mark.parametrize("form", [*FORMS.values(), Form("additive", 24)], ids=str)
def test_errors_of_the_initial_state_do_not_grow(form):
    rows = np.stack([noise(number, 96).cumsum() for number in range(1, 13)])
    found = admissible(form, rows - rows[:, :1], np.full(len(rows), 96))
    assert growth(form, found.parameters).max() < 1 + 1e-7


def test_a_search_does_not_begin_where_errors_grow():
    form, length = Form("additive", 24), 100
    worst = form.grid()[growth(form, form.grid()).argmax()]
    assert growth(form, worst[None]) > 1.002  # a point of the usual region that is not admissible
    level, trend, seasons, rows = 0.0, 1.0, [0.0] * 24, []
    gain = form.space(worst[None]).gain[0]
    for error in 3 * noise(1, length):
        rows.append(level + trend + seasons[0] + error)
        level, trend = level + trend + gain[0] * error, trend + gain[1] * error
        seasons = [*seasons[1:], seasons[0] + gain[-1] * error]
    found = admissible(form, np.array([rows]) - rows[0], np.array([length]))
    assert growth(form, found.parameters).max() < 1 + 1e-7


def test_series_are_fitted_each_by_itself_and_averages_are_forecast():
    rows = [written((number, "seasonal")) for number in (11, 12, 13)]
    together = fit_ets(rows, 4, bounds="admissible")
    assert together[1] == fit_ets(rows[1:2], 4, bounds="admissible")[0]
    usual = fit_ets(rows, 4)
    assert any(one != other for one, other in zip(together, usual, strict=True))
    shares = [
        value
        for component in itertools.chain.from_iterable(together)
        for name, value in zip(component.form.names, component.parameters, strict=True)
        if name == "season"
    ]
    assert max(shares) > 1


def test_admissible_bounds_need_the_exact_search():
    with pytest.raises(ValueError, match="expected 'usual' or 'admissible'; got 'Admissible'"):
        fit_ets([written((1, "trended"))], 4, bounds="Admissible")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="exact=True"):
        fit_ets([written((1, "trended"))], 4, exact=False, bounds="admissible")
