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

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Bool, Float, Int

from forecaster.classical.ces_states import (
    STABLE,
    CesForm,
    Parameters,
    PerModel,
    Piece,
    Row,
    ahead_of,
    guesses,
    initial_of,
    is_stable,
    pieces,
    squares_of,
)
from forecaster.classical.ets import MOST_SEASON, Season

ByParameter: TypeAlias = Float[np.ndarray, "series parameter"]

LEARNED_FROM = 256
"""Parameters are searched for on a series' latest values, at most this many."""

LOWEST, HIGHEST = (0.01, 0.01, 0.01, 0.01), (1.8, 1.9, 1.5, 1.5)
"""The least and the greatest value of each parameter, those of statsforecast."""

_REAL = (0.1, 0.4, 0.7, 0.9, 1.05, 1.15, 1.3, 1.45, 1.6, 1.75)
_IMAGINARY = (0.4, 0.7, 0.85, 0.95, 0.985, 1.0, 1.01, 1.025, 1.05, 1.15, 1.3, 1.6)
_SEASONAL = (0.02, 0.1, 0.3, 0.7)
_SEASONAL_REAL, _SEASONAL_IMAGINARY = (1.005, 1.03, 1.1, 1.3), (0.97, 1.0, 1.01, 1.03)
_STEPS = (0.08, 0.05, 0.06)  # first steps of the search around the best point of the grid
_FULL_STEPS = (0.04, 0.02, 0.02, 0.01)
_ROUNDS, _FULL_ROUNDS = 12, 6  # rounds of that search
_STEEPEST = 10.0  # largest ratio of squares beside the best point to squares at it, in that search
_FARTHEST = 4.0  # largest step downhill, in units of the present steps
_LEAST = 1e-30  # smallest square, in squares of a series' mean absolute value


class Found(NamedTuple):
    """The parameters of each series, and the sum of its squared errors."""

    parameters: ByParameter
    squares: Float[np.ndarray, " series"]


class Problem(NamedTuple):
    """What parameters are searched for.

    - ``whole``: the length of each series, including values that are not learned from
    - ``guess``: a state of each series that back-casting begins with
    """

    form: CesForm
    piece: Piece
    whole: Int[np.ndarray, " series"]
    guess: Float[np.ndarray, "state series"]

    def stable(self, parameters: Parameters) -> Bool[np.ndarray, "series model"]:
        """Return whether parameters are stable over the whole length of each series."""
        return is_stable(self.form, parameters, self.whole)

    def squares(self, parameters: Parameters) -> PerModel:
        """Return the sums of squared errors; infinite where parameters are not stable."""
        return squares_of(self.form, self.piece, parameters, self.stable(parameters), self.guess)


def search(problem: Problem, grid: Parameters) -> Found:
    """Return the stable parameters with the least squared errors found near the best of a grid.

    ``grid``: one for all series, or one for each
    """
    form = problem.form
    grid, stable = _for_each(problem, grid)
    squares = squares_of(form, problem.piece, grid, stable, problem.guess)
    parameters, best = grid[np.arange(len(grid)), squares.argmin(1)], squares.min(1)
    steps, rounds = _STEPS[: form.parameters], _ROUNDS
    if form.kind == "full":
        steps, rounds = _FULL_STEPS, _FULL_ROUNDS
    return Found(*_closer(problem, parameters, best, steps, rounds))


def _for_each(
    problem: Problem, grid: Parameters
) -> tuple[Parameters, Bool[np.ndarray, "series model"]]:
    """Return a grid for each series, and whether its points are stable."""
    if len(grid) == len(problem.whole):
        return grid, problem.stable(grid)
    lengths, which = np.unique(problem.whole, return_inverse=True)
    stable = is_stable(problem.form, grid.repeat(len(lengths), axis=0), lengths)[which]
    return grid.repeat(len(which), axis=0), stable


