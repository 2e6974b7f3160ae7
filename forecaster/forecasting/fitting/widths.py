"""Learn the width and the tails of all bands from a sample of the series of a fit."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from forecaster.config import Config
from forecaster.forecasting.bands.calibration import common_spread, common_tails
from forecaster.forecasting.bands.widths import Widths


class Scores(NamedTuple):
    """Normal scores of outcomes under forecasts by networks, and under forecasts without one.

    ``counts``: those of series of counts, which are forecast without networks; the others are not
    counts
    """

    networks: Float[np.ndarray, "series origin horizon"]
    without: Float[np.ndarray, "series origin horizon"]
    counts: Float[np.ndarray, "series origin horizon"]


def widths_of(config: Config, scores: Sequence[Scores], *, tune: bool = False) -> Widths:
    """Return the width and the tails that all bands start from.

    - ``scores``: by part, the scores of its series that are in the sample, in the order of the fit
    - ``tune``: whether settings were searched, by networks that share nothing
    """
    horizon = config.horizon
    if config.start != "pooled" or tune:
        return Widths.unit(horizon)
    networks, others, counts = (_joined(kind, horizon) for kind in zip(*scores, strict=True))
    without = common_spread(_joined([others, counts], horizon))
    return Widths(common_spread(networks), without, common_tails(others, without))


def _joined(
    scores: Sequence[np.ndarray], horizon: int
) -> Float[np.ndarray, "series origin horizon"]:
    """Join the scores of all parts; a part of short series may have fewer origins."""
    most = max(some.shape[1] for some in scores)
    whole = [
        np.pad(some, ((0, 0), (most - some.shape[1], 0), (0, 0)), constant_values=np.nan)
        for some in scores
        if len(some)
    ]
    return np.concatenate(whole) if whole else np.zeros((0, most, horizon))
