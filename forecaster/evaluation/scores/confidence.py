"""The set of models that no other model is shown to beat."""

import numpy as np
import pandas as pd

from forecaster.evaluation.scores.significance import ROUNDING, degrees_of_freedom, slowest_cosines

_DRAWS = 5000
_SEED = 0  # so that the same evaluation has the same p-values


def p_values_of_set(losses: pd.DataFrame, lags: int = 0) -> pd.Series:
    """Return the p-value of each model in the model confidence set; NaN with too few cutoffs.

    The models with a p-value above a level form a set that contains every model that is as good as
    the best one, with a probability of one minus the level. Models with equal losses get equal
    p-values.

    Models leave the set one by one: of the two whose losses differ most by the test of Diebold and
    Mariano (:func:`.significance.diebold_mariano`), the one with the larger loss. How large this
    difference is by chance, among all pairs that are left, is found by rotating the coefficients of
    the test at random, which keeps the correlations between models.

    - ``losses``: a row per cutoff, in order of time, and a column per model
    - ``lags``: number of further cutoffs whose forecasts overlap with those of a cutoff

    Hansen, Lunde & Nason (2011), Econometrica 79; Langsrud (2005), Statistics and Computing 15.
    """
    table = losses.dropna().to_numpy(float)
    first, column = np.unique(_first_equal(table), return_inverse=True)
    distinct = table[:, first]
    cutoffs, models = distinct.shape
    if models < 2 or not degrees_of_freedom(cutoffs, lags):
        return pd.Series(np.nan, index=losses.columns)
    one, other = np.triu_indices(models, 1)
    pairs = slowest_cosines(distinct[:, one] - distinct[:, other], lags)
    pairs /= np.linalg.norm(pairs, axis=0)
    axes = np.random.default_rng(_SEED).normal(size=(_DRAWS, len(pairs)))
    by_chance = np.abs(axes @ pairs) / np.linalg.norm(axes, axis=1, keepdims=True)
    found, left, p_values, p_value = np.abs(pairs[0]), np.ones(models, bool), np.ones(models), 0.0
    for _ in range(models - 1):
        among = np.flatnonzero(left[one] & left[other])
        pair = among[found[among].argmax()]
        worse = (one if pairs[0, pair] > 0 else other)[pair]
        p_value = max(p_value, float((by_chance[:, among].max(1) >= found[pair]).mean()))
        p_values[worse], left[worse] = p_value, False
    return pd.Series(p_values[column.ravel()], index=losses.columns)


def _first_equal(table: np.ndarray) -> np.ndarray:
    """Return for each column the number of the first that is equal to it, but for rounding.

    The difference of such columns has no variance to divide by.
    """
    size = np.abs(table).max(axis=0, initial=0.0)
    with np.errstate(invalid="ignore"):  # infinite losses
        apart = [np.abs(table - column[:, None]).max(axis=0, initial=0.0) for column in table.T]
    equal = np.array(apart) <= ROUNDING * np.minimum(size, size[:, None])
    return (equal | np.eye(len(size), dtype=bool)).argmax(axis=0)
