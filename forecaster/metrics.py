"""Errors and scores, elementwise, in numpy. The mean is taken by the caller."""

import numpy as np


def absolute_error(actual, forecast) -> np.ndarray:
    """|actual - forecast|, in the units of the series."""
    return np.abs(np.asarray(actual) - np.asarray(forecast))


def squared_error(actual, forecast) -> np.ndarray:
    """(actual - forecast)^2."""
    return (np.asarray(actual) - np.asarray(forecast)) ** 2


def covered(actual, low, high) -> np.ndarray:
    """1.0 where low <= actual <= high, else 0.0."""
    actual = np.asarray(actual)
    return ((actual >= np.asarray(low)) & (actual <= np.asarray(high))).astype(float)
