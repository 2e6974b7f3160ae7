"""Exponential smoothing: every form, of all series at once.

Hyndman, Koehler, Ord & Snyder (2008), Forecasting with Exponential Smoothing. Errors are additive;
logarithms of the values stand in for multiplicative errors and seasons, with the Jacobian in the
likelihood, so that the information criteria of both can be compared.

A form is a linear innovations state-space model: a state x and one source of error (chapter 3)::

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
from collections.abc import Callable, Sequence
from typing import Annotated, Literal, NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Bool, Float, Int
from msgspec import Meta

from forecaster.classical.models import Functions
from forecaster.classical.rows import Batch, batches

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


MOST_SEASON = 24
"""Steps in the longest season that these models take: longer ones have too many initial states."""

Season: TypeAlias = Annotated[int, Meta(ge=1, le=MOST_SEASON)]
_SHARE = 1e-4, 0.9999
_PARAMETERS = {  # what is tried of each, and its least and greatest value
    "level": ((0.02, 0.1, 0.2, 0.35, 0.55, 0.8, 0.98), _SHARE),
    "trend": ((0.02, 0.1, 0.3), _SHARE),
    "damping": ((0.85, 0.95), (0.8, 0.98)),
    "season": ((0.02, 0.1, 0.3), _SHARE),
}
_TRENDS: tuple[Literal["none", "additive", "damped"], ...] = ("none", "additive", "damped")


class Form(NamedTuple):
    """A form of exponential smoothing.

    - ``trend``: "none", "additive" or "damped"
    - ``season``: steps in a season; 1 for none
    - ``logarithmic``: whether logarithms are smoothed
    """

    trend: Literal["none", "additive", "damped"]
    season: Season = 1
    logarithmic: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its parameters.

        The trend's parameter is a share of the level's. The season's is a share of one minus the
        level's.
        """
        names = {
            "level": True,
            "trend": self.trend != "none",
            "damping": self.trend == "damped",
            "season": self.season > 1,
        }
        return tuple(name for name, there in names.items() if there)

    @property
    def freedom(self) -> int:
        """The number of parameters, of free initial states, and one for the variance."""
        return len(self.names) + 1 + (self.trend != "none") + (self.season - 1) + 1

    def grid(self) -> Parameters:
        """Return the parameters that are tried on every series."""
        return np.array([*itertools.product(*(_PARAMETERS[name][0] for name in self.names))])

    def bounds(self) -> Float[np.ndarray, "parameter 2"]:
        """Return the least and the greatest value of each parameter."""
        return np.array([_PARAMETERS[name][1] for name in self.names])

    def space(self, parameters: Parameters) -> Space:
        """Return state-space models with these parameters; states are level, trend, seasons."""
        given = dict(zip(self.names, parameters.T, strict=True))
        models, trended, seasonal = len(parameters), self.trend != "none", self.season > 1
        size = 1 + trended + (self.season if seasonal else 0)
        transition = np.zeros((models, size, size))
        output, gain = np.zeros((models, size)), np.zeros((models, size))
        output[:, 0] = transition[:, 0, 0] = 1
        gain[:, 0] = given["level"]
        if trended:
            damping = given.get("damping", np.ones(models))
            output[:, 1] = transition[:, 0, 1] = transition[:, 1, 1] = damping
            gain[:, 1] = given["level"] * given["trend"]
        free = np.eye(size)
        if seasonal:  # the season that comes next stands first
            first = 1 + trended
            output[:, first] = transition[:, -1, first] = 1
            rows = np.arange(first, size - 1)
            transition[:, rows, rows + 1] = 1
            gain[:, -1] = given["season"] * (1 - given["level"])
            free = free[:, :-1]
            free[-1, first:] = -1  # seasons begin with a sum of zero
        return Space(transition, output, gain, free)


Row: TypeAlias = Float[np.ndarray, " time"]

