"""What a network sees of changes: their size, and how volatile they are, at several speeds."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from forecaster.series.causal import Rows, decayed_mean, shift, squash

PRICE_FEATURES = 8
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


def price_features(
    channels: Sequence[str],
    values: Float[np.ndarray, "series step channel"],
    change: Rows,
    scale: Rows,
) -> list[Rows]:
    """Features of prices by the session; NaN where there is no such column.

    Always all of them: what one series has must not change another's network. Volatilities from
    the range of a session see more of it than its close: Parkinson (1980) and Garman & Klass
    (1980), Journal of Business 53. They come at several speeds, as the daily, weekly and monthly
    ones of Corsi's heterogeneous autoregression (2009), Journal of Financial Econometrics 7. The
    mean of downward moves is there for leverage. Rogers & Satchell's volatility, mean moves, the
    weekday, the end of the month and days since a jump were tried and did not help.
    """
    nothing = np.full(scale.shape, np.nan)

    def channel(name: str) -> Rows:
        if name not in channels:
            return nothing
        return values[:, :, channels.index(name)]

    before = shift(scale, 1)
    volume = np.log(np.maximum(channel("volume"), 1.0))
    open_, high, low, close = (channel(name) for name in ("open", "high", "low", "close"))
    # Within the day, so that splits and dividends do not show.
    within = np.log(close / open_)
    overnight = change - within
    span = np.log(high / low)
    parkinson = span**2 / (4 * np.log(2))
    garman_klass = np.maximum(0.5 * span**2 - (2 * np.log(2) - 1) * within**2, 0.0)
    downward = np.minimum(squash(change / before), 0.0) ** 2

    def volatility(variance: Rows, decay: float) -> Rows:
        return squash(np.log(np.sqrt(decayed_mean(variance, decay) + 1e-8) / scale))

    return [
        np.log(span / before + 0.1),
        squash(within / before),
        squash(volume - shift(decayed_mean(volume, 0.94), 1)),
        squash(overnight / before),
        volatility(parkinson, 0.6),
        volatility(parkinson, 0.94),
        volatility(garman_klass, 0.8),
        decayed_mean(downward, 0.94),
    ]
