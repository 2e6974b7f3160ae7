"""What a network sees of changes: their size, and how volatile they are, at several speeds."""

import numpy as np

from forecaster.series.causal import Rows, decayed_mean, shift, squash

_DECAYS = (0.80, 0.94, 0.985)  # volatility of about a week, a month and a quarter


def change_features(change: Rows, floor: Rows | float) -> tuple[list[Rows], Rows]:
    """Features of changes, and the volatility that future ones are counted in.

    Change over volatility, the logarithm of its size, and of the volatilities of a week over that
    of a month, and of a month over that of a quarter. ``floor``: added to each variance.
    """
    variances = [decayed_mean(change**2, decay) for decay in _DECAYS]
    weekly, monthly, quarterly = (np.sqrt(v + floor) for v in variances)
    scale = np.sqrt((monthly**2 + quarterly**2) / 2)
    features = [
        squash(change / shift(scale, 1)),
        np.log(np.abs(change) / shift(scale, 1) + 0.1),
        np.log(weekly / monthly),
        np.log(monthly / quarterly),
    ]
    return features, scale
