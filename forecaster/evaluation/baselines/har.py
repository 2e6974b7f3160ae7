"""Heterogeneous autoregression of the variance: volatilities of a day, a week and a month.

Arguments as of :mod:`forecaster.evaluation.baselines.simple`. The variance of the next ``h`` steps
is regressed on the mean variance of the latest 1, 5 and 22 steps, for each ``h`` separately and
once, on the data known at the first origin. Bands are the quantiles of the changes until then, each
divided by the volatility forecast for it.

Corsi (2009), Journal of Financial Econometrics 7.
"""

from collections.abc import Callable

import numpy as np

from forecaster.evaluation.baselines.simple import floored, logarithms, taken

_STEPS = (1, 5, 22)  # a day, a week and a month of sessions
_FEWEST = 50  # changes to regress on


def har(
    y: np.ndarray, origins: np.ndarray, horizon: int, quantiles: np.ndarray, season: int
) -> np.ndarray:
    """Forecast the last value, with bands from the volatility that HAR forecasts.

    It sees one column only, so a step's variance is its squared change, not the variance realised
    within the day. Weighted as by Patton & Sheppard (2015), Review of Economics and Statistics 97;
    forecasts are limited to the range seen before (Swanson & White 1997, International Journal of
    Forecasting 13).
    """
    z, back = taken(y)
    squares = np.diff(z, prepend=z[0]) ** 2
    return back(_forecast(_of_variances, z, squares, origins, horizon, quantiles))


def log_har(
    y: np.ndarray,
    origins: np.ndarray,
    horizon: int,
    quantiles: np.ndarray,
    season: int,
    variance: np.ndarray,
) -> np.ndarray:
    """Forecast the last value, with bands from the volatility that a regression forecasts.

    The logarithm of the mean variance of the next sessions is regressed on those of the latest 1, 5
    and 22. Andersen, Bollerslev & Diebold (2007), Review of Economics and Statistics 89.

    ``variance`` (step,): as in :mod:`forecaster.evaluation.baselines.ranges`
    """
    z, variance = logarithms(y), floored(variance, int(origins[0]))
    return np.exp(_forecast(_of_logarithms, z, variance, origins, horizon, quantiles))


def _forecast(
    volatilities: Callable[[np.ndarray, np.ndarray], np.ndarray],
    z: np.ndarray,
    variance: np.ndarray,
    origins: np.ndarray,
    horizon: int,
    quantiles: np.ndarray,
) -> np.ndarray:
    """Return forecasts (origin, horizon, quantile) in the units of ``z``.

    - ``volatilities(recent, outcomes)``: forecasts (step,) from mean variances (step, span),
      regressed on the first ``outcomes``
    - ``variance`` (step,): of each step
    """
    known, first = int(origins[0]), max(_STEPS)
    if known - first - horizon < _FEWEST:
        raise ValueError(
            f"{known} changes before the first cutoff; expected {first + _FEWEST + horizon} or more"
        )
    # A running sum up to a step contains nothing later.
    sums = np.concatenate([[0.0], np.cumsum(variance)])
    steps = np.arange(first, len(z))
    recent = np.stack([(sums[steps + 1] - sums[steps + 1 - span]) / span for span in _STEPS], 1)
    out = np.empty((len(origins), horizon, len(quantiles)))
    for h in range(1, horizon + 1):
        fitted = slice(0, known - first - h + 1)  # outcomes known at the first origin
        outcomes = (sums[steps[fitted] + 1 + h] - sums[steps[fitted] + 1]) / h
        volatility = volatilities(recent, outcomes)
        changes = z[steps[fitted] + h] - z[steps[fitted]]
        unit = np.quantile(changes / volatility[fitted], quantiles)
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
