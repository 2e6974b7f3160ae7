"""Search the admissible region for the parameters of exponential smoothing.

In the usual region the trend's weight is below the level's, and the season's weight below one minus
the level's. In the admissible one errors of the initial state must not grow (Hyndman, Akram &
Archibald 2008, Annals of the Institute of Statistical Mathematics 60). Neither contains the other:
with a trend and a long season, some usual parameters let errors grow a little. On most series
likelihoods are higher in the admissible region; forecasts are not better, so it is not the default.
"""

import itertools

import numpy as np
from jaxtyping import Bool, Float, Int

from forecaster.classical.ets_form import Form
from forecaster.classical.innovations import (
    ROUNDS,
    Estimate,
    Lengths,
    Parameters,
    Values,
    least_errors,
    squares_of,
    squares_on_grid,
)
from forecaster.classical.least_squares import least_squares

_STARTS = 2  # combinations of trend and damping of the grid that a search begins from
_LARGE = tuple(itertools.product((0.5, 0.95), (0.3, 0.7)))  # further starts: level, season
_LEAST_LEVEL = 1e-9
_MARGIN = 1e-8  # of eigenvalues that are one: the sum of a form's seasons stays as it is


def admissible(form: Form, values: Values, lengths: Lengths) -> Estimate:
    """Return the admissible parameters with the least sum of squared errors, for each series.

    A search bounds the weights of level, trend and season each by itself. It begins from several
    points, since the likelihood has several maxima there. Parameters are given as the form has
    them, so shares of the trend and of the season may be above one.

    - ``values``: padded with zeros after each series' last value
    - ``lengths``: the number of values of each series
    """

    def errors_of(rows: Int[np.ndarray, " some"], tried: Parameters) -> Values:
        return least_errors(values[rows], lengths[rows], form.space(_as_shares(form, tried)))

    def allowed(rows: Int[np.ndarray, " some"], tried: Parameters) -> Bool[np.ndarray, " some"]:
        del rows
        return _is_admissible(form, tried)

    found = []
    for start in _starts(form, values, lengths):
        weights = least_squares(errors_of, start, form.bounds(), ROUNDS, allowed=allowed)
        parameters = _as_shares(form, weights)
        squares, initial = squares_of(values, lengths, form.space(parameters))
        found.append(Estimate(parameters, initial, squares))
    best = np.argmin([each.squares for each in found], axis=0)
    rows = np.arange(len(values))
    return Estimate(*(np.stack(part)[best, rows] for part in zip(*found, strict=True)))


def _starts(form: Form, values: Values, lengths: Lengths) -> list[Parameters]:
    """Return weights to begin with: the best of the grid by trend, and four with a large season."""
    grid = form.grid()
    grid = grid[_is_admissible(form, _as_weights(form, grid))]
    squares = squares_on_grid(values, lengths, form.space(grid))
    trended = [form.names.index(name) for name in ("trend", "damping") if name in form.names]
    _, group = np.unique(grid[:, trended], axis=0, return_inverse=True)
    groups = [np.flatnonzero(group == number) for number in np.unique(group)]
    least = np.stack([squares[:, rows].min(1) for rows in groups], axis=1)
    where = np.stack([rows[squares[:, rows].argmin(1)] for rows in groups], axis=1)
    where = np.take_along_axis(where, least.argsort(1)[:, :_STARTS], axis=1)
    out = [_as_weights(form, grid[column]) for column in where.T]
    for level, season in _LARGE if form.season > 1 else ():
        other = out[0].copy()
        other[:, form.names.index("level")] = level
        other[:, form.names.index("season")] = season
        out.append(np.where(_is_admissible(form, other)[:, None], other, out[0]))
    return out


def _is_admissible(form: Form, weights: Parameters) -> Bool[np.ndarray, " series"]:
    """Return whether errors of the initial state do not grow."""
    space = form.space(_as_shares(form, weights))
    turned = space.transition - space.gain[:, :, None] * space.output[:, None]
    margin = _MARGIN if form.season > 1 else 0.0
    return np.abs(np.linalg.eigvals(turned)).max(1) <= 1 + margin


def _as_weights(form: Form, shares: Parameters) -> Parameters:
    """Return the weights of an error in level, trend and season from a form's parameters."""
    return np.where(_shared(form), shares * _whole(form, shares), shares)


def _as_shares(form: Form, weights: Parameters) -> Parameters:
    """Return a form's parameters from the weights of an error in level, trend and season."""
    whole = np.maximum(_whole(form, weights), _LEAST_LEVEL)
    return np.where(_shared(form), weights / whole, weights)


def _shared(form: Form) -> Bool[np.ndarray, " parameter"]:
    """Return which of a form's parameters are shares of another."""
    return np.array([name in ("trend", "season") for name in form.names])


def _whole(form: Form, parameters: Parameters) -> Float[np.ndarray, "model parameter"]:
    """Return what each parameter is a share of; one for those that are no shares."""
    level = parameters[:, form.names.index("level")]
    parts = {"trend": level, "season": 1 - level}
    return np.stack([parts.get(name, np.ones(len(level))) for name in form.names], axis=1)
