"""Heterogeneous autoregression of the variance: volatilities of a day, a week and a month.

Arguments as of :mod:`forecaster.evaluation.baselines.simple`. A baseline sees one column only, so
that a step's variance is its squared change, not one realised within the day. The variance of the
next ``h`` steps is regressed on the mean squared change of the latest 1, 5 and 22, for each ``h``
by itself and once, on what was known at the first origin. Bands are the quantiles of the changes
seen until then, each divided by the volatility forecast for it.

Corsi (2009), Journal of Financial Econometrics 7; weighted as by Patton & Sheppard (2015), Review
of Economics and Statistics 97; a forecast outside all that was seen is drawn back to it (Swanson &
White 1997, International Journal of Forecasting 13).
"""

import numpy as np

from forecaster.evaluation.baselines.simple import logarithmic

_STEPS = (1, 5, 22)  # a day, a week and a month of sessions
_FEWEST = 50  # changes to regress on


def har(
    y: np.ndarray, origins: np.ndarray, horizon: int, quantiles: np.ndarray, season: int
) -> np.ndarray:
    """The last value and the mean change, bands of a volatility by HAR."""
    z = np.log(y) if logarithmic(y) else y
    known = int(origins[0])
    squares = np.diff(z, prepend=z[0]) ** 2
    # Running sums up to a step end there: nothing that comes later has a part in them.
    sums = np.concatenate([[0.0], np.cumsum(squares)])
    first = max(_STEPS)
    steps = np.arange(first, len(z))
    if known - first - horizon < _FEWEST:
        raise ValueError(
            f"{known} changes before the first cutoff; expected {first + 50 + horizon}"
        )
    recent = [(sums[steps + 1] - sums[steps + 1 - span]) / span for span in _STEPS]
    inputs = np.stack([np.ones(len(steps)), *recent], axis=1)
    out = np.empty((len(origins), horizon, len(quantiles)))
    for h in range(1, horizon + 1):
        fitted = slice(0, known - first - h + 1)  # whose outcomes were known at the first origin
        came = (sums[steps[fitted] + 1 + h] - sums[steps[fitted] + 1]) / h
        volatility = np.sqrt(_variances(inputs, came))
        changes = z[steps[fitted] + h] - z[steps[fitted]]
        unit = np.quantile(changes / volatility[fitted], quantiles)
        out[:, h - 1] = z[origins][:, None] + volatility[origins - first][:, None] * unit
    return np.exp(out) if logarithmic(y) else out


def _variances(inputs: np.ndarray, came: np.ndarray) -> np.ndarray:
    """Forecasts (step,) from inputs (step, input), regressed on the first outcomes ``came``."""
    if not came.max() > 0:
        raise ValueError("nothing changes before the first cutoff")
    seen = inputs[: len(came)]
    weight = 1 / np.maximum(seen[:, 1:].mean(1), 1e-2 * came.mean())
    coefficients = np.linalg.lstsq(seen * weight[:, None], came * weight, rcond=None)[0]
    # One step's square may be zero, which is no volatility: the least is that of a quiet month.
    low, high = max(seen[:, -1].min(), 1e-4 * came.mean()), came.max()
    return np.clip(inputs @ coefficients, low, high)
