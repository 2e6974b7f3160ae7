"""Bounds of bands as normal scores, for tests of how they are calibrated."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from forecaster.forecasting.bands.calibration import calibrated, normal_scores_of


def band_scores(
    scores: np.ndarray, levels: Sequence[float], count: int = 1, **options: Any
) -> np.ndarray:
    """Return the bounds (level, side, series, origin, horizon) at the latest origins."""
    usual = normal_scores_of(levels)[..., None, None]
    each = calibrated(scores, count, **options)
    return np.stack([made.scores(usual) for made in each], axis=3)
