"""One-step errors of exponential smoothing, and what regressions on them have in common.

The errors of a smoothing with a season are nearly independent, so that least squares on them is
generalised least squares on the values (Hyndman, Koehler, Ord & Snyder 2008, Forecasting with
Exponential Smoothing, chapter 9).
"""

import functools
from typing import Annotated, TypeAlias

import numpy as np
from jaxtyping import Float
from msgspec import Meta

from forecaster.classical import linear_filter

Row: TypeAlias = Float[np.ndarray, " step"]
Columns: TypeAlias = Float[np.ndarray, "step column"]
Matrix: TypeAlias = Float[np.ndarray, "column column"]

GRID = [(level, season) for level in (0.02, 0.1, 0.3, 0.6, 0.95) for season in (0.02, 0.1)]
"""Smoothing of level and season; up to a random walk, whose errors otherwise resemble seasons."""
Smoothing: TypeAlias = Annotated[int, Meta(ge=0, lt=len(GRID))]
"""The number of an exponential smoothing in the grid."""
_STICKY = 5.0  # largest root mean square of errors, in their unit


def filtered(columns: Columns, number: int, season: int) -> Columns:
    """Return the one-step errors of an exponential smoothing that starts at zero.

    - ``number``: the number of its smoothing parameters in the grid
    - ``season``: steps in a season; 1 for none
    """
    of_level, of_season = GRID[number]
    if season == 1:
        return linear_filter([1.0, -1.0], [1.0, of_level - 1], columns, axis=0)
    above, below = np.zeros(season + 2), np.zeros(season + 2)
    above[[0, 1, season, season + 1]] = 1, -1, -1, 1
    below[[0, 1, season, season + 1]] = 1, of_level - 1, of_season - 1, 1 - of_level - of_season
    return linear_filter(above, below, columns, axis=0)


def beside_start(columns: Columns, number: int, season: int) -> Columns:
    """Return filtered columns minus what a change of the initial state would explain."""
    free = _start(len(columns), number, season)
    return columns - free @ (free.T @ columns)


@functools.lru_cache(maxsize=16)
def _start(length: int, number: int, season: int) -> Columns:
    """Return how errors depend on the initial state, as orthonormal columns."""
    steps = np.arange(length)[:, None] % season == np.arange(season)
    return np.linalg.qr(filtered(steps.astype(float), number, season))[0]


def solved(matrix: Matrix, side: np.ndarray) -> np.ndarray:
    """Solve ``matrix @ x = side`` for x."""
    return np.asarray(np.linalg.solve(matrix, side), float)


def posterior(
    matrix: Matrix,
    side: Float[np.ndarray, " column"],
    mean: Float[np.ndarray, " column"],
    spread: Float[np.ndarray, " column"],
) -> Float[np.ndarray, " column"]:
    """Return the coefficients of one series, shrunk to the mean of the panel.

    - ``matrix``, ``side``: the normal equations of the series, in units of its errors
    - ``mean``, ``spread``: mean and spread of the coefficients over the panel
    """
    # With S the spread: mean + S (S A S + 1)^-1 S (c - A mean), also where S is 0.
    inner = spread[:, None] * matrix * spread + np.eye(len(mean))
    return mean + spread * solved(inner, spread * (side - matrix @ mean))


def unit_of(errors: Row) -> float:
    """Return the deviation of errors, also of a series that rarely changes."""
    largest = float(np.abs(errors).max())
    if not largest > 0:
        return 1.0
    scaled = errors / largest  # so that squares do not overflow
    return largest * max(deviation_of(scaled), float(np.sqrt(np.square(scaled).mean())) / _STICKY)


def deviation_of(errors: Row) -> float:
    """Return the standard deviation of errors, without a few extreme ones."""
    return 1.4826 * float(np.median(np.abs(errors)))
