"""Linear innovations state-space models of many series at once.

A model has a state x and one source of error (Hyndman, Koehler, Ord & Snyder 2008, Forecasting with
Exponential Smoothing, chapter 3)::

    y[t] = w' x[t-1] + e[t],    x[t] = F x[t-1] + g e[t]

For given parameters the errors are linear in the values and in the initial state::

    e = L y - X x0,    L lower triangular and Toeplitz,    X[t] = w' D^(t-1),    D = F - g w'

Neither L nor X depends on the series. So a grid of parameters is tried on all series by Fourier
transforms and matrix products, and the best initial state of each is a least-squares solution: the
likelihood with the initial state concentrated out, exactly, without starting values.

Products are made in blocks of one size, which depends on a series' length alone. So the bits of one
series do not depend on which others are fitted beside it.
"""

import itertools
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Float, Int

Values: TypeAlias = Float[np.ndarray, "series time"]
Lengths: TypeAlias = Int[np.ndarray, " series"]
Parameters: TypeAlias = Float[np.ndarray, "model parameter"]
Bounds: TypeAlias = Float[np.ndarray, "parameter 2"]

_RIDGE = 1e-9  # added to the diagonal: keeps states small that a short series does not show
_BLOCK = 2**18  # multiplications of a matrix product; BLAS spreads larger ones over threads
_MOST_ROWS = 256  # series in such a product, however short
_MODELS = 64  # models of the grid that are tried at a time
_ROUNDS = 3
_LEAST = 1e-300


class Space(NamedTuple):
    """State-space models, one for each point of a grid or for each series.

    - ``transition``: F
    - ``output``: w
    - ``gain``: g
    - ``free``: the initial state is this matrix times what may be chosen freely; the same for all
    """

    transition: Float[np.ndarray, "model state state"]
    output: Float[np.ndarray, "model state"]
    gain: Float[np.ndarray, "model state"]
    free: Float[np.ndarray, "state free"]


class Estimate(NamedTuple):
    """The parameters that fit each series best, and how well they do.

    - ``parameters``: (series, parameter)
    - ``squares``: the sum of squared one-step errors
    """

    parameters: Float[np.ndarray, "series parameter"]
    squares: Float[np.ndarray, " series"]


def on_grid(
    values: Values, lengths: Lengths, space_of: Callable[[Parameters], Space], grid: Parameters
) -> Estimate:
    """Return the best point of a grid for each series.

    - ``values``: padded with zeros after each series' last value
    - ``lengths``: the number of values of each series
    - ``space_of``: the models of parameters (model, parameter)
    - ``grid``: the parameters that are tried
    """
    if not len(values):
        return Estimate(np.empty((0, grid.shape[1])), np.empty(0))
    parameters = grid[squares_on_grid(values, lengths, space_of(grid)).argmin(1)]
    return Estimate(parameters, squares_of(values, lengths, space_of(parameters))[0])


def refined(
    values: Values,
    lengths: Lengths,
    space_of: Callable[[Parameters], Space],
    start: Estimate,
    bounds: Bounds,
) -> Estimate:
    """Return better parameters near a start; other arguments as for :func:`on_grid`.

    Each parameter is moved by an eighth of its bounds' width, and less from the second round on.

    ``bounds``: the least and the greatest value of each parameter
    """
    parameters, best = start
    step = np.tile((bounds[:, 1] - bounds[:, 0]) / 8, (len(values), 1))
    for _ in range(_ROUNDS if len(values) else 0):
        before = best
        for number, sign in itertools.product(range(len(bounds)), (-1.0, 1.0)):
            tried = parameters.copy()
            moved = tried[:, number] + sign * step[:, number]
            tried[:, number] = np.clip(moved, *bounds[number])
            new, _ = squares_of(values, lengths, space_of(tried))
            better = new < best
            parameters = np.where(better[:, None], tried, parameters)
            best = np.where(better, new, best)
        step = np.where((best >= before * (1 - 1e-4))[:, None], step / 2, step)
    return Estimate(parameters, best)


