"""Complex exponential smoothing, of all series at once.

Svetunkov, Kourentzes & Ord (2022), Naval Research Logistics 69. A series' level l has an unobserved
companion, its potential c; one complex parameter, a0 + i a1, smooths both::

    y[t] = l[t-1] + e[t]
    l[t] = l[t-1] + (a1 - 1) c[t-1] + (a0 - a1) e[t]
    c[t] = l[t-1] + (1 - a0) c[t-1] + (a0 + a1) e[t]

In the full form the season's parts are smoothed in the same way, each once a season, by another
complex parameter; in the partial form by a real one.

The initial state is back-cast (:mod:`forecaster.classical.ces_states`), as in the library
statsforecast; there, parameters need not be stable. Initial states with the least squared errors
make forecasts explode.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from forecaster.classical.ces_search import (
    LEARNED_FROM,
    Problem,
    grid_of,
    search,
)
from forecaster.classical.ces_states import (
    CesForm,
    Row,
    ahead_of,
    guesses,
    initial_of,
    pieces,
)
from forecaster.classical.ets_form import MOST_SEASON, Season

_SERIES = 1024  # number of series that are fitted at a time
_LEAST = 1e-30  # mean squared error, in squares of a series' mean absolute value


class Ces(NamedTuple):
    """The model of one series.

    - ``form``: "none", without a season; "partial" or "full", with a smoothed season added
    - ``season``: steps in a season; 1 for none
    - ``parameters``: a0, a1 and what smooths the season: in the partial form b, in the full b0, b1
    - ``initial``: the state before the first value, in units of the values: level, potential, what
      the season adds to each of its steps and, in the full form, the potential of each such
      addition
    """

    form: str
    season: Season
    parameters: tuple[float, ...]
    initial: tuple[float, ...]

    def fits(self) -> bool:
        """Return whether it has the parameters and the states of its form."""
        of_form = {"none": (2, 0), "partial": (3, 1), "full": (4, 2)}
        parameters, states = of_form.get(self.form, (0, 0))
        sizes = parameters, 2 + states * self.season
        return (len(self.parameters), len(self.initial)) == sizes


def fit_ces(rows: Sequence[Row], season: int) -> list[Ces | None]:
    """Return the model of each series, of the form with the least corrected Akaike criterion.

    None where a series has fewer than five values.

    - ``rows``: the values of each series, without gaps
    - ``season``: steps in a season; 1 for none
    """
    fitted: list[Ces | None] = [None] * len(rows)
    least = np.full(len(rows), np.inf)
    partial: dict[int, tuple[float, ...]] = {}
    for form in _forms(season):
        enough = [where for where, row in enumerate(rows) if len(row) >= form.fewest]
        begin = [partial[where] for where in enough] if form.kind == "full" else None
        some = [rows[where] for where in enough]
        for where, model, criterion in _fitted(form, some, begin):
            position = enough[where]
            if form.kind == "partial":
                partial[position] = model.parameters
            if criterion < least[position]:
                least[position], fitted[position] = criterion, model
    return fitted


def _forms(season: int) -> list[CesForm]:
    kinds = ("partial", "full") if 1 < season <= MOST_SEASON else ()
    return [CesForm("none", 1), *(CesForm(kind, season) for kind in kinds)]


def _fitted(
    form: CesForm,
    rows: Sequence[Row],
    partial: Sequence[tuple[float, ...]] | None = None,
) -> Iterator[tuple[int, Ces, float]]:
    """Yield the position of each series, its best model of a form, and its criterion.

    ``partial``: the parameters of the partial form, where the full one is fitted
    """
    scales = [_scale(row) for row in rows]
    scaled = [row / scale for row, scale in zip(rows, scales, strict=True)]
    for piece in pieces([row[-LEARNED_FROM:] for row in scaled], _SERIES):
        guess = guesses(form, [scaled[where][-LEARNED_FROM:] for where in piece.where])
        whole = np.array([len(scaled[where]) for where in piece.where])
        begin = None if partial is None else np.array([partial[where] for where in piece.where])
        best = search(Problem(form, piece, whole, guess), grid_of(form, begin))
        criteria = _criterion(form, best.squares, piece.lengths)
        all_rows = [scaled[where] for where in piece.where]
        initial = initial_of(form, all_rows, best.parameters)
        for number, where in enumerate(piece.where):
            found, begin = best.parameters[number].tolist(), initial[:, number] * scales[where]
            model = Ces(form.kind, form.season, tuple(found), tuple(begin.tolist()))
            yield int(where), model, float(criteria[number])


def ces_ahead(
    rows: Sequence[Row], models: Sequence[Ces | None], horizon: int
) -> list[Float[np.ndarray, "time horizon"]]:
    """Return the forecasts made at every value of each series; NaN where there is no model.

    ``rows``: the values, which may go on after those that the models were fitted on.
    """
    out = [np.full((len(row), horizon), np.nan) for row in rows]
    alike: dict[CesForm, list[tuple[int, Ces]]] = {}
    for where, model in enumerate(models):
        if model is not None:
            alike.setdefault(CesForm(model.form, model.season), []).append((where, model))
    for form, members in alike.items():
        for piece in pieces([rows[where] for where, _ in members], _SERIES):
            chosen = [members[position] for position in piece.where]
            parameters = np.array([model.parameters for _, model in chosen])
            initial = np.array([model.initial for _, model in chosen]).T
            made = ahead_of(form, piece, parameters, initial, horizon)
            for number, (where, _) in enumerate(chosen):
                out[where] = made[: len(rows[where]), number].copy()
    return out


def _scale(row: Row) -> float:
    """Return the mean absolute value, which a series is counted in."""
    scale = float(np.abs(row).mean())
    return scale if scale > 0 else 1.0


def _criterion(
    form: CesForm, squares: Float[np.ndarray, " series"], lengths: Int[np.ndarray, " series"]
) -> Float[np.ndarray, " series"]:
    """Return Akaike's corrected criterion for short series, without terms that all forms share."""
    free = form.parameters + 1
    penalty = 2 * free + 2 * free * (free + 1) / np.maximum(lengths - free - 1, 0.5)
    return lengths * np.log(squares / lengths + _LEAST) + penalty
