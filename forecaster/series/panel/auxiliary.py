"""Weights of a model that all series share, learned from other series."""

from typing import NamedTuple

import numpy as np


class CommonWeights(NamedTuple):
    """Weights of a common model of volatility that an earlier fit has learned.

    - ``centre``, ``spread``: mean and deviation of each feature in its training
    - ``weights``: for each step ahead the constant, and the weight of each feature
    - ``until``: the latest time that was seen; no fit of earlier days may use them
    - ``frequency``: the alias of the frequency of the series
    """

    centre: tuple[float, ...]
    spread: tuple[float, ...]
    weights: tuple[tuple[float, ...], ...]
    until: np.generic
    frequency: str
