"""Complex exponential smoothing, of all series at once.

Svetunkov, Kourentzes & Ord (2022), Naval Research Logistics 69. A series' level l has an unobserved
companion, its potential c; one complex parameter, a0 + i a1, smooths both::

    y[t] = l[t-1] + e[t]
    l[t] = l[t-1] + (a1 - 1) c[t-1] + (a0 - a1) e[t]
    c[t] = l[t-1] + (1 - a0) c[t-1] + (a0 + a1) e[t]

Steps of a season have an addition each, which the error moves by a real parameter, b: the partial
form. The full form, in which additions have a potential of their own, forecasts no better.

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

STABLE = np.array([1.3, 1.0, 0.0])
"""Parameters that are stable, with a season and without."""

LEARNED_FROM = 256
"""Parameters are searched for on a series' latest values, at most this many."""

LOWEST, HIGHEST = (0.01, 0.01, 0.01), (1.8, 1.9, 1.5)
"""The least and the greatest value of each parameter, those of statsforecast."""

_REAL = (0.1, 0.4, 0.7, 0.9, 1.05, 1.15, 1.3, 1.45, 1.6, 1.75)
_IMAGINARY = (0.4, 0.7, 0.85, 0.95, 0.985, 1.0, 1.01, 1.025, 1.05, 1.15, 1.3, 1.6)
_SEASONAL = (0.02, 0.1, 0.3, 0.7)
_STEPS = (0.08, 0.01, 0.06)  # first steps of the search around the best point of the grid
_ROUNDS = 12  # rounds of that search
_LEAST = 1e-30  # smallest square, in squares of a series' mean absolute value
_SERIES = 1024  # number of series that are fitted at a time
_GROWTH = 0.25  # an initial state's error may grow by about this share over the whole series
_FIRST = 10  # number of first values whose mean is the guess of the level
_POTENTIAL = 1.1  # guessed ratio of a level to its potential
_FEWEST = 5  # values
_ELEMENTS = 2**16  # series times models that are filtered at a time; they fit in a cache
_MOST = 1e150  # bound of forecasts, in multiples of the latest state


class CesForm(NamedTuple):
    """A form of complex exponential smoothing; ``season``: steps in a season, 1 for none."""

    season: int

    @property
    def seasonal(self) -> bool:
        """Whether the form has a season."""
        return self.season > 1

    @property
    def parameters(self) -> int:
        """The number of parameters."""
        return 2 + self.seasonal

    @property
    def states(self) -> int:
        """The number of states: level, potential, and what each step of the season adds."""
        return 2 + self.season * self.seasonal

    @property
    def fewest(self) -> int:
        """The number of values that a series needs."""
        return max(_FEWEST, 2 * self.season + 1) if self.seasonal else _FEWEST

    def at(self, step: int) -> list[int]:
        """Return which states a step sees: level, potential, and what it adds to them."""
        return [0, 1, 2 + step % self.season] if self.seasonal else [0, 1]


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
        out[:, number] = np.concatenate([[level, level / _POTENTIAL], season])
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
    real, imaginary = parameters[:, :, 0], parameters[:, :, 1]
    onto_level, gain_level = imaginary - 1, real - imaginary
    onto_potential, gain_potential = 1 - real, real + imaginary
    squares, errors, moved = (np.zeros(parameters.shape[:2]) for _ in range(3))
    steps, of_phase = range(len(piece.values)), [form.at(phase) for phase in range(form.season)]
    for step in reversed(steps) if backwards else steps:
        rows, seen = slice(piece.active[step]), of_phase[step % form.season]
        level, potential, *season = [state[number, rows] for number in seen]
        error, other = errors[rows], moved[rows]
        np.subtract(piece.values[step, rows, None], level, out=error)
        if season:
            error -= season[0]
            np.multiply(parameters[rows, :, 2], error, out=other)
            season[0] += other
        # In place, as this is where the time goes.
        np.multiply(onto_level[rows], potential, out=other)
        potential *= onto_potential[rows]
        potential += level
        level += other
        np.multiply(gain_level[rows], error, out=other)
        level += other
        np.multiply(gain_potential[rows], error, out=other)
        potential += other
        error *= error
        squares[rows] += error
        if keep is not None:
            keep[:, step] = state[seen, :, 0]
    return squares


def ahead_of(
    form: CesForm,
    piece: Piece,
    parameters: Float[np.ndarray, "series parameter"],
    initial: Float[np.ndarray, "state series"],
    horizon: int,
) -> Float[np.ndarray, "time series horizon"]:
    """Return the forecasts made at every value."""
    steps, series = piece.values.shape
    kept = np.empty((form.parameters, form.season + steps, series))
    if form.seasonal:
        kept[2, : form.season] = initial[2:]  # the season that precedes the values
    level, potential, *season = kept
    filtered(
        form, piece, parameters[:, None], initial[:, :, None].copy(), keep=kept[:, form.season :]
    )
    on_level, on_potential = np.ones(series), np.zeros(series)
    out = np.empty((steps, series, horizon))
    for ahead in range(horizon):
        out[:, :, ahead] = on_level * level[form.season :] + on_potential * potential[form.season :]
        on_level, on_potential = _onwards(on_level, on_potential, parameters)
        if season:
            begin = 1 + ahead % form.season
            out[:, :, ahead] += season[0][begin : begin + steps]
    return out


