"""Complex exponential smoothing, of all series at once.

Svetunkov, Kourentzes & Ord (2022), Naval Research Logistics 69. A series' level l has an unobserved
companion, its potential c; one complex parameter, a0 + i a1, smooths both::

    y[t] = l[t-1] + e[t]
    l[t] = l[t-1] + (a1 - 1) c[t-1] + (a0 - a1) e[t]
    c[t] = l[t-1] + (1 - a0) c[t-1] + (a0 + a1) e[t]

In the full form the season's parts are smoothed in the same way, each once a season, by another
complex parameter; in the partial form by a real one.

The initial state is back-cast: values are filtered forwards from a guess, backwards from where that
ends, and forwards again. (Initial states with the least squared errors make forecasts explode.)

Every operation is on single elements, so the bits of a series do not depend on those beside it.
"""

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Bool, Float, Int

from forecaster.classical.ets import MOST_SEASON
from forecaster.classical.theta import seasonal_terms

Row: TypeAlias = Float[np.ndarray, " time"]
Parameters: TypeAlias = Float[np.ndarray, "series model parameter"]
PerModel: TypeAlias = Float[np.ndarray, "series model"]

_REAL = (0.1, 0.4, 0.7, 0.9, 1.05, 1.15, 1.3, 1.45, 1.6, 1.75)
_IMAGINARY = (0.4, 0.7, 0.85, 0.95, 0.985, 1.0, 1.01, 1.025, 1.05, 1.15, 1.3, 1.6)
_SEASONAL = (0.02, 0.1, 0.3, 0.7)
_SEASONAL_REAL, _SEASONAL_IMAGINARY = (1.005, 1.03, 1.1, 1.3), (0.97, 1.0, 1.01, 1.03)
_LOWEST, _HIGHEST = (0.01, 0.01, 0.01, 0.01), (1.8, 1.9, 1.5, 1.5)  # parameters
_STEPS = (0.08, 0.05, 0.06)  # of the search around the best point of the grid, at first
_FULL_STEPS = (0.04, 0.02, 0.02, 0.01)
_ROUNDS, _FULL_ROUNDS = 12, 6  # of that search
_STEEPEST = 10.0  # squares beside the best point over those there, in that search
_FARTHEST = 4.0  # steps, of a step downhill
_GROWTH = 0.25  # of what is wrong with an initial state, over the whole series, at most
_STABLE = np.array([1.3, 1.0, 0.0]), np.array([1.3, 1.0, 1.0, 1.0])  # parameters
_FIRST = 10  # values, whose mean the guess of a level is
_POTENTIAL = 1.1  # a level over its potential, as guessed
_FEWEST = 5  # values
_LEARNED_FROM = 256  # latest values that parameters are estimated on
_ELEMENTS = 2**16  # series times models that are filtered at a time; they fit in a cache
_SERIES = 1024  # that are fitted at a time
_LEAST = 1e-30  # mean squared error, in squares of a series' mean absolute value
_MOST = 1e150  # times the latest state, which forecasts stay below


class Ces(NamedTuple):
    """The model of one series.

    - ``form``: "none", without a season; "partial" or "full", with a smoothed season added
    - ``season``: steps in a season; 1 for none
    - ``parameters``: a0, a1 and what smooths the season: in the partial form b, in the full b0, b1
    - ``initial``: the state before the first value, in units of the values: level, potential, what
      the season adds to each of its steps and, in the full form, the potential of each of these
    """

    form: str
    season: int
    parameters: tuple[float, ...]
    initial: tuple[float, ...]