_KEPT, _LEAST_WEIGHT = 3, 0.05  # forms of a series that are averaged, and the least weight
_NEAR = 6.0  # forms within this distance of the best criterion on the grid are searched on
_LEARNED_FROM = 512  # latest values that parameters are estimated on


class Component(NamedTuple):
    """One form of a series' average: its parameters, in the form's order, and its weight."""

    form: Form
    parameters: tuple[float, ...]
    weight: float


Average: TypeAlias = tuple[Component, ...]
"""The forms whose forecasts are averaged for a series; empty where it has too few values."""


def fit_ets(rows: Sequence[Row], season: int) -> list[Average]:
    """Return the average over forms of each series, weighted by their corrected Akaike criterion.

    Burnham & Anderson (2002), Model Selection and Multimodel Inference, section 2.9. Every form is
    tried on a grid of parameters; for those that come near the best, better parameters are then
    looked for around the best point. Greatest likelihoods take longer and forecast no better.

    - ``rows``: the values of each series, without gaps
    - ``season``: steps in a season; 1 for none
    """
    averages: list[Average] = [()] * len(rows)
    seasons = (1, season) if 1 < season <= MOST_SEASON else (1,)
    forms = [Form(*each) for each in itertools.product(_TRENDS, seasons, (False, True))]
    for batch in batches([row[-_LEARNED_FROM:] for row in rows]):
        count = len(batch.values)
        fits = [_Fitted.on_grid(form, batch) for form in forms]
        criteria = _criteria(fits, count)
        with np.errstate(invalid="ignore"):
            near = criteria - criteria.min(1, keepdims=True) < _NEAR
        fits = [one.refined(near[one.rows, number]) for number, one in enumerate(fits)]
        criteria = _criteria(fits, count)
        for row, where in enumerate(batch.where):
            averages[where] = _average(fits, criteria[row], row)
    return averages


def _criteria(fits: Sequence["_Fitted"], series: int) -> Float[np.ndarray, "series form"]:
    """Return Akaike's criterion, corrected for short series, of each form for each series.

    It is infinite where a series has too few values, or none to take the logarithm of.
    """
    out = np.full((series, len(fits)), np.inf)
    for number, fitted in enumerate(fits):
        free, count = fitted.form.freedom, fitted.lengths.astype(float)
        penalty = 2 * free + 2 * free * (free + 1) / np.maximum(count - free - 1, 1)
        with np.errstate(divide="ignore"):
            fit = count * np.log(fitted.found.squares / count)
        out[fitted.rows, number] = fit + penalty + fitted.jacobian
    return out


class _Fitted(NamedTuple):
    """A form fitted to those series of a batch that can have it.

    - ``rows``: these series
    - ``z``, ``lengths``: what the form smooths, and the number of values
    - ``jacobian``: what the change of units adds to the criterion
    """

    form: Form
    rows: Int[np.ndarray, " series"]
    z: Values
    lengths: Lengths
    jacobian: Float[np.ndarray, " series"]
    found: Estimate

    @staticmethod
    def on_grid(form: Form, batch: Batch) -> "_Fitted":
        """Fit a form by the best point of its grid."""
        z, jacobian = _as_smoothed(form, batch.values, batch.lengths)
        fewest = max(form.freedom + 2, 2 * form.season if form.season > 1 else 1)
        rows = np.flatnonzero((batch.lengths >= fewest) & np.isfinite(jacobian))
        z, lengths = z[rows], batch.lengths[rows]
        found = on_grid(z, lengths, form.space, form.grid())
        return _Fitted(form, rows, z, lengths, jacobian[rows], found)

    def refined(self, chosen: Bool[np.ndarray, " series"]) -> "_Fitted":
        """Return better fits of some of the series."""
        found = Estimate(*(part[chosen] for part in self.found))
        rows, z, lengths, jacobian = (part[chosen] for part in self[1:5])
        found = refined(z, lengths, self.form.space, found, self.form.bounds())
        return _Fitted(self.form, rows, z, lengths, jacobian, found)


