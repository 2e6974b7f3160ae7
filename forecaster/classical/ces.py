"""Complex exponential smoothing, of all series at once.

Svetunkov, Kourentzes & Ord (2022), Naval Research Logistics 69. A series' level l has an unobserved
companion, its potential c; one complex parameter, a0 + i a1, smooths both::

    y[t] = l[t-1] + e[t]
    l[t] = l[t-1] + (a1 - 1) c[t-1] + (a0 - a1) e[t]
    c[t] = l[t-1] + (1 - a0) c[t-1] + (a0 + a1) e[t]

In the full form the season's parts are smoothed in the same way, each once a season, by another
complex parameter; in the partial form by a real one.

The initial state is back-cast, as in the library statsforecast: values are filtered forwards from a
guess, backwards from where that ends, and forwards again. At the last value, the state forecasts
the step after it, and is used as though it forecast the last value. In statsforecast parameters
need not be stable. Initial states with the least squared errors make forecasts explode.

Every operation is on single elements, so the bits of a series do not depend on those beside it.
"""

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Bool, Float, Int

from forecaster.classical.ets import MOST_SEASON, Season
from forecaster.classical.models import Functions
from forecaster.classical.theta import seasonal_terms

Row: TypeAlias = Float[np.ndarray, " time"]
Parameters: TypeAlias = Float[np.ndarray, "series model parameter"]
States: TypeAlias = Float[np.ndarray, "state series model"]
PerModel: TypeAlias = Float[np.ndarray, "series model"]
ByParameter: TypeAlias = Float[np.ndarray, "series parameter"]

STABLE = np.array([1.3, 1.0, 0.0]), np.array([1.3, 1.0, 1.0, 1.0])
"""Parameters that are stable: without a season or in the partial form; in the full form."""

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
_SERIES = 1024  # number of series that are fitted at a time
_KINDS = ("none", "partial", "full")  # forms, each with a parameter more
_GROWTH = 0.25  # an initial state's error may grow by about this share over the whole series
_FIRST = 10  # number of first values whose mean is the guess of the level
_POTENTIAL = 1.1  # guessed ratio of a level to its potential
_FEWEST = 5  # values
_ELEMENTS = 2**16  # series times models that are filtered at a time; they fit in a cache
_MOST = 1e150  # bound of forecasts, in multiples of the latest state


class CesForm(NamedTuple):
    """A form of complex exponential smoothing.

    - ``kind``: "none", "partial" or "full", as of :class:`Ces`
    - ``season``: steps in a season; 1 for none
    """

    kind: str
    season: int

    @property
    def seasonal(self) -> bool:
        """Whether the form has a season."""
        return self.kind != "none"

    @property
    def parameters(self) -> int:
        """The number of parameters."""
        return 2 + _KINDS.index(self.kind)

    @property
    def states(self) -> int:
        """The number of states: level, potential, season, and the season's potential."""
        return 2 + _KINDS.index(self.kind) * self.season

    @property
    def fewest(self) -> int:
        """The number of values that a series needs."""
        return max(_FEWEST, 2 * self.season + 1) if self.seasonal else _FEWEST

    def at(self, step: int) -> list[int]:
        """Return which states a step sees: level and potential, and those of its season."""
        begins = range(2, self.states, self.season)
        return [0, 1, *(begin + step % self.season for begin in begins)]


class Piece(NamedTuple):
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

    def longest(self, count: int) -> "Piece":
        """Return the first of the series."""
        active = [min(number, count) for number in self.active]
        return Piece(self.where[:count], self.values[:, :count], self.lengths[:count], active)


def pieces(rows: Sequence[Row], most: int) -> Iterator[Piece]:
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
        yield Piece(where, values, lengths[where], active.tolist())


def guesses(form: CesForm, rows: Sequence[Row]) -> Float[np.ndarray, "state series"]:
    """Return states to begin the back-casting with."""
    out = np.empty((form.states, len(rows)))
    for number, row in enumerate(rows):
        level = row[: form.season if form.seasonal else _FIRST].mean()
        season = seasonal_terms(row, form.season) if form.seasonal else np.empty(0)
        hidden = season / _POTENTIAL if form.kind == "full" else np.empty(0)
        out[:, number] = np.concatenate([[level, level / _POTENTIAL], season, hidden])
    return out


def initial_of(
    form: CesForm,
    rows: Sequence[Row],
    parameters: Float[np.ndarray, "series parameter"],
) -> Float[np.ndarray, "state series"]:
    """Return the back-cast initial state of each series."""
    out = guesses(form, rows)
    for piece in pieces(rows, len(rows)):
        where = piece.where
        out[:, where] = back_cast(form, piece, parameters[where, None], out[:, where])[:, :, 0]
    return out


