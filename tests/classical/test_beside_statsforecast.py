"""ETS and CES come as near to the data as statsforecast's do, each in its own form."""

import numpy as np
import pytest

from forecaster.classical import Form
from forecaster.classical.ces import CesForm, Problem, guesses, pieces, search
from forecaster.classical.ets import on_grid, refined

FORMS = {
    "ANN": Form("none"),
    "AAN": Form("additive"),
    "AAdN": Form("damped"),
    "ANA": Form("none", 4),
    "AAA": Form("additive", 4),
    "AAdA": Form("damped", 4),
}
# By statsforecast 2.1.1, of series by :func:`written`. Logarithms of likelihoods by
# ``statsforecast.ets.ets_f``, by number, length and form:
ETS = {
    (1, 40): {
        "ANN": -138.970917, "AAN": -136.914376, "AAdN": -137.211298, "ANA": -107.699795,
        "AAA": -107.473605, "AAdA": -107.554665,
    },
    (4, 96): {
        "ANN": -378.410906, "AAN": -377.942923, "AAdN": -378.246729, "ANA": -301.011913,
        "AAA": -300.917609, "AAdA": -300.991308,
    },
}  # fmt: skip
# Sums of squared errors by ``statsforecast.ces.cesmodel``, by number, season, length and form:
CES = {
    (1, 4, 40, "none"): 1023.7952529278353,
    (1, 4, 40, "partial"): 218.62185262221828,
    (2, 4, 60, "none"): 1731.8778265162189,
    (3, 12, 72, "partial"): 347.8385321379933,
}
WORTH = 1e-3  # share of the logarithm of a likelihood that counts as a difference


def written(number: int, season: int, length: int) -> np.ndarray:
    """A trend, a season and a random walk whose bits no library decides."""
    state, noise = number, []
    for _ in range(length):
        state = state * 16807 % 2147483647
        noise.append(state / 2147483647 - 0.5)
    t = np.arange(length)
    walk = np.cumsum(noise) * 4
    return 100 + 0.2 * t + walk + 6 * np.sin(2 * np.pi * t / season) + 5 * np.array(noise[::-1])


def is_no_worse(squares: float, length: int, theirs: float) -> bool:
    return -length / 2 * np.log(squares) >= theirs - WORTH * abs(theirs)


@pytest.mark.parametrize("which", ETS)
def test_ets(which):
    number, length = which
    row = written(number, 4, length)
    values, lengths = (row - row[0])[None], np.array([length])
    for name, theirs in ETS[which].items():
        form = FORMS[name]
        start = on_grid(values, lengths, form.space, form.grid())
        found = refined(values, lengths, form.space, start, form.bounds())
        assert is_no_worse(found.squares[0], length, theirs), name


@pytest.mark.parametrize("which", CES)
def test_ces(which):
    number, season, length, kind = which
    row = written(number, season, length)
    form = CesForm(1 if kind == "none" else season)
    (piece,) = pieces([row], 1)
    _, squares = search(Problem(form, piece, piece.lengths, guesses(form, [row])))
    assert is_no_worse(squares[0], length, -length / 2 * np.log(CES[which]))
