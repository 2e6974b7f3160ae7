"""The simple transforms: the forecast that networks start from, and its scale, by horizon."""

import numpy as np

from forecaster.series.causal import Rows, decayed_mean, shift
from forecaster.series.combination.steps import Ahead


def by_horizon(name: str, season: int, z: Rows, scale: Rows, horizon: int) -> tuple[Ahead, Ahead]:
    """Return base and scale of the forecasts made at every step, (series, step, horizon).

    - ``name, season``: name and season of the transform, any but the combined one
    - ``z``: the values as networks see them
    - ``scale``: the scale of a change from one step, or season, to the next
    """
    ahead = np.arange(1, horizon + 1)
    if name == "seasonal":
        # The base is the latest known value one or more whole seasons before the target.
        back = np.ceil(ahead / season).astype(int) * season - ahead
        base = np.stack([shift(z, b) for b in back], axis=-1)
        return base, np.repeat(scale[:, :, None], horizon, axis=-1)
    if name == "identity":
        base = np.repeat(decayed_mean(z, 0.99)[:, :, None], horizon, axis=-1)
        return base, np.repeat(scale[:, :, None], horizon, axis=-1)
    return np.repeat(z[:, :, None], horizon, axis=-1), scale[:, :, None] * np.sqrt(ahead)