class _Form(NamedTuple):
    kind: str
    season: int

    @property
    def seasonal(self) -> bool:
        return self.kind != "none"

    @property
    def parameters(self) -> int:
        return {"none": 2, "partial": 3, "full": 4}[self.kind]

    @property
    def steps(self) -> tuple[float, ...]:
        """The steps that the search for parameters begins with."""
        return _FULL_STEPS if self.kind == "full" else _STEPS[: self.parameters]

    @property
    def rounds(self) -> int:
        return _FULL_ROUNDS if self.kind == "full" else _ROUNDS

    @property
    def fewest(self) -> int:
        """The number of values that a series needs."""
        return max(_FEWEST, 2 * self.season + 1) if self.seasonal else _FEWEST

    def grid(self, partial: Float[np.ndarray, "series parameter"] | None) -> Parameters:
        """Return the parameters that are tried on each series, those that are stable on any.

        ``partial``: the best of the partial form, whose level and potential the full one begins at
        """
        if self.kind == "full" and partial is not None:
            season = np.array(list(itertools.product(_SEASONAL_REAL, _SEASONAL_IMAGINARY)))
            level = np.repeat(partial[:, None, :2], len(season), axis=1)
            points = np.concatenate([level, np.tile(season, (len(partial), 1, 1))], axis=2)
            return np.concatenate([points, np.tile(_STABLE[1], (len(partial), 1, 1))], axis=1)
        axes = (_REAL, _IMAGINARY, _SEASONAL)[: self.parameters]
        points = np.array(list(itertools.product(*axes)))[None]
        return points[:, _is_stable(self, points, np.array([self.fewest]))[0]]

    def guess(self, row: Row) -> Float[np.ndarray, " state"]:
        """Return a state to begin the back-casting with."""
        level = row[: self.season if self.seasonal else _FIRST].mean()
        season = seasonal_terms(row, self.season) if self.seasonal else np.empty(0)
        hidden = season / _POTENTIAL if self.kind == "full" else np.empty(0)
        return np.concatenate([[level, level / _POTENTIAL], season, hidden])

    def split(self, state: np.ndarray) -> "_State":
        """Return the parts of a state (state, ...)."""
        return _State(state[0], state[1], state[2 : 2 + self.season], state[2 + self.season :])


class _State(NamedTuple):
    """The states of models of series; the season of a step stands at it, modulo the season."""

    level: PerModel
    potential: PerModel
    season: Float[np.ndarray, "season series model"]
    hidden: Float[np.ndarray, "season series model"]  # the season's potential


class _Kept(NamedTuple):
    """The states of one model of each series after every value; seasons begin with the initial."""

    level: Float[np.ndarray, "time series"]
    potential: Float[np.ndarray, "time series"]
    season: Float[np.ndarray, "season_and_time series"]
    hidden: Float[np.ndarray, "season_and_time series"]


class _Piece(NamedTuple):
    """Some series, the longest first.

    - ``where``: their positions among all series
    - ``values``: zeros after the last value
    - ``lengths``: the number of values of each
    - ``active``: the number of series that have a value at each step
    """

    where: Int[np.ndarray, " series"]
    values: Float[np.ndarray, "time series"]
    lengths: Int[np.ndarray, " series"]
    active: list[int]


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
        for where, model, criterion in _fitted(form, [rows[where] for where in enough], begin):
            position = enough[where]
            if form.kind == "partial":
                partial[position] = model.parameters
            if criterion < least[position]:
                least[position], fitted[position] = criterion, model
    return fitted


def _forms(season: int) -> list[_Form]:
    kinds = ("partial", "full") if 1 < season <= MOST_SEASON else ()
    return [_Form("none", 1), *(_Form(kind, season) for kind in kinds)]


def _fitted(
    form: _Form, rows: Sequence[Row], partial: Sequence[tuple[float, ...]] | None = None
) -> Iterator[tuple[int, Ces, float]]:
    """Yield the position of each series, its best model of a form, and its criterion.

    ``partial``: the parameters of the partial form, where the full one is fitted
    """
    scales = [_scale(row) for row in rows]
    scaled = [row / scale for row, scale in zip(rows, scales, strict=True)]
    for piece in _pieces([row[-_LEARNED_FROM:] for row in scaled], _SERIES):
        guess = _guesses(form, [scaled[where][-_LEARNED_FROM:] for where in piece.where])
        whole = np.array([len(scaled[where]) for where in piece.where])
        begin = None if partial is None else np.array([partial[where] for where in piece.where])
        parameters, squares = _searched(form, piece, whole, guess, form.grid(begin))
        criteria = _criterion(form, squares, piece.lengths)
        initial = _initial(form, [scaled[where] for where in piece.where], parameters)
        for number, where in enumerate(piece.where):
            found, begin = parameters[number].tolist(), initial[:, number] * scales[where]
            model = Ces(form.kind, form.season, tuple(found), tuple(begin.tolist()))
            yield int(where), model, float(criteria[number])


