"""The states of complex exponential smoothing: how they move, begin, and forecast.

The equations are those of :mod:`forecaster.classical.ces`. Every operation is on single elements,
so the bits of a series do not depend on those beside it.

An initial state is back-cast: values are filtered forwards from a guess, backwards from where that
ends, and forwards again. At the last value, the
state forecasts the step after it, and is used as though it forecast the last value.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Bool, Float, Int

from forecaster.classical.theta import seasonal_terms

Row: TypeAlias = Float[np.ndarray, " time"]
Parameters: TypeAlias = Float[np.ndarray, "series model parameter"]
PerModel: TypeAlias = Float[np.ndarray, "series model"]

STABLE = np.array([1.3, 1.0, 0.0]), np.array([1.3, 1.0, 1.0, 1.0])
"""Parameters that are stable: without a season or in the partial form; in the full form."""

_GROWTH = 0.25  # an initial state's error may grow by about this share over the whole series
_FIRST = 10  # number of first values whose mean is the guess of the level
_POTENTIAL = 1.1  # guessed ratio of a level to its potential
_FEWEST = 5  # values
_ELEMENTS = 2**16  # series times models that are filtered at a time; they fit in a cache
_MOST = 1e150  # bound of forecasts, in multiples of the latest state


class CesForm(NamedTuple):
    """A form of complex exponential smoothing.

    - ``kind``: "none", "partial" or "full", as of :class:`forecaster.classical.Ces`
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
        return {"none": 2, "partial": 3, "full": 4}[self.kind]

    @property
    def fewest(self) -> int:
        """The number of values that a series needs."""
        return max(_FEWEST, 2 * self.season + 1) if self.seasonal else _FEWEST

    def guess(self, row: Row) -> Float[np.ndarray, " state"]:
        """Return a state to begin the back-casting with."""
        level = row[: self.season if self.seasonal else _FIRST].mean()
        season = seasonal_terms(row, self.season) if self.seasonal else np.empty(0)
        hidden = season / _POTENTIAL if self.kind == "full" else np.empty(0)
        return np.concatenate([[level, level / _POTENTIAL], season, hidden])

    def split(self, state: np.ndarray) -> "State":
        """Return the parts of a state (state, ...)."""
        return State(state[0], state[1], state[2 : 2 + self.season], state[2 + self.season :])


class State(NamedTuple):
    """The states of models of series; the season of a step stands at it, modulo the season."""

    level: PerModel
    potential: PerModel
    season: Float[np.ndarray, "season series model"]
    hidden: Float[np.ndarray, "season series model"]  # the season's potential


class Kept(NamedTuple):
    """The states of one model per series after every value; seasons also hold the initial ones."""

    level: Float[np.ndarray, "time series"]
    potential: Float[np.ndarray, "time series"]
    season: Float[np.ndarray, "season_and_time series"]
    hidden: Float[np.ndarray, "season_and_time series"]


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
    return np.array([form.guess(row) for row in rows]).T


def initial_of(
    form: CesForm,
    rows: Sequence[Row],
    parameters: Float[np.ndarray, "series parameter"],
) -> Float[np.ndarray, "state series"]:
    """Return the back-cast initial state of each series."""
    out = guesses(form, rows)
    for piece in pieces(rows, len(rows)):
        where = piece.where
        found = back_cast(form, piece, parameters[where, None], out[:, where])
        parts = [found.level[None], found.potential[None], found.season, found.hidden]
        out[:, where] = np.concatenate(parts)[:, :, 0]
    return out


def squares_of(
    form: CesForm,
    piece: Piece,
    parameters: Parameters,
    stable: Bool[np.ndarray, "series model"],
    guess: Float[np.ndarray, "state series"],
) -> PerModel:
    """Return the sum of squared one-step errors, from back-cast initial states.

    Infinite where parameters are not stable.
    """
    fixed = STABLE[form.kind == "full"][: form.parameters]
    parameters = np.where(stable[..., None], parameters, fixed)
    out = np.empty(stable.shape)
    most = max(1, _ELEMENTS // len(out))
    for begin in range(0, len(out[0]), most):
        models = slice(begin, begin + most)
        state = back_cast(form, piece, parameters[:, models], guess)
        out[:, models] = filtered(form, piece, parameters[:, models], state)
    return np.where(stable, out, np.inf)


def back_cast(
    form: CesForm,
    piece: Piece,
    parameters: Parameters,
    guess: Float[np.ndarray, "state series"],
) -> State:
    """Return initial states, by filtering forwards from a guess and then backwards."""
    state = form.split(np.repeat(guess[:, :, None], parameters.shape[1], axis=2))
    for backwards in (False, True):
        filtered(form, piece, parameters, state, backwards=backwards)
    return state


def filtered(
    form: CesForm,
    piece: Piece,
    parameters: Parameters,
    state: State,
    *,
    backwards: bool = False,
    keep: Kept | None = None,
) -> PerModel:
    """Move states over all values, in place; return the sums of squared one-step errors.

    ``keep`` takes the states after each value, of one model
    """
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


def _keep(form: CesForm, step: int, state: State, keep: Kept) -> None:
    keep.level[step], keep.potential[step] = state.level[:, 0], state.potential[:, 0]
    if len(keep.season):
        keep.season[form.season + step] = state.season[step % form.season, :, 0]
    if len(keep.hidden):
        keep.hidden[form.season + step] = state.hidden[step % form.season, :, 0]


def ahead_of(
    form: CesForm,
    piece: Piece,
    parameters: Float[np.ndarray, "series parameter"],
    initial: Float[np.ndarray, "state series"],
    horizon: int,
) -> Float[np.ndarray, "time series horizon"]:
    """Return the forecasts made at every value."""
    steps, series = piece.values.shape
    begin = form.split(initial)
    kept = Kept(
        *np.empty((2, steps, series)),
        *(
            np.pad(part, ((0, steps if len(part) else 0), (0, 0)))
            for part in (begin.season, begin.hidden)
        ),
    )
    state = form.split(initial[:, :, None].copy())
    filtered(form, piece, parameters[:, None], state, keep=kept)
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
