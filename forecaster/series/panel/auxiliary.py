"""Weights of a model that all series share, learned from other series."""

from typing import NamedTuple

import numpy as np


class CommonWeights(NamedTuple):
    """Weights of a common model of volatility that an earlier fit has learned.

    - ``centre``, ``spread``: mean and deviation of each feature in its training
    - ``weights``: for each step ahead the constant, and the weight of each feature
    - ``until``: the latest time that the fit saw; no model of earlier days may learn from it
    """

    centre: tuple[float, ...]
    spread: tuple[float, ...]
    weights: tuple[tuple[float, ...], ...]
    until: np.generic
