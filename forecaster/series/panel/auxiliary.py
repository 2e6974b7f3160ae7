"""Other series to learn from, and weights that were learned from other series."""

from typing import NamedTuple

import numpy as np

from forecaster.errors import UsageError
from forecaster.series.calendar.frequency import Frequency
from forecaster.series.calendar.wording import in_words


class CommonWeights(NamedTuple):
    """Weights of a common model of volatility that an earlier fit has learned.

    - ``centre``, ``spread`` (feature,): mean and deviation of each feature in its training
    - ``weights`` (step ahead, 1 + feature): the constant, and the weight of each feature, of the
      logarithm of the scale relative to the monthly volatility
    - ``until``: the latest time that was seen; no fit of earlier days may use them
    - ``frequency``: the alias of the frequency of the series
    - ``market``: the declared indices, whose features come last
    """

    centre: tuple[float, ...]
    spread: tuple[float, ...]
    weights: tuple[tuple[float, ...], ...]
    until: np.generic
    frequency: str
    market: tuple[str, ...] = ()


def check_similar(targets: tuple[str, str], frequencies: tuple[Frequency, Frequency]) -> None:
    """Raise UsageError for other series that a panel's volatility cannot be learned from.

    ``targets``, ``frequencies``: of the panel, and of the other series
    """
    for name, target in zip(("these series", "the other series"), targets, strict=True):
        if target == "y":
            raise UsageError(
                f"learn-from: {name} are not prices; only the volatility of prices is learned from "
                "other series"
            )
    wanted, got = frequencies
    if wanted.alias != got.alias:
        raise UsageError(
            f"learn-from: expected the frequency of these series, {in_words(wanted)}; got "
            f"{in_words(got)}"
        )
