"""Bounds of bands as normal scores, for tests of how they are calibrated."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from forecaster.forecasting.bands import (
    KNOTS,
    Calibrated,
    normal_scores_of,
    spread_at_origins,
)


def calibrated(
    scores: np.ndarray,
    count: int = 1,
    *,
    prior: np.ndarray | None = None,
    tails: np.ndarray | None = None,
    tailed: np.ndarray | None = None,
    reach: np.ndarray | None = None,
) -> Calibrated:
    """Return what scores say of the latest origins; by default without tails or a limit."""
    series, _, horizon = scores.shape
    spread = spread_at_origins(scores, np.ones(horizon) if prior is None else prior)[:, -count:]
    far = np.full((2, series, count, horizon), np.nan) if reach is None else reach
    none = np.tile(KNOTS, (horizon, 1))
    used = np.full(series, tails is not None) if tailed is None else tailed
    return Calibrated(spread, far, none if tails is None else tails, used)


def band_scores(
    scores: np.ndarray, levels: Sequence[float], count: int = 1, **options: Any
) -> np.ndarray:
    """Return the bounds (level, side, series, origin, horizon) at the latest origins."""
    bounds = [normal_scores_of([(1 - level / 100) / 2, (1 + level / 100) / 2]) for level in levels]
    return calibrated(scores, count, **options).scores(np.array(bounds)[..., None, None, None])