def _closer(
    problem: Problem,
    parameters: ByParameter,
    best: Float[np.ndarray, " series"],
    steps: Sequence[float],
    rounds: int,
) -> tuple[ByParameter, Float[np.ndarray, " series"]]:
    """Return parameters with smaller squared errors beside given ones, and the sums of these.

    - ``best``: the sums of squared errors of the given parameters
    - ``steps``: the first steps to the sides, by parameter
    """
    sides = _sides(problem.form.parameters)
    step = np.tile(steps, (len(parameters), 1))
    for _ in range(rounds):
        tried = _bounded(parameters[:, None] + step[:, None] * sides)
        around = problem.squares(tried)
        moves = _downhill(best, around, problem.form.parameters)
        downhill = _bounded(parameters + step * moves)[:, None]
        tried = np.concatenate([tried, downhill], axis=1)
        below = problem.squares(downhill)
        squares = np.concatenate([around, below], axis=1)
        new = squares.argmin(1)
        least = np.take_along_axis(squares, new[:, None], 1)[:, 0]
        found = np.take_along_axis(tried, new[:, None, None], 1)[:, 0]
        better, far = (least < best)[:, None], np.abs(moves).max(1, keepdims=True)
        parameters = np.where(better, found, parameters)
        best = np.minimum(best, least)
        longer = np.where((new < len(sides))[:, None], 1.0, np.clip(far, 0.25, 2.0))
        step = step * np.where(better, longer, 0.5)
    return parameters, best


def grid_of(form: CesForm, partial: ByParameter | None) -> Parameters:
    """Return the parameters that are tried on each series, those that are stable on any.

    ``partial``: the best of the partial form, whose level and potential the full one begins at
    """
    if form.kind == "full" and partial is not None:
        season = np.array(list(itertools.product(_SEASONAL_REAL, _SEASONAL_IMAGINARY)))
        level = np.repeat(partial[:, None, :2], len(season), axis=1)
        points = np.concatenate([level, np.tile(season, (len(partial), 1, 1))], axis=2)
        return np.concatenate([points, np.tile(STABLE[1], (len(partial), 1, 1))], axis=1)
    axes = (_REAL, _IMAGINARY, _SEASONAL)[: form.parameters]
    points = np.array(list(itertools.product(*axes)))[None]
    return points[:, is_stable(form, points, np.array([form.fewest]))[0]]


def _bounded(parameters: np.ndarray) -> np.ndarray:
    size = parameters.shape[-1]
    return np.clip(parameters, LOWEST[:size], HIGHEST[:size])


def _sides(size: int) -> Float[np.ndarray, "side parameter"]:
    """Return steps forwards in each parameter, backwards in each, and forwards in each pair."""
    forwards = np.eye(size)
    one, other = np.triu_indices(size, 1)
    return np.concatenate([forwards, -forwards, forwards[one] + forwards[other]])


def _downhill(
    best: Float[np.ndarray, " series"], around: Float[np.ndarray, "series side"], size: int
) -> Float[np.ndarray, "series parameter"]:
    """Return Newton's step in the logarithm of the squares, in units of the steps to the sides.

    Where the squares bend downwards it goes downhill, too.
    """
    rise = np.log(np.minimum((around + _LEAST) / (best[:, None] + _LEAST), _STEEPEST))
    forwards, backwards, pairs = np.split(rise, [size, 2 * size], axis=1)
    one, other = np.triu_indices(size, 1)
    bend = np.zeros((len(best), size, size))
    bend[:, one, other] = bend[:, other, one] = pairs - forwards[:, one] - forwards[:, other]
    bend[:, range(size), range(size)] = forwards + backwards
    size_of, directions = np.linalg.eigh(bend)
    slope = np.matmul((forwards - backwards)[:, None] / 2, directions)[:, 0]
    along = -slope / np.maximum(np.abs(size_of), 1e-3 * np.abs(slope) + _LEAST)
    along = np.clip(along, -_FARTHEST, _FARTHEST)
    return np.matmul(directions, along[:, :, None])[:, :, 0]


_SERIES = 1024  # number of series that are fitted at a time


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