def back_cast(
    form: CesForm,
    piece: Piece,
    parameters: Parameters,
    guess: Float[np.ndarray, "state series"],
) -> States:
    """Return initial states, by filtering forwards from a guess and then backwards."""
    state = np.repeat(guess[:, :, None], parameters.shape[1], axis=2)
    for backwards in (False, True):
        filtered(form, piece, parameters, state, backwards=backwards)
    return state


def filtered(
    form: CesForm,
    piece: Piece,
    parameters: Parameters,
    state: States,
    *,
    backwards: bool = False,
    keep: Float[np.ndarray, "seen time series"] | None = None,
) -> PerModel:
    """Move states over all values, in place; return the sums of squared one-step errors.

    ``keep`` takes the states that each value has moved, of one model
    """
    level_weights = _weights(parameters[:, :, 0], parameters[:, :, 1])
    full = form.kind == "full"
    season_weights = _weights(parameters[:, :, 2], parameters[:, :, 3]) if full else ()
    squares, errors, moved = (np.zeros(parameters.shape[:2]) for _ in range(3))
    steps, of_phase = range(len(piece.values)), [form.at(phase) for phase in range(form.season)]
    for step in reversed(steps) if backwards else steps:
        rows, seen = slice(piece.active[step]), of_phase[step % form.season]
        level, potential, *season = [state[number, rows] for number in seen]
        error, other = errors[rows], moved[rows]
        np.subtract(piece.values[step, rows, None], level, out=error)
        if form.seasonal:
            error -= season[0]
            if full:
                _move(season[0], season[1], error, season_weights, rows, other)
            else:
                np.multiply(parameters[rows, :, 2], error, out=other)
                season[0] += other
        _move(level, potential, error, level_weights, rows, other)
        error *= error
        squares[rows] += error
        if keep is not None:
            keep[:, step] = state[seen, :, 0]
    return squares


def _weights(real: PerModel, imaginary: PerModel) -> tuple[PerModel, ...]:
    """Return the factors by which potential and error change the level, and the potential."""
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


def ahead_of(
    form: CesForm,
    piece: Piece,
    parameters: Float[np.ndarray, "series parameter"],
    initial: Float[np.ndarray, "state series"],
    horizon: int,
) -> Float[np.ndarray, "time series horizon"]:
    """Return the forecasts made at every value."""
    steps, series = piece.values.shape
    before = initial[2:].reshape(-1, form.season, series)  # the season that precedes the values
    kept = np.empty((form.parameters, form.season + steps, series))
    kept[2:, : form.season] = before
    level, potential, *season = kept
    filtered(
        form, piece, parameters[:, None], initial[:, :, None].copy(), keep=kept[:, form.season :]
    )
    on_level, on_potential = np.ones(series), np.zeros(series)
    on_season = on_level, on_potential
    out = np.empty((steps, series, horizon))
    for ahead in range(horizon):
        out[:, :, ahead] = on_level * level[form.season :] + on_potential * potential[form.season :]
        on_level, on_potential = _onwards(on_level, on_potential, parameters[:, :2])
        latest = slice(1 + ahead % form.season, 1 + ahead % form.season + steps)
        if form.kind == "full" and ahead and ahead % form.season == 0:
            on_season = _onwards(*on_season, parameters[:, 2:])
        out[:, :, ahead] += sum(
            weight * part[latest] for weight, part in zip(on_season, season, strict=False)
        )
    return out


def _onwards(
    on_level: np.ndarray,
    on_potential: np.ndarray,
    parameters: Float[np.ndarray, "series 2"],
) -> tuple[np.ndarray, np.ndarray]:
    """Return the weights of the latest level and potential, one step further ahead."""
    real, imaginary = parameters.T
    return (
        np.clip(on_level + on_potential, -_MOST, _MOST),
        np.clip(on_level * (imaginary - 1) + on_potential * (1 - real), -_MOST, _MOST),
    )