def ets_ahead(
    rows: Sequence[Row], averages: Sequence[Average], learned: Sequence[int], horizon: int
) -> list[Float[np.ndarray, "time horizon"]]:
    """Return the mean forecasts made at every value of each series; NaN where there are none.

    - ``rows``: the values, which may go on after those that the averages were fitted on
    - ``averages``: the average of each series, from :func:`fit_ets`
    - ``learned``: how many of its first values decide on the initial state
    """
    out = [np.full((len(row), horizon), np.nan) for row in rows]
    total = [np.zeros((len(row), horizon)) for row in rows]
    of_form: dict[Form, list[tuple[int, Component]]] = {}
    for position, average in enumerate(averages):
        for component in average:
            of_form.setdefault(component.form, []).append((position, component))
    for form, members in of_form.items():
        for batch in batches([rows[position] for position, _ in members]):
            chosen = [members[where] for where in batch.where]
            space = form.space(np.array([component.parameters for _, component in chosen]))
            z, _ = _as_smoothed(form, batch.values, batch.lengths)
            known = np.minimum(batch.lengths, [learned[position] for position, _ in chosen])
            seen = np.arange(z.shape[1]) < known[:, None]  # later values would change bits
            _, initial = squares_of(np.where(seen, z, 0.0), known, space)
            weights = ahead_of(space, horizon)
            mean = np.matmul(states_of(z, batch.lengths, space, initial), weights.swapaxes(1, 2))
            mean = _as_values(form, mean, batch.values[:, 0])
            for (position, component), made in zip(chosen, mean, strict=True):
                total[position] += component.weight * made[: len(total[position])]
    for position, average in enumerate(averages):
        if average:
            out[position] = total[position]
    return out


def _as_smoothed(
    form: Form, values: Values, lengths: Lengths
) -> tuple[Values, Float[np.ndarray, " series"]]:
    """Return what a form smooths, and what the change of units adds to the criterion.

    Values are counted from the first one, so that a high level costs no digits.
    """
    seen = np.arange(values.shape[1]) < lengths[:, None]
    if not form.logarithmic:
        return np.where(seen, values - values[:, :1], 0.0), np.zeros(len(values))
    positive = values > 0
    z = np.log(np.where(seen & positive, values, 1.0))
    jacobian = np.where((positive | ~seen).all(1), 2 * z.sum(1), np.inf)
    return np.where(seen, z - z[:, :1], 0.0), jacobian


def _as_values(
    form: Form, smoothed: Float[np.ndarray, "series time horizon"], first: np.ndarray
) -> Float[np.ndarray, "series time horizon"]:
    """Return the values whose smoothed form was counted from the first value."""
    if not form.logarithmic:
        return smoothed + first[:, None, None]
    begin = np.log(np.where(first > 0, first, 1.0))
    return np.exp(np.clip(smoothed + begin[:, None, None], -700, 700))


def _average(fits: Sequence[_Fitted], criteria: np.ndarray, row: int) -> Average:
    """Return the best forms of the series at a row, weighted by their criteria."""
    if not np.isfinite(criteria).any():
        return ()
    weights = np.exp(-(criteria - criteria.min()) / 2)
    best = np.argsort(-weights, kind="stable")[:_KEPT]
    best = best[weights[best] >= _LEAST_WEIGHT * weights[best].sum()]
    total = weights[best].sum()
    made: list[Component] = []
    for one, weight in zip([fits[k] for k in best], weights[best], strict=True):
        own = one.found.parameters[np.searchsorted(one.rows, row)]
        made.append(Component(one.form, tuple(own.tolist()), float(weight / total)))
    return tuple(made)


MODEL = Functions(
    fit_ets, ets_ahead, Average, nothing=(),
    fits=lambda forms: all(len(one.parameters) == len(one.form.names) for one in forms),
)  # fmt: skip