def squares_on_grid(
    values: Values, lengths: Lengths, space: Space
) -> Float[np.ndarray, "series model"]:
    """Return the least sum of squared errors of each series under each model."""
    steps, count = values.shape[1], len(values)
    block = min(max(8, _BLOCK // steps**2), _MOST_ROWS)
    values = np.concatenate([values, np.zeros((-count % block, steps))])
    lengths = np.concatenate([lengths, np.full(-count % block, steps)])
    unique, which = np.unique(lengths, return_inverse=True)
    regressors, response = _regressors(space, steps)
    out = np.empty((len(values), len(response)))
    for begin in range(0, len(response), _MODELS):
        models = slice(begin, begin + _MODELS)
        inverse = np.linalg.inv(_with_ridge(_grams(regressors[models], unique)))
        for row in range(0, len(values), block):
            rows = slice(row, row + block)
            seen = np.arange(steps) < lengths[rows, None]
            errors = _convolved(response[models, None], values[rows]) * seen
            along = np.matmul(errors, regressors[models])
            explained = np.matmul(along[:, :, None], inverse[:, which[rows]])[:, :, 0] * along
            squares = (errors**2).sum(2) - explained.sum(2)  # of the best initial state
            out[rows, models] = np.maximum(squares, _LEAST).T
    return out[:count]


def _convolved(response: np.ndarray, values: Values) -> Float[np.ndarray, "*model series time"]:
    """Return the convolution of series with responses, cut to their length."""
    steps = values.shape[-1]
    size = 2 * steps  # so that the end does not echo at the beginning
    product = np.fft.rfft(response, size) * np.fft.rfft(values, size)
    return np.fft.irfft(product, size)[..., :steps]


def squares_of(
    values: Values, lengths: Lengths, space: Space
) -> tuple[Float[np.ndarray, " series"], Float[np.ndarray, "series state"]]:
    """Return the least sum of squared errors of each series under its own model, and its state.

    The state is the initial one with this sum. ``space``: a model for each series.
    """
    steps = values.shape[1]
    regressors, response = _regressors(space, steps)
    seen = np.arange(steps) < lengths[:, None]
    errors = _convolved(response, values) * seen  # from an initial state of zero
    regressors = regressors * seen[:, :, None]
    along = np.matmul(errors[:, None], regressors)[:, 0]
    gram = _with_ridge(np.matmul(regressors.swapaxes(1, 2), regressors))
    chosen = np.linalg.solve(gram, along[:, :, None])[:, :, 0]
    squares = np.maximum((errors**2).sum(1) - (along * chosen).sum(1), _LEAST)
    return squares, chosen @ space.free.T


def states_of(
    values: Values, lengths: Lengths, space: Space, initial: Float[np.ndarray, "series state"]
) -> Float[np.ndarray, "series time state"]:
    """Return the state after each value; padding repeats the last state.

    ``space``: a model for each series.
    """
    out = np.empty((*values.shape, initial.shape[1]))
    state = initial
    for step in range(values.shape[1]):
        error = values[:, step] - (space.output * state).sum(1)
        after = (
            np.matmul(space.transition, state[:, :, None])[:, :, 0] + space.gain * error[:, None]
        )
        state = np.where((step < lengths)[:, None], after, state)
        out[:, step] = state
    return out


def ahead_of(space: Space, horizon: int) -> Float[np.ndarray, "model horizon state"]:
    """Return w'F^(h-1), whose product with the latest state is the mean ``h`` steps ahead."""
    row, rows = space.output, []
    for _ in range(horizon):
        rows.append(row)
        row = np.matmul(row[:, None], space.transition)[:, 0]
    return np.stack(rows, axis=1)


def _regressors(space: Space, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Return X times ``free`` (model, time, free), and the first column of L (model, time)."""
    turned = space.transition - space.gain[:, :, None] * space.output[:, None]
    rows = np.empty((len(turned), steps, turned.shape[1]))
    row = space.output
    for step in range(steps):
        rows[:, step] = row
        row = np.matmul(row[:, None], turned)[:, 0]
    response = np.ones((len(turned), steps))
    response[:, 1:] = -np.matmul(rows[:, :-1], space.gain[:, :, None])[:, :, 0]
    return rows @ space.free, response


def _grams(regressors: np.ndarray, lengths: Lengths) -> Float[np.ndarray, "model length free free"]:
    """Return X'X of the first steps of models, for each of some ascending numbers of steps."""
    begins = np.concatenate([[0], lengths[:-1]])
    parts = [
        np.matmul(part.swapaxes(1, 2), part)
        for begin, end in zip(begins, lengths, strict=True)
        for part in [regressors[:, begin:end]]
    ]
    return np.cumsum(np.stack(parts, axis=1), axis=1)


def _with_ridge(gram: np.ndarray) -> np.ndarray:
    """Return X'X with a little more on its diagonal, so that it can always be inverted."""
    diagonal = np.diagonal(gram, axis1=-2, axis2=-1)[..., None]
    return gram + (_RIDGE * diagonal + _LEAST) * np.eye(gram.shape[-1])
