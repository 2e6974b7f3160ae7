"""Heterogeneous autoregression of the variance: volatilities of a day, a week and a month.

Arguments as of :mod:`forecaster.evaluation.baselines.simple`. A baseline sees one column only, so
a step's variance is its squared change, not the variance realised within the day. The variance of
the next ``h`` steps is regressed on the mean squared changes of the latest 1, 5 and 22 steps, for
each ``h`` separately and once, on the data known at the first origin. Bands are the quantiles of
the changes until then, each divided by the volatility forecast for it.

Corsi (2009), Journal of Financial Econometrics 7; weighted as by Patton & Sheppard (2015), Review
of Economics and Statistics 97; forecasts are limited to the range seen before (Swanson & White
1997, International Journal of Forecasting 13).
"""

import numpy as np

from forecaster.evaluation.baselines.simple import logarithmic

_STEPS = (1, 5, 22)  # a day, a week and a month of sessions
_FEWEST = 50  # changes to regress on


def har(
    y: np.ndarray, origins: np.ndarray, horizon: int, quantiles: np.ndarray, season: int
) -> np.ndarray:
    """Forecast the last value, with bands from the volatility that HAR forecasts."""
    z = np.log(y) if logarithmic(y) else y
    known = int(origins[0])
    squares = np.diff(z, prepend=z[0]) ** 2
    # A running sum up to a step contains nothing later.
    sums = np.concatenate([[0.0], np.cumsum(squares)])
    first = max(_STEPS)
    steps = np.arange(first, len(z))
    if known - first - horizon < _FEWEST:
        raise ValueError(
            f"{known} changes before the first cutoff; expected {first + _FEWEST + horizon} or more"
        )
    recent = [(sums[steps + 1] - sums[steps + 1 - span]) / span for span in _STEPS]
    inputs = np.stack([np.ones(len(steps)), *recent], axis=1)
    out = np.empty((len(origins), horizon, len(quantiles)))
    for h in range(1, horizon + 1):
        fitted = slice(0, known - first - h + 1)  # outcomes known at the first origin
        outcomes = (sums[steps[fitted] + 1 + h] - sums[steps[fitted] + 1]) / h
        volatility = np.sqrt(_variances(inputs, outcomes))
        changes = z[steps[fitted] + h] - z[steps[fitted]]
        unit = np.quantile(changes / volatility[fitted], quantiles)
        out[:, h - 1] = z[origins][:, None] + volatility[origins - first][:, None] * unit
    return np.exp(out) if logarithmic(y) else out


def _variances(inputs: np.ndarray, outcomes: np.ndarray) -> np.ndarray:
    """Forecast (step,) from inputs (step, input), regressed on the first ``outcomes``."""
    if not outcomes.max() > 0:
        raise ValueError("nothing changes before the first cutoff")
    seen = inputs[: len(outcomes)]
    weight = 1 / np.maximum(seen[:, 1:].mean(1), 1e-2 * outcomes.mean())
    coefficients = np.linalg.lstsq(seen * weight[:, None], outcomes * weight, rcond=None)[0]
    # The square of one step may be zero; the lower limit is therefore that of a quiet month.
    low, high = max(seen[:, -1].min(), 1e-4 * outcomes.mean()), outcomes.max()
    return np.clip(inputs @ coefficients, low, high)
