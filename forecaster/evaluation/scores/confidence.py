"""The set of models that no other model is shown to beat."""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from forecaster.evaluation.scores.significance import FEWEST
from forecaster.extras import has, pip_command, require

_LIBRARY, _EXTRA = "arch", "garch"
_DRAWS = 1000
_SEED = 0  # so that the same evaluation has the same p-values


def confidence_set_lacks() -> str | None:
    """Return what to install for the model confidence set; None where it can be computed."""
    if has(_LIBRARY):
        return None
    return f"The model confidence set needs {_LIBRARY}: {pip_command(_EXTRA)}."


def p_values_of_set(losses: pd.DataFrame, overlap: int = 1) -> pd.Series:
    """Return the p-value of each model in the model confidence set; NaN with too few cutoffs.

    The models with a p-value above a level form a set that contains the best model with a
    probability of one minus the level. Models with equal losses get equal p-values. The test uses
    the range statistic on a thousand draws of a stationary bootstrap. The mean length of its blocks
    is the square root of the number of cutoffs, but at least twice ``overlap``.

    - ``losses``: a row per cutoff, in order of time, and a column per model
    - ``overlap``: number of cutoffs whose forecasts overlap

    Hansen, Lunde & Nason (2011), Econometrica 79. Raises UsageError unless ``arch`` is installed.
    """
    require(_LIBRARY, _EXTRA, "the model confidence set")
    from arch.bootstrap import MCS

    known = losses.dropna().to_numpy(float)
    # The difference of two equal columns has no variance to divide by.
    distinct, column = np.unique(known, axis=1, return_inverse=True)
    cutoffs, models = distinct.shape
    if cutoffs < max(FEWEST, 2 * overlap) or models < 2:
        return pd.Series(np.nan, index=losses.columns)
    block = max(math.isqrt(cutoffs), 2 * overlap)
    found = MCS(distinct, 0.05, _DRAWS, block_size=block, seed=_SEED)
    found.compute()
    p_values = np.full(models, np.nan)
    removed: Iterable[Any] = found.pvalues.index  # an array where means are equal
    for which, p_value in zip(removed, found.pvalues["Pvalue"], strict=True):
        p_values[which] = p_value
    return pd.Series(p_values[column.ravel()], index=losses.columns)
