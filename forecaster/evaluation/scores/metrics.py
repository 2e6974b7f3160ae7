"""Errors and scores, elementwise; the caller takes the mean."""

import numpy as np
from numpy.typing import ArrayLike


def absolute_error(actual: ArrayLike, forecast: ArrayLike) -> np.ndarray:
    """Return |actual - forecast|, in the units of the series."""
    return np.abs(np.asarray(actual) - np.asarray(forecast))


def squared_error(actual: ArrayLike, forecast: ArrayLike) -> np.ndarray:
    """Return (actual - forecast)^2."""
    return (np.asarray(actual) - np.asarray(forecast)) ** 2


def symmetric_error(actual: ArrayLike, forecast: ArrayLike) -> np.ndarray:
    """Return 200 |actual - forecast| / (|actual| + |forecast|), the terms of M4's sMAPE in %."""
    actual, forecast = np.asarray(actual), np.asarray(forecast)
    size = np.abs(actual) + np.abs(forecast)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(size > 0, 200 * np.abs(actual - forecast) / size, 0.0 * size)


def covered(actual: ArrayLike, low: ArrayLike, high: ArrayLike) -> np.ndarray:
    """Return 1.0 where low <= actual <= high, else 0.0; NaN where there is no band."""
    actual, low, high = np.asarray(actual), np.asarray(low), np.asarray(high)
    inside = ((actual >= low) & (actual <= high)).astype(float)
    return np.where(np.isfinite(low + high), inside, np.nan)


def winkler(actual: ArrayLike, low: ArrayLike, high: ArrayLike, level: float) -> np.ndarray:
    """Return the Winkler score: the band's width plus 2 / alpha times the distance outside it.

    ``level`` is in percent; alpha is 1 minus the level.

    Winkler (1972), Journal of the American Statistical Association 67.
    """
    actual, low, high = np.asarray(actual), np.asarray(low), np.asarray(high)
    missed = np.maximum(low - actual, 0) + np.maximum(actual - high, 0)
    return high - low + 2 / (1 - level / 100) * missed


def pinball(actual: ArrayLike, forecasts: ArrayLike, quantiles: ArrayLike) -> np.ndarray:
    """Return quantile losses (..., quantile).

    ``actual`` has shape (...), ``forecasts`` (..., quantile).
    """
    error = np.asarray(actual)[..., None] - np.asarray(forecasts)
    quantiles = np.asarray(quantiles)
    return np.maximum(quantiles * error, (quantiles - 1) * error)


def crps(actual: ArrayLike, forecasts: ArrayLike, quantiles: ArrayLike) -> np.ndarray:
    """Return the continuous ranked probability score from quantiles, in the units of the series.

    It is twice the integral of the quantile loss over the probabilities, where each quantile
    represents the probabilities nearest to it. Arguments as for :func:`pinball`.

    Gneiting & Raftery (2007), Journal of the American Statistical Association 102.
    """
    quantiles = np.asarray(quantiles)
    edges = np.concatenate([[0.0], (quantiles[1:] + quantiles[:-1]) / 2, [1.0]])
    # A matrix product would round a row differently for another number of rows.
    losses = np.ascontiguousarray(pinball(actual, forecasts, quantiles) * np.diff(edges))
    return 2 * losses.sum(-1)
