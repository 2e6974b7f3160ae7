"""Baselines that forecast how far prices move: GARCH, HAR, and those that see ranges.

Each takes a :class:`forecaster.evaluation.baselines.simple.Job`. Some see the range of each
session, not only its close: the job has the variance of each session
(:func:`forecaster.evaluation.scores.returns.session_variance`). Parameters are estimated once,
like the networks', on the data known at the first origin.

GARCH with Student-t errors is fitted by the ``arch`` library; its variance is updated from there.
The sum of several days' returns is taken as Student-t with the summed variance, which is exact for
one day. An estimate whose variance explodes at once raises ValueError; if it explodes later,
forecasts are NaN from there on. Bollerslev (1987), Review of Economics and Statistics 69; with
leverage Glosten, Jagannathan & Runkle (1993), Journal of Finance 48.

In a heterogeneous autoregression the variance of the next ``h`` steps is regressed on the mean
variance of the latest 1, 5 and 22 steps, for each ``h`` separately. Bands are the quantiles of the
changes until the first origin, each divided by the volatility forecast for it. Corsi (2009),
Journal of Financial Econometrics 7.
"""

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.special import gammaln, stdtrit

from forecaster.classical import linear_filter
from forecaster.evaluation.baselines.simple import Job, floored, logarithms, taken

_ROUNDING = 1e-3  # estimates often lie on the border, a persistence of 1
# In units of the largest change before the first cutoff; 67 US stocks of 2000-2015 stay below 1.
_MOST_VOLATILITY = 10.0


def garch(job: Job) -> np.ndarray:
    """Forecast by GARCH(1,1)-t with a constant mean."""
    return _volatility(job, leverage=0)


def gjr(job: Job) -> np.ndarray:
    """Forecast by GJR-GARCH(1,1,1)-t, where falls may raise the variance more than rises."""
    return _volatility(job, leverage=1)


def _volatility(job: Job, *, leverage: int) -> np.ndarray:
    from arch import arch_model

    (z, back), origins, horizon = taken(job.y), job.origins, job.horizon
    steps = np.diff(z)  # steps[i] is known at step i + 1
    known = int(origins[0])
    size = steps[:known].std()
    if known < 50 or not size > 0:
        raise ValueError(f"{known} changes before the first cutoff; expected 50 that are not all 0")
    scaled = steps / size  # the optimiser needs numbers near one
    model = arch_model(scaled, mean="Constant", vol="GARCH", p=1, o=leverage, q=1, dist="t")
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # estimates that did not converge are found below
        fitted = model.fit(last_obs=known, disp="off", show_warning=False)
        _check_estimate(fitted.params, scaled[:known])
        # The estimate uses the steps up to `last_obs`; the forecasts start at every later step.
        forecast = fitted.forecast(horizon=horizon, start=known - 1, reindex=False)
    variance = np.cumsum(forecast.variance.to_numpy()[origins - known], axis=1)
    sound = ~np.logical_or.accumulate(_exploded(variance, scaled[:known]))
    if not sound[0]:
        raise ValueError("the estimate's variance explodes")
    dof = max(float(fitted.params["nu"]), 2.05)
    unit = stdtrit(dof, job.quantiles) * np.sqrt((dof - 2) / dof)
    mean = float(fitted.params["mu"]) * np.arange(1, horizon + 1)
    with np.errstate(invalid="ignore"):
        out = size * (mean[:, None] + np.sqrt(variance)[..., None] * unit)
    out += z[origins][:, None, None]
    out[~sound] = np.nan
    return back(out)


def _check_estimate(params: pd.Series, steps: np.ndarray) -> None:
    """Raise ValueError for parameters that cannot maximise the likelihood.

    The optimiser may leave the likelihood's domain where a series hardly ever changes.
    """
    if not steps.min() <= params["mu"] <= steps.max():
        raise ValueError("the estimate diverged: the mean change lies beyond every change seen")
    # A fall raises the variance by alpha + gamma, a rise by alpha.
    persistence = params["alpha[1]"] + params["beta[1]"] + params.get("gamma[1]", 0.0) / 2
    if not persistence <= 1 + _ROUNDING:
        raise ValueError(f"the estimate's variance explodes: its persistence is {persistence:.4g}")