def ces_ahead(
    rows: Sequence[Row], models: Sequence[Ces | None], horizon: int
) -> list[Float[np.ndarray, "time horizon"]]:
    """Return the forecasts made at every value of each series; NaN where there is no model.

    ``rows``: the values, which may go on after those that the models were fitted on.
    """
    out = [np.full((len(row), horizon), np.nan) for row in rows]
    alike: dict[_Form, list[tuple[int, Ces]]] = {}
    for where, model in enumerate(models):
        if model is not None:
            alike.setdefault(_Form(model.form, model.season), []).append((where, model))
    for form, members in alike.items():
        for piece in _pieces([rows[where] for where, _ in members], _SERIES):
            chosen = [members[position] for position in piece.where]
            parameters = np.array([model.parameters for _, model in chosen])
            initial = np.array([model.initial for _, model in chosen]).T
            made = _ahead(form, piece, parameters, initial, horizon)
            for number, (where, _) in enumerate(chosen):
                out[where] = made[: len(rows[where]), number].copy()
    return out


def _scale(row: Row) -> float:
    """Return the mean absolute value, which a series is counted in."""
    scale = float(np.abs(row).mean())
    return scale if scale > 0 else 1.0


def _criterion(
    form: _Form, squares: Float[np.ndarray, " series"], lengths: Int[np.ndarray, " series"]
) -> Float[np.ndarray, " series"]:
    """Return Akaike's criterion corrected for short series, as far as forms differ in it."""
    free = form.parameters + 1
    penalty = 2 * free + 2 * free * (free + 1) / np.maximum(lengths - free - 1, 0.5)
    return lengths * np.log(squares / lengths + _LEAST) + penalty


def _pieces(rows: Sequence[Row], most: int) -> Iterator[_Piece]:
    """Yield all series in pieces, the longest first; a piece has a limited number of series."""
    lengths = np.array([len(row) for row in rows], int)
    order = np.argsort(-lengths, kind="stable")
    for begin in range(0, len(order), most):
        where = order[begin : begin + most]
        longest = int(lengths[where[0]])
        values = np.zeros((longest, len(where)))
        for number, position in enumerate(where):
            values[: lengths[position], number] = rows[position]
        active = (lengths[where] > np.arange(longest)[:, None]).sum(1)
        yield _Piece(where, values, lengths[where], active.tolist())


def _searched(
    form: _Form,
    piece: _Piece,
    whole: Int[np.ndarray, " series"],
    guess: Float[np.ndarray, "state series"],
    grid: Parameters,
) -> tuple[Float[np.ndarray, "series parameter"], Float[np.ndarray, " series"]]:
    """Return the stable parameters with the least squared errors of each series, and their sum.

    All points of the grid are tried, then those around the best one, ever closer.

    - ``whole``: the length of each series, also of what is not learned from
    - ``grid``: one for all series, or one for each
    """
    if len(grid) == len(whole):
        stable = _is_stable(form, grid, whole)
    else:
        lengths, which = np.unique(whole, return_inverse=True)
        stable = _is_stable(form, grid.repeat(len(lengths), axis=0), lengths)[which]
        grid = grid.repeat(len(whole), axis=0)
    squares = _squares(form, piece, grid, stable, guess)
    parameters, best = grid[np.arange(len(grid)), squares.argmin(1)], squares.min(1)
    sides = _sides(form.parameters)
    step = np.tile(form.steps, (len(parameters), 1))
    for _ in range(form.rounds):
        tried = _bounded(parameters[:, None] + step[:, None] * sides)
        around = _squares(form, piece, tried, _is_stable(form, tried, whole), guess)
        steps = _downhill(best, around, form.parameters)
        downhill = _bounded(parameters + step * steps)[:, None]
        tried = np.concatenate([tried, downhill], axis=1)
        below = _squares(form, piece, downhill, _is_stable(form, downhill, whole), guess)
        squares = np.concatenate([around, below], axis=1)
        new = squares.argmin(1)
        least = np.take_along_axis(squares, new[:, None], 1)[:, 0]
        found = np.take_along_axis(tried, new[:, None, None], 1)[:, 0]
        better, far = (least < best)[:, None], np.abs(steps).max(1, keepdims=True)
        parameters = np.where(better, found, parameters)
        best = np.minimum(best, least)
        longer = np.where((new < len(sides))[:, None], 1.0, np.clip(far, 0.25, 2.0))
        step = step * np.where(better, longer, 0.5)
    return parameters, best


def _bounded(parameters: np.ndarray) -> np.ndarray:
    size = parameters.shape[-1]
    return np.clip(parameters, _LOWEST[:size], _HIGHEST[:size])


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


