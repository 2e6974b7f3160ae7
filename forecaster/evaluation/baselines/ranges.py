"""Baselines that see the range of each session, not only its close: rivals with our inputs.

Arguments as of :mod:`forecaster.evaluation.baselines.simple`, and ``variance`` (step,), that of
each session (:func:`forecaster.evaluation.scores.realized.session_variance`). Parameters are
estimated once, like the networks', on the data known at the first origin.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.stats import t as student_t

from forecaster.evaluation.baselines.simple import floored, logarithms

_FEWEST = 50  # sessions to estimate on
_MOST_STEPS = 200  # of the search for the largest likelihood

Row = Float[np.ndarray, " step"]


def range_garch(
    y: Row, origins: np.ndarray, horizon: int, quantiles: np.ndarray, season: int, variance: Row
) -> np.ndarray:
    """Forecast by GARCH(1,1) with Student-t errors, in which ranges stand for squared returns.

    Several days' returns are taken as Student-t with the summed variance.

    Molnar (2016), Applied Economics 48(51).
    """
    z, known = logarithms(y), int(origins[0])
    steps = np.diff(z)
    if known < _FEWEST or not steps[:known].std() > 0:
        raise ValueError(f"{known} changes before the first cutoff; expected {_FEWEST} or more")
    size, mean = float(steps[:known].std()), float(steps[:known].mean())
    seen = floored(variance, known)[1:] / size**2  # seen[i] is known with steps[i]
    estimate = _estimated((steps[:known] - mean) / size, seen[:known])
    ahead = _variances(estimate, seen, float(seen[:known].mean()), horizon)[origins]
    unit = student_t.ppf(quantiles, estimate.dof) * np.sqrt((estimate.dof - 2) / estimate.dof)
    middle = z[origins][:, None] + mean * np.arange(1, horizon + 1)
    return np.exp(middle[..., None] + size * np.sqrt(np.cumsum(ahead, axis=1))[..., None] * unit)


class _Estimate(NamedTuple):
    """The parameters of a range-based GARCH."""

    constant: float
    weight: float
    persistence: float
    dof: float


def _filtered(estimate: _Estimate, seen: Row) -> Row:
    """Return the variance forecast at each step for the next, beginning at the mean."""
    from scipy.signal import lfilter

    inputs = estimate.constant + estimate.weight * seen
    start = np.array([estimate.persistence * 1.0])  # returns are in units of their deviation
    return lfilter([1.0], [1.0, -estimate.persistence], inputs, zi=start)[0]


def _estimated(returns: Row, seen: Row) -> _Estimate:
    """Return the parameters of the largest likelihood; ``returns`` have the deviation 1."""
    from scipy.optimize import minimize

    level = float(seen.mean())

    def loss(values: np.ndarray) -> float:
        estimate = _Estimate(*values)
        variance = np.concatenate([[1.0], _filtered(estimate, seen)[:-1]])
        scale = np.sqrt(variance * (estimate.dof - 2) / estimate.dof)
        return -float(student_t.logpdf(returns, estimate.dof, scale=scale).sum())

    starts = [_Estimate(0.02, 0.1 / level, 0.88, 6.0), _Estimate(0.05, 0.3 / level, 0.65, 6.0)]
    bounds = [(1e-6, 10.0), (0.0, 2.0 / level), (0.0, 0.9999), (2.1, 200.0)]
    found = [
        minimize(loss, start, bounds=bounds, method="L-BFGS-B", options={"maxiter": _MOST_STEPS})
        for start in starts
    ]
    best = min(found, key=lambda one: one.fun)
    if not np.isfinite(best.fun):
        raise ValueError("the likelihood has no largest value")
    return _Estimate(*map(float, best.x))


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