def _exploded(variance: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """Return which origins have unusable variances (origin, horizon), summed over steps.

    A volatility far beyond every change before the first cutoff comes from an estimate on a listing
    that was frozen, or nearly so.
    """
    ahead = np.arange(1, variance.shape[1] + 1)
    most = ahead * (_MOST_VOLATILITY * np.abs(steps).max()) ** 2
    return ~((variance > 0) & (variance <= most)).all(1)


_STEPS = (1, 5, 22)  # a day, a week and a month of sessions
_FEWEST = 50  # changes to estimate on


def har(job: Job) -> np.ndarray:
    """Forecast the last value, with bands from the volatility that HAR forecasts.

    It sees one column only, so a step's variance is its squared change, not the variance realised
    within the day. Weighted as by Patton & Sheppard (2015), Review of Economics and Statistics 97;
    forecasts are limited to the range seen before (Swanson & White 1997, International Journal of
    Forecasting 13).
    """
    z, back = taken(job.y)
    squares = np.diff(z, prepend=z[0]) ** 2
    return back(_forecast(_of_variances, z, squares, job))


def log_har(job: Job) -> np.ndarray:
    """Forecast the last value, with bands from the volatility that a regression forecasts.

    The logarithm of the mean variance of the next sessions is regressed on those of the latest 1, 5
    and 22. Andersen, Bollerslev & Diebold (2007), Review of Economics and Statistics 89.
    """
    z, variance = logarithms(job.y), floored(job)
    return np.exp(_forecast(_of_logarithms, z, variance, job))


def _forecast(
    volatilities: Callable[[np.ndarray, np.ndarray], np.ndarray],
    z: np.ndarray,
    variance: np.ndarray,
    job: Job,
) -> np.ndarray:
    """Return forecasts (origin, horizon, quantile) in the units of ``z``.

    - ``volatilities(recent, outcomes)``: forecasts (step,) from mean variances (step, span),
      regressed on the first ``outcomes``
    - ``variance`` (step,): of each step
    """
    origins, horizon, first = job.origins, job.horizon, max(_STEPS)
    known = int(origins[0])
    if known - first - horizon < _FEWEST:
        raise ValueError(
            f"{known} changes before the first cutoff; expected {first + _FEWEST + horizon} or more"
        )
    # A running sum up to a step contains nothing later.
    sums = np.concatenate([[0.0], np.cumsum(variance)])
    steps = np.arange(first, len(z))
    recent = np.stack([(sums[steps + 1] - sums[steps + 1 - span]) / span for span in _STEPS], 1)
    out = np.empty((len(origins), horizon, len(job.quantiles)))
    for h in range(1, horizon + 1):
        fitted = slice(0, known - first - h + 1)  # outcomes known at the first origin
        outcomes = (sums[steps[fitted] + 1 + h] - sums[steps[fitted] + 1]) / h
        volatility = volatilities(recent, outcomes)
        changes = z[steps[fitted] + h] - z[steps[fitted]]
        unit = np.quantile(changes / volatility[fitted], job.quantiles)
        out[:, h - 1] = z[origins][:, None] + volatility[origins - first][:, None] * unit
    return out


def _of_variances(recent: np.ndarray, outcomes: np.ndarray) -> np.ndarray:
    if not outcomes.max() > 0:
        raise ValueError("nothing changes before the first cutoff")
    inputs, seen = np.insert(recent, 0, 1.0, axis=1), recent[: len(outcomes)]
    weight = 1 / np.maximum(seen.mean(1), 1e-2 * outcomes.mean())
    coefficients = np.linalg.lstsq(
        inputs[: len(outcomes)] * weight[:, None], outcomes * weight, rcond=None
    )[0]
    # The square of one step may be zero; the lower limit is therefore that of a quiet month.
    low, high = max(seen[:, -1].min(), 1e-4 * outcomes.mean()), outcomes.max()
    return np.sqrt(np.clip(inputs @ coefficients, low, high))


def _of_logarithms(recent: np.ndarray, outcomes: np.ndarray) -> np.ndarray:
    inputs, outcomes = np.insert(np.log(recent), 0, 1.0, axis=1), np.log(outcomes)
    coefficients = np.linalg.lstsq(inputs[: len(outcomes)], outcomes, rcond=None)[0]
    return np.exp(np.clip(inputs @ coefficients, outcomes.min(), outcomes.max()) / 2)


# Of the search for the largest likelihood: steps, the first one as a share, and the precision.
_MOST_STEPS, _FIRST_STEP, _PRECISE = 400, 0.25, 1e-7

Row = Float[np.ndarray, " step"]


def range_garch(job: Job) -> np.ndarray:
    """Forecast by GARCH(1,1) with Student-t errors, in which ranges stand for squared returns.

    Several days' returns are taken as Student-t with the summed variance.

    Molnar (2016), Applied Economics 48(51).
    """
    z, origins, known = logarithms(job.y), job.origins, int(job.origins[0])
    steps = np.diff(z)
    if known < _FEWEST or not steps[:known].std() > 0:
        raise ValueError(f"{known} changes before the first cutoff; expected {_FEWEST} or more")
    size, mean = float(steps[:known].std()), float(steps[:known].mean())
    seen = floored(job)[1:] / size**2  # seen[i] is known with steps[i]
    estimate = _estimated((steps[:known] - mean) / size, seen[:known])
    ahead = _variances(estimate, seen, float(seen[:known].mean()), job.horizon)[origins]
    unit = stdtrit(estimate.dof, job.quantiles) * np.sqrt((estimate.dof - 2) / estimate.dof)
    middle = z[origins][:, None] + mean * np.arange(1, job.horizon + 1)
    return np.exp(middle[..., None] + size * np.sqrt(np.cumsum(ahead, axis=1))[..., None] * unit)


class _Estimate(NamedTuple):
    """The parameters of a range-based GARCH."""

    constant: float
    weight: float
    persistence: float
    dof: float


def _filtered(estimate: _Estimate, seen: Row) -> Row:
    """Return the variance forecast at each step for the next, beginning at the mean."""
    inputs = estimate.constant + estimate.weight * seen
    inputs[0] += estimate.persistence  # returns are in units of their deviation
    return linear_filter([1.0], [1.0, -estimate.persistence], inputs)


def _estimated(returns: Row, seen: Row) -> _Estimate:
    """Return the parameters of the largest likelihood; ``returns`` have the deviation 1."""
    level = float(seen.mean())
    least, most = [1e-6, 0.0, 0.0, 2.1], [10.0, 2.0 / level, 0.9999, 200.0]

    def loss(values: np.ndarray) -> float:
        estimate = _Estimate(*np.clip(values, least, most))
        variance = np.concatenate([[1.0], _filtered(estimate, seen)[:-1]])
        dof, squares = estimate.dof, returns**2 / (variance * (estimate.dof - 2))
        constant = gammaln((dof + 1) / 2) - gammaln(dof / 2) - 0.5 * np.log(np.pi * (dof - 2))
        each = 0.5 * np.log(variance) + 0.5 * (dof + 1) * np.log1p(squares)
        return float(each.sum() - len(returns) * constant)

    starts = [_Estimate(0.02, 0.1 / level, 0.88, 6.0), _Estimate(0.05, 0.3 / level, 0.65, 6.0)]
    found, lowest = min((_lowest(loss, np.array(one)) for one in starts), key=lambda one: one[1])
    if not np.isfinite(lowest):
        raise ValueError("the likelihood has no largest value")
    return _Estimate(*map(float, np.clip(found, least, most)))


def _lowest(loss: Callable[[np.ndarray], float], start: np.ndarray) -> tuple[np.ndarray, float]:
    """Return where a function is lowest, and its value there, from positive numbers to begin with.

    Nelder & Mead (1965), Computer Journal 7. It finds larger likelihoods than gradients do that are
    differences of them, and needs no library, whose import would take longer than the search.
    """
    points = np.vstack([start, start * (1 + _FIRST_STEP * np.eye(len(start)))])
    values = np.array([loss(point) for point in points])
    for _ in range(_MOST_STEPS):
        order = np.argsort(values, kind="stable")
        points, values = points[order], values[order]
        if not values[-1] - values[0] > _PRECISE * (1 + abs(values[0])):
            break
        away = points[:-1].mean(0) - points[-1]

        def at(by: float, away: np.ndarray = away, worst: np.ndarray = points[-1]) -> Any:
            return loss(point := worst + by * away), point

        value, point = at(2.0)
        if value < values[0]:
            value, point = min((value, point), at(3.0), key=lambda one: one[0])
        elif value >= values[-2]:
            value, point = at(1.5 if value < values[-1] else 0.5)
        if value < values[-1]:
            points[-1], values[-1] = point, value
        else:
            points[1:] = (points[0] + points[1:]) / 2
            values[1:] = [loss(point) for point in points[1:]]
    best = int(np.argmin(values))
    return points[best], float(values[best])


def _variances(
    estimate: _Estimate, seen: Row, level: float, horizon: int
) -> Float[np.ndarray, "origin horizon"]:
    """Return the variance of each of the next steps, forecast at every origin.

    ``level``: the mean of ``seen`` where the variance of returns is 1
    """
    ahead = [np.concatenate([[1.0], _filtered(estimate, seen)])]
    carried = min(estimate.weight * level + estimate.persistence, 1.0)
    for _ in range(1, horizon):
        ahead.append(estimate.constant + carried * ahead[-1])
    return np.stack(ahead, axis=1)