def _onwards(
    on_level: np.ndarray,
    on_potential: np.ndarray,
    parameters: Float[np.ndarray, "series parameter"],
) -> tuple[np.ndarray, np.ndarray]:
    """Return the weights of the latest level and potential, one step further ahead."""
    real, imaginary = parameters[:, 0], parameters[:, 1]
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
    real, imaginary = parameters[..., 0], parameters[..., 1]
    one, radius = np.ones_like(real), 1 + _GROWTH / lengths[:, None]
    trace, determinant = 2 - 2 * real + imaginary, 2 - 3 * real - imaginary + real**2 + imaginary**2
    of_errors = np.array([one, -trace, determinant])
    if not form.seasonal:
        return _inside(of_errors, radius)
    # The determinants of zI - F and of zI - D of level and potential, and of the season's step.
    of_forecasts = np.array([one, real - 2, 2 - real - imaginary])
    smoothing = parameters[..., 2]
    polynomial = np.zeros((form.season + 3, *real.shape))
    polynomial[:3] = of_errors
    polynomial[form.season :] += smoothing * of_forecasts - of_errors
    return _inside(polynomial, radius)


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
        fixed = STABLE[: form.parameters]
        out = np.empty(parameters.shape[:2])
        most = max(1, _ELEMENTS // len(out))
        for begin in range(0, len(out[0]), most):
            models = slice(begin, begin + most)
            stable = is_stable(form, parameters[:, models], self.whole)
            some = np.where(stable[..., None], parameters[:, models], fixed)
            state = back_cast(form, piece, some, self.guess)
            out[:, models] = np.where(stable, filtered(form, piece, some, state), np.inf)
        return out


def search(problem: Problem) -> tuple[ByParameter, Float[np.ndarray, " series"]]:
    """Return stable parameters of small squared errors, and the sums of these.

    The best point of a grid is moved to the best of the points at its sides (a pattern search:
    Hooke & Jeeves 1961); where none is better, the steps are halved.
    """
    size, series = problem.form.parameters, np.arange(len(problem.whole))
    grid = np.broadcast_to(grid_of(problem.form), (len(series), *grid_of(problem.form).shape))
    squares = problem.squares(grid)
    parameters, best = grid[series, squares.argmin(1)], squares.min(1)
    forwards, (one, other) = np.eye(size), np.triu_indices(size, 1)
    both, across = forwards[one] + forwards[other], forwards[one] - forwards[other]
    sides = np.concatenate([forwards, -forwards, both, across, -across, -both])
    step = np.tile(_STEPS[:size], (len(series), 1))
    for _ in range(_ROUNDS):
        tried = parameters[:, None] + step[:, None] * sides
        tried = np.clip(tried, LOWEST[:size], HIGHEST[:size])
        squares = problem.squares(tried)
        better = (squares.min(1) < best)[:, None]
        parameters = np.where(better, tried[series, squares.argmin(1)], parameters)
        best = np.minimum(best, squares.min(1))
        step = np.where(better, step, step / 2)
    return parameters, best


def grid_of(form: CesForm) -> Float[np.ndarray, "model parameter"]:
    """Return the parameters that are tried on each series, those that are stable on any."""
    axes = (_REAL, _IMAGINARY, _SEASONAL)[: form.parameters]
    points = np.array(list(itertools.product(*axes)))
    return points[is_stable(form, points[None], np.array([form.fewest]))[0]]


class Ces(NamedTuple):
    """The model of one series.

    - ``season``: steps in a season; 1 for none
    - ``parameters``: a0, a1 and, with a season, b
    - ``initial``: the state before the first value, in units of the values: level, potential, and
      what the season adds to each of its steps
    """

    season: Season
    parameters: tuple[float, ...]
    initial: tuple[float, ...]

    def fits(self) -> bool:
        """Return whether it has the parameters and the states of its season."""
        form = CesForm(self.season)
        return (len(self.parameters), len(self.initial)) == (form.parameters, form.states)


def fit_ces(rows: Sequence[Row], season: int) -> list[Ces | None]:
    """Return the model of each series: the form with the least corrected Akaike criterion.

    None where a series has fewer than five values.

    - ``rows``: the values of each series, without gaps
    - ``season``: steps in a season; 1 for none
    """
    fitted: list[Ces | None] = [None] * len(rows)
    # A series is counted in its mean absolute value.
    scales = [float(np.abs(row).mean()) if row.any() else 1.0 for row in rows]
    scaled = [row / scale for row, scale in zip(rows, scales, strict=True)]
    for piece in pieces([row[-LEARNED_FROM:] for row in scaled], _SERIES):
        whole = np.array([len(rows[where]) for where in piece.where])
        least = np.full(len(whole), np.inf)
        for steps in (1, season) if 1 < season <= MOST_SEASON else (1,):
            form = CesForm(steps)
            count = int((whole >= form.fewest).sum())
            if not count:
                break
            some = [scaled[where] for where in piece.where[:count]]
            guess = guesses(form, [row[-LEARNED_FROM:] for row in some])
            problem = Problem(form, piece.longest(count), whole[:count], guess)
            best, squares = search(problem)
            initial = initial_of(form, some, best)
            criteria = _criterion(form, squares, piece.lengths[:count])
            for number in np.flatnonzero(criteria < least[:count]):
                where = piece.where[number]
                begin = (initial[:, number] * scales[where]).tolist()
                fitted[where] = Ces(steps, tuple(best[number].tolist()), tuple(begin))
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
            alike.setdefault(CesForm(model.season), []).append((where, model))
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