def _squares(
    form: _Form,
    piece: _Piece,
    parameters: Parameters,
    stable: Bool[np.ndarray, "series model"],
    guess: Float[np.ndarray, "state series"],
) -> PerModel:
    """Return the sum of squared one-step errors, from back-cast initial states.

    Infinite where parameters are not stable.
    """
    fixed = _STABLE[form.kind == "full"][: form.parameters]
    parameters = np.where(stable[..., None], parameters, fixed)
    out = np.empty(stable.shape)
    most = max(1, _ELEMENTS // len(out))
    for begin in range(0, len(out[0]), most):
        models = slice(begin, begin + most)
        state = _back_cast(form, piece, parameters[:, models], guess)
        out[:, models] = _filter(form, piece, parameters[:, models], state)
    return np.where(stable, out, np.inf)


def _initial(
    form: _Form, rows: Sequence[Row], parameters: Float[np.ndarray, "series parameter"]
) -> Float[np.ndarray, "state series"]:
    """Return the back-cast initial state of each series."""
    out = _guesses(form, rows)
    for piece in _pieces(rows, len(rows)):
        chosen = parameters[piece.where, None]
        found = _back_cast(form, piece, chosen, out[:, piece.where])
        parts = [found.level[None], found.potential[None], found.season, found.hidden]
        out[:, piece.where] = np.concatenate(parts)[:, :, 0]
    return out


def _guesses(form: _Form, rows: Sequence[Row]) -> Float[np.ndarray, "state series"]:
    return np.array([form.guess(row) for row in rows]).T


def _back_cast(
    form: _Form,
    piece: _Piece,
    parameters: Parameters,
    guess: Float[np.ndarray, "state series"],
) -> _State:
    """Return initial states: filtered forwards from a guess, and back from where that ends."""
    state = form.split(np.repeat(guess[:, :, None], parameters.shape[1], axis=2))
    _filter(form, piece, parameters, state)
    _filter(form, piece, parameters, state, backwards=True)
    return state


def _filter(
    form: _Form,
    piece: _Piece,
    parameters: Parameters,
    state: _State,
    *,
    backwards: bool = False,
    keep: _Kept | None = None,
) -> PerModel:
    """Move states over all values, in place; return the sums of squared one-step errors."""
    level_weights = _weights(parameters[:, :, 0], parameters[:, :, 1])
    full = form.kind == "full"
    season_weights = _weights(parameters[:, :, 2], parameters[:, :, 3]) if full else ()
    squares, errors, moved = (np.zeros(parameters.shape[:2]) for _ in range(3))
    steps = range(len(piece.values))
    for step in reversed(steps) if backwards else steps:
        rows = slice(piece.active[step])
        level, error, other = state.level[rows], errors[rows], moved[rows]
        np.subtract(piece.values[step, rows, None], level, out=error)
        if form.seasonal:
            season = state.season[step % form.season, rows]
            error -= season
            if full:
                hidden = state.hidden[step % form.season, rows]
                _move(season, hidden, error, season_weights, rows, other)
            else:
                np.multiply(parameters[rows, :, 2], error, out=other)
                season += other
        _move(level, state.potential[rows], error, level_weights, rows, other)
        error *= error
        squares[rows] += error
        if keep:
            _keep(form, step, state, keep)
    return squares


def _weights(real: PerModel, imaginary: PerModel) -> tuple[PerModel, ...]:
    """Return what potential and error add to the level, and what both add to the potential."""
    return imaginary - 1, real - imaginary, 1 - real, real + imaginary


def _move(
    level: np.ndarray,
    potential: np.ndarray,
    error: np.ndarray,
    weights: tuple[PerModel, ...],
    rows: slice,
    other: np.ndarray,
) -> None:
    """Move a level and its potential over an error, in place, as this is where the time goes."""
    onto_level, gain_level, onto_potential, gain_potential = weights
    np.multiply(onto_level[rows], potential, out=other)
    potential *= onto_potential[rows]
    potential += level
    level += other
    np.multiply(gain_level[rows], error, out=other)
    level += other
    np.multiply(gain_potential[rows], error, out=other)
    potential += other


def _keep(form: _Form, step: int, state: _State, keep: _Kept) -> None:
    keep.level[step], keep.potential[step] = state.level[:, 0], state.potential[:, 0]
    if len(keep.season):
        keep.season[form.season + step] = state.season[step % form.season, :, 0]
    if len(keep.hidden):
        keep.hidden[form.season + step] = state.hidden[step % form.season, :, 0]


def _ahead(
    form: _Form,
    piece: _Piece,
    parameters: Float[np.ndarray, "series parameter"],
    initial: Float[np.ndarray, "state series"],
    horizon: int,
) -> Float[np.ndarray, "time series horizon"]:
    """Return the forecasts made at every value."""
    steps, series = piece.values.shape
    begin = form.split(initial)
    kept = _Kept(
        *np.empty((2, steps, series)),
        *(
            np.pad(part, ((0, steps if len(part) else 0), (0, 0)))
            for part in (begin.season, begin.hidden)
        ),
    )
    state = form.split(initial[:, :, None].copy())
    _filter(form, piece, parameters[:, None], state, keep=kept)
    on_level, on_potential = np.ones(series), np.zeros(series)
    on_season, on_hidden = np.ones(series), np.zeros(series)
    out = np.empty((steps, series, horizon))
    for ahead in range(horizon):
        out[:, :, ahead] = on_level * kept.level + on_potential * kept.potential
        on_level, on_potential = _onwards(on_level, on_potential, parameters[:, :2])
        latest = slice(1 + ahead % form.season, 1 + ahead % form.season + steps)
        if form.kind == "partial":
            out[:, :, ahead] += kept.season[latest]
        elif form.kind == "full":
            if ahead and ahead % form.season == 0:
                on_season, on_hidden = _onwards(on_season, on_hidden, parameters[:, 2:])
            out[:, :, ahead] += on_season * kept.season[latest] + on_hidden * kept.hidden[latest]
    return out


def _onwards(
    on_level: np.ndarray,
    on_potential: np.ndarray,
    parameters: Float[np.ndarray, "series 2"],
) -> tuple[np.ndarray, np.ndarray]:
    """Return what the latest level and potential count one step further ahead."""
    real, imaginary = parameters.T
    return (
        np.clip(on_level + on_potential, -_MOST, _MOST),
        np.clip(on_level * (imaginary - 1) + on_potential * (1 - real), -_MOST, _MOST),
    )


def _is_stable(
    form: _Form, parameters: Parameters, lengths: Int[np.ndarray, " series"]
) -> Bool[np.ndarray, "series model"]:
    """Return whether errors of the initial state fade, or grow hardly at all.

    The roots of the moving-average polynomial, the determinant of zI - D, must lie inside a circle.
    """
    radius = 1 + _GROWTH / lengths[:, None]
    of_forecasts, of_errors = _polynomials(parameters[..., 0], parameters[..., 1])
    if not form.seasonal:
        return _inside(of_errors, radius)
    if form.kind == "full":
        before, after = _polynomials(parameters[..., 2], parameters[..., 3])
    else:
        one, smoothing = np.ones(parameters.shape[:-1]), parameters[..., 2]
        before, after = np.array([one, -one]), np.array([one, smoothing - one])
    polynomial = np.zeros((form.season * (len(before) - 1) + 3, *parameters.shape[:-1]))
    for power, (forecast, error) in enumerate(zip(before, after, strict=True)):
        begin = form.season * power
        polynomial[begin : begin + 3] += forecast * of_errors + (error - forecast) * of_forecasts
    return _inside(polynomial, radius)


def _polynomials(real: PerModel, imaginary: PerModel) -> tuple[np.ndarray, np.ndarray]:
    """Return the determinants of zI - F and of zI - D for a level and its potential."""
    one = np.ones_like(real)
    of_forecasts = np.array([one, real - 2, 2 - real - imaginary])
    trace, determinant = 2 - 2 * real + imaginary, 2 - 3 * real - imaginary + real**2 + imaginary**2
    return of_forecasts, np.array([one, -trace, determinant])


def _inside(
    polynomial: Float[np.ndarray, "power series model"], radius: Float[np.ndarray, "series 1"]
) -> Bool[np.ndarray, "series model"]:
    """Return whether all roots lie inside a circle (Schur 1917); the highest power stands first."""
    degree = len(polynomial) - 1
    rest = polynomial * radius ** np.arange(degree, -1, -1.0)[:, None, None]
    inside = np.ones(rest.shape[1:], bool)
    for _ in range(degree):
        last = rest[-1] / rest[0]
        inside &= np.abs(last) < 1
        last = np.where(inside, last, 0.0)
        rest = (rest - last * rest[::-1])[:-1]
    return inside
