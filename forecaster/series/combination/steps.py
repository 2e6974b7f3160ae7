"""Forecasts by step: what is known at each step of the errors of those made before."""

from typing import TypeAlias

import numpy as np
from jaxtyping import Float
from numpy.lib.stride_tricks import as_strided

from forecaster.classical import linear_filter

Steps: TypeAlias = Float[np.ndarray, "*series step"]
Ahead: TypeAlias = Float[np.ndarray, "*series step horizon"]


def known_errors(forecasts: Ahead, z: Steps) -> Ahead:
    """Return the absolute errors of the forecasts for each step; NaN where there was none."""
    return np.abs(by_target_step(forecasts) - z[..., None])


def by_target_step(forecasts: Ahead) -> Ahead:
    """Return forecasts by the step that they are for, rather than made at; NaN for none."""
    *_, steps, horizon = forecasts.shape
    padded = np.full((*forecasts.shape[:-2], steps + horizon, horizon), np.nan)
    padded[..., horizon:, :] = forecasts
    *others, row, column = padded.strides
    # Row t, column h: the forecast for t made h + 1 steps before.
    return as_strided(padded[..., horizon - 1 :, :], forecasts.shape, (*others, row, column - row))


def decayed(values: Float[np.ndarray, "*series step column"], decay: float) -> np.ndarray:
    """Return the exponentially weighted mean up to each step, with normalised weights.

    NaN count as missing. The filter runs step by step, so that no bit depends on later steps.
    """
    known = np.isfinite(values)
    coefficients = [1 - decay], [1.0, -decay]
    total = linear_filter(*coefficients, np.where(known, values, 0.0), axis=-2)
    weight = linear_filter(*coefficients, known, axis=-2)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(weight > 0, total / weight, np.nan)


def smoothed(z: Steps, decay: float) -> Steps:
    """Return the exponentially weighted mean up to each step."""
    return decayed(z[..., None], decay)[..., 0]


def latest_mean(values: Steps, width: int) -> Steps:
    """Return the mean of the latest values at each step: of ``width``, or of what there is."""
    steps = int(values.shape[-1])
    total = np.cumsum(values, -1, dtype=float)
    before = np.zeros(values.shape)
    before[..., width:] = total[..., : max(steps - width, 0)]
    return (total - before) / np.minimum(np.arange(1, steps + 1), width)


def lagged(z: Steps, season: int, horizon: int, more: int = 0) -> Ahead:
    """Return, for each step ahead, the latest known value that lies whole seasons before it.

    ``more``: further seasons to go back
    """
    out = np.full((*z.shape, horizon), np.nan)
    for column in range(horizon):
        back = (-(-(column + 1) // season) + more) * season - (column + 1)
        out[..., back:, column] = z[..., : max(0, z.shape[-1] - back)]
    return out
