"""Errors and scores, elementwise; the caller takes the mean."""

import numpy as np
from numpy.typing import ArrayLike


def absolute_error(actual: ArrayLike, forecast: ArrayLike) -> np.ndarray:
    """|actual - forecast|, in the units of the series."""
    return np.abs(np.asarray(actual) - np.asarray(forecast))


def squared_error(actual: ArrayLike, forecast: ArrayLike) -> np.ndarray:
    """(actual - forecast)^2."""
    return (np.asarray(actual) - np.asarray(forecast)) ** 2


def symmetric_error(actual: ArrayLike, forecast: ArrayLike) -> np.ndarray:
    """200 |actual - forecast| / (|actual| + |forecast|), the terms of sMAPE as in M4, percent."""
    actual, forecast = np.asarray(actual), np.asarray(forecast)
    size = np.abs(actual) + np.abs(forecast)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(size > 0, 200 * np.abs(actual - forecast) / size, 0.0 * size)


def covered(actual: ArrayLike, low: ArrayLike, high: ArrayLike) -> np.ndarray:
    """1.0 where low <= actual <= high, else 0.0; NaN where there is no band."""
    actual, low, high = np.asarray(actual), np.asarray(low), np.asarray(high)
    inside = ((actual >= low) & (actual <= high)).astype(float)
    return np.where(np.isfinite(low + high), inside, np.nan)


def winkler(actual: ArrayLike, low: ArrayLike, high: ArrayLike, level: float) -> np.ndarray:
    """Winkler score: the width of a band, and 2 / alpha times what it was missed by.

    ``level`` in percent; alpha is 1 less the level.

    Winkler (1972), Journal of the American Statistical Association 67.
    """
    actual, low, high = np.asarray(actual), np.asarray(low), np.asarray(high)
    missed = np.maximum(low - actual, 0) + np.maximum(actual - high, 0)
    return high - low + 2 / (1 - level / 100) * missed


def pinball(actual: ArrayLike, forecasts: ArrayLike, quantiles: ArrayLike) -> np.ndarray:
    """Quantile losses, (..., quantile), for ``actual`` (...) and ``forecasts`` (..., quantile)."""
    error = np.asarray(actual)[..., None] - np.asarray(forecasts)
    quantiles = np.asarray(quantiles)
    return np.maximum(quantiles * error, (quantiles - 1) * error)


def crps(actual: ArrayLike, forecasts: ArrayLike, quantiles: ArrayLike) -> np.ndarray:
    """Continuous ranked probability score from quantiles, in the units of the series.

    Twice the integral of the quantile loss over the probabilities, each quantile standing for the
    probabilities nearest to it; arguments as of :func:`pinball`.

    Gneiting & Raftery (2007), Journal of the American Statistical Association 102.
    """
    quantiles = np.asarray(quantiles)
    edges = np.concatenate([[0.0], (quantiles[1:] + quantiles[:-1]) / 2, [1.0]])
    # A product of matrices would round each row by how many others there are.
    losses = np.ascontiguousarray(pinball(actual, forecasts, quantiles) * np.diff(edges))
    return 2 * losses.sum(-1)