def is_stable(
    form: CesForm, parameters: Parameters, lengths: Int[np.ndarray, " series"]
) -> Bool[np.ndarray, "series model"]:
    """Return whether errors of the initial state fade, or hardly grow.

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


class Problem(NamedTuple):
    """What parameters are searched for.

    - ``whole``: the length of each series, including values that are not learned from
    - ``guess``: a state of each series that back-casting begins with
    """

    form: CesForm
    piece: Piece
    whole: Int[np.ndarray, " series"]
    guess: Float[np.ndarray, "state series"]

    def squares(self, parameters: Parameters) -> PerModel:
        """Return the sums of squared one-step errors, from back-cast initial states.

        They are infinite where parameters are not stable over the whole length of a series.
        """
        form, piece = self.form, self.piece
        fixed = STABLE[form.kind == "full"][: form.parameters]
        out = np.empty(parameters.shape[:2])
        most = max(1, _ELEMENTS // len(out))
        for begin in range(0, len(out[0]), most):
            models = slice(begin, begin + most)
            stable = is_stable(form, parameters[:, models], self.whole)
            some = np.where(stable[..., None], parameters[:, models], fixed)
            state = back_cast(form, piece, some, self.guess)
            out[:, models] = np.where(stable, filtered(form, piece, some, state), np.inf)
        return out


def search(problem: Problem, grid: Parameters) -> tuple[ByParameter, Float[np.ndarray, " series"]]:
    """Return stable parameters near the best of a grid, and the sums of their squared errors.

    ``grid``: one for all series, or one for each
    """
    form, series = problem.form, len(problem.whole)
    grid = np.broadcast_to(grid, (series, *grid.shape[1:]))
    squares = problem.squares(grid)
    parameters, best = grid[np.arange(series), squares.argmin(1)], squares.min(1)
    steps, rounds = _STEPS[: form.parameters], _ROUNDS
    if form.kind == "full":
        steps, rounds = _FULL_STEPS, _FULL_ROUNDS
    return _closer(problem, parameters, best, steps, rounds)


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
    size = problem.form.parameters
    low, high, forwards = LOWEST[:size], HIGHEST[:size], np.eye(size)
    one, other = np.triu_indices(size, 1)
    sides = np.concatenate([forwards, -forwards, forwards[one] + forwards[other]])
    step = np.tile(steps, (len(parameters), 1))
    for _ in range(rounds):
        tried = np.clip(parameters[:, None] + step[:, None] * sides, low, high)
        around = problem.squares(tried)
        moves = _downhill(best, around, size)
        downhill = np.clip(parameters + step * moves, low, high)[:, None]
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

    ``partial``: the best of the form before, at whose level and potential the full one begins
    """
    if form.kind == "full" and partial is not None:
        season = np.array(list(itertools.product(_SEASONAL_REAL, _SEASONAL_IMAGINARY)))
        level = np.repeat(partial[:, None, :2], len(season), axis=1)
        points = np.concatenate([level, np.tile(season, (len(partial), 1, 1))], axis=2)
        return np.concatenate([points, np.tile(STABLE[1], (len(partial), 1, 1))], axis=1)
    axes = (_REAL, _IMAGINARY, _SEASONAL)[: form.parameters]
    points = np.array(list(itertools.product(*axes)))[None]
    return points[:, is_stable(form, points, np.array([form.fewest]))[0]]


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
        if self.form not in _KINDS:
            return False
        form = CesForm(self.form, self.season)
        return (len(self.parameters), len(self.initial)) == (form.parameters, form.states)


def fit_ces(rows: Sequence[Row], season: int) -> list[Ces | None]:
    """Return the model of each series, of the form with the least corrected Akaike criterion.

    None where a series has fewer than five values.

    - ``rows``: the values of each series, without gaps
    - ``season``: steps in a season; 1 for none
    """
    fitted: list[Ces | None] = [None] * len(rows)
    # A series is counted in its mean absolute value.
    scales = [float(np.abs(row).mean()) if row.any() else 1.0 for row in rows]
    scaled = [row / scale for row, scale in zip(rows, scales, strict=True)]
    for piece in pieces([row[-LEARNED_FROM:] for row in scaled], _SERIES):
        whole, best = np.array([len(rows[where]) for where in piece.where]), None
        least = np.full(len(whole), np.inf)
        for kind in _KINDS if 1 < season <= MOST_SEASON else _KINDS[:1]:
            form = CesForm(kind, 1 if kind == "none" else season)
            count = int((whole >= form.fewest).sum())
            if not count:
                break
            some = [scaled[where] for where in piece.where[:count]]
            guess = guesses(form, [row[-LEARNED_FROM:] for row in some])
            problem = Problem(form, piece.longest(count), whole[:count], guess)
            best, squares = search(problem, grid_of(form, best))
            initial = initial_of(form, some, best)
            criteria = _criterion(form, squares, piece.lengths[:count])
            for number in np.flatnonzero(criteria < least[:count]):
                where = piece.where[number]
                begin = (initial[:, number] * scales[where]).tolist()
                fitted[where] = Ces(kind, form.season, tuple(best[number].tolist()), tuple(begin))
                least[number] = criteria[number]
    return fitted


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


def _criterion(
    form: CesForm, squares: Float[np.ndarray, " series"], lengths: Int[np.ndarray, " series"]
) -> Float[np.ndarray, " series"]:
    """Return Akaike's corrected criterion for short series, without terms that all forms share."""
    free = form.parameters + 1
    penalty = 2 * free + 2 * free * (free + 1) / np.maximum(lengths - free - 1, 0.5)
    return lengths * np.log(squares / lengths + _LEAST) + penalty


MODEL = Functions(
    fit_ces, lambda rows, models, _, horizon: ces_ahead(rows, models, horizon), Ces | None,
    fits=lambda model: model is None or model.fits(),
)  # fmt: skip
