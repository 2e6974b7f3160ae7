"""Features of covariates: numbers that are known in advance, and constant properties of series."""

import numpy as np
from jaxtyping import Float, Int

from forecaster.series.calendar.ahead import times_after_rows
from forecaster.series.panel.covariates import Scaling
from forecaster.series.panel.panel import Panel


def covariate_features(
    known: Scaling, panel: Panel, positions: Int[np.ndarray, "series step"], horizon: int
) -> Float[np.ndarray, "series step feature"]:
    """Return the features of covariates at every step of each series; 0 at padding.

    - ``known``: how a fit scales covariates
    - ``positions``: positions of steps on the panel's time axis; -1: padding

    Raises DataError unless the panel has the covariates of the fit.
    """
    known.check(panel.future, panel.static, panel.ids)
    made = np.zeros((*positions.shape, known.count(horizon)), np.float32)
    of_values = panel.target == "y"
    of_future = len(known.future) * (horizon + 1)
    for row, name in enumerate(panel.ids):
        rows = positions[row][positions[row] >= 0]
        if panel.future is not None and known.future:
            own = panel.times[rows]
            ahead = times_after_rows(own, horizon, panel.frequency if of_values else None)
            features = known.future_features(panel.future, name, own, ahead)
            made[row, -len(rows) :, :of_future] = features
        if panel.static is not None:
            made[row, -len(rows) :, of_future:] = known.static_features(panel.static, name)
    return made
