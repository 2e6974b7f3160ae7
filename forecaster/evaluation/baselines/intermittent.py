"""Croston's method, SBA, TSB and ADIDA, by :mod:`forecaster.classical.intermittent`.

They forecast the mean demand. Its variance at a horizon is the mean square of the errors known at
the origin. Series of whole numbers get the quantiles of a negative binomial distribution with this
mean and variance. Other series get those of a normal distribution, none of them below zero.

Arguments and results are those of :mod:`forecaster.evaluation.baselines.simple`. All raise
ValueError for a series with values below zero, which are no demand.
"""

from functools import partial

import numpy as np
from scipy.special import ndtri

from forecaster.classical import INTERMITTENT
from forecaster.evaluation.baselines.statistical import deviations
from forecaster.forecasting import smallest_count


def _forecast(
    name: str,
    y: np.ndarray,
    origins: np.ndarray,
    horizon: int,
    quantiles: np.ndarray,
    season: int,
) -> np.ndarray:
    known = y[: origins[0] + 1]
    if (known < 0).any():
        raise ValueError("its values below zero are no demand")
    demand = np.maximum(y, 0.0)
    made = np.repeat(INTERMITTENT[name](demand)[:, None], horizon, axis=1)
    mean, deviation = (of[origins][..., None] for of in (made, deviations(y, made)))
    if (known != np.rint(known)).any():
        return np.maximum(mean + deviation * ndtri(quantiles), 0.0)
    out = smallest_count(quantiles, mean, np.nan_to_num(deviation) ** 2)
    return np.where(np.isfinite(deviation), out, np.nan)


croston = partial(_forecast, "croston")
"""The mean demand divided by the mean interval between demands; Croston (1972)."""
sba = partial(_forecast, "sba")
"""95 % of Croston's forecast, which is too high; Syntetos & Boylan (2005)."""
tsb = partial(_forecast, "tsb")
"""The mean demand times its probability; Teunter, Syntetos & Babai (2011)."""
adida = partial(_forecast, "adida")
"""Sums over the mean interval, smoothed and spread evenly; Nikolopoulos et al. (2011)."""
