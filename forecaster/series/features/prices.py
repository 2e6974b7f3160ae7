"""What a network sees of prices beside their changes: features from sessions and volumes."""

import numpy as np

from forecaster.series.causal import Rows, decayed_mean, shift, squash
from forecaster.series.features.anniversaries import active_days
from forecaster.series.panel.panel import Histories, Panel


def price_feature_count(horizon: int) -> int:
    """How many features :func:`price_features` gives."""
    return 9 + (horizon > 1)


def price_features(
    panel: Panel, histories: Histories, change: Rows, scale: Rows, horizon: int
) -> list[Rows]:
    """Features of prices by the session; NaN where there is no such column.

    Always all of them: what one series has must not change another's network. Volatilities from
    the range of a session see more of it than its close: Parkinson (1980) and Garman & Klass
    (1980), Journal of Business 53. They come at several speeds, as the daily, weekly and monthly
    ones of Corsi's heterogeneous autoregression (2009), Journal of Financial Econometrics 7. The
    mean of downward moves is there for leverage, the volumes at the anniversaries of the days ahead
    for earnings. Rogers & Satchell's volatility, the volatility of years, mean moves, the weekday,
    the end of the month and days since a jump were tried and did not help.
    """
    nothing = np.full(scale.shape, np.nan)

    def channel(name: str) -> Rows:
        if name not in panel.channels:
            return nothing
        return histories.values[:, :, panel.channels.index(name)]

    before = shift(scale, 1)
    volume = np.log(np.maximum(channel("volume"), 1.0))
    surprise = squash(volume - shift(decayed_mean(volume, 0.94), 1))
    active = active_days(np.clip(surprise, -2, 2), panel.times, histories.positions, horizon)
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
        surprise,
        squash(overnight / before),
        volatility(parkinson, 0.6),
        volatility(parkinson, 0.94),
        volatility(garman_klass, 0.8),
        decayed_mean(downward, 0.94),
        *(2 * each for each in active),
    ]
