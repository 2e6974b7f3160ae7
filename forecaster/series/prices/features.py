"""Features of prices beside their changes: from open, high, low, close and volume."""

import numpy as np

from forecaster.series.causal import Rows, decayed_mean, shift, squash
from forecaster.series.panel.histories import Histories
from forecaster.series.panel.panel import Panel
from forecaster.series.prices.anniversaries import active_days

PRICE_FEATURES = 9
"""Features of :func:`price_features` one row ahead; one more where the horizon is longer."""
_ALONE = 10  # number of changes from which on a series' own volatility stands alone
_USUAL = 10.0  # weight of a panel's volatility before any change is known, in changes


def usual_volatility(panel: Panel) -> float | None:
    """Return the median volatility of the series of a panel, from one row to the next.

    None where no series has changes enough.
    """
    found = [
        float(np.sqrt(np.square(np.diff(np.log(values))).mean()))
        for values, _ in panel.rows()
        if len(values) > _ALONE
    ]
    return float(np.median(found)) if found and np.median(found) > 0 else None


def with_few_changes(scale: Rows, change: Rows, usual: float | None) -> Rows:
    """Return the volatility, shrunk to the panel's usual one at the first changes of a series.

    The shrinkage falls with each known change; from 10 on there is none. ``usual``: None if unknown
    """
    if usual is None:
        return scale
    known = np.cumsum(np.isfinite(change), axis=1)
    weight = _USUAL * np.maximum(1 - known / _ALONE, 0.0)
    own = np.where(known > 0, np.nan_to_num(scale), 0.0) ** 2
    with np.errstate(divide="ignore", invalid="ignore"):
        shrunk = np.sqrt((known * own + weight * usual**2) / (known + weight))
    return np.where(known < _ALONE, shrunk, scale)


def price_features(
    panel: Panel, histories: Histories, change: Rows, scale: Rows, horizon: int
) -> list[Rows]:
    """Return features of each session; NaN where a column is missing.

    The number of features does not depend on the columns, so that no series changes the network of
    another. Volatilities from the range of a session are more exact than those from closes:
    Parkinson (1980) and Garman & Klass (1980), Journal of Business 53. They have several decays,
    like the daily, weekly and monthly volatilities of Corsi's heterogeneous autoregression (2009),
    Journal of Financial Econometrics 7. The mean of downward moves stands for leverage, the volume
    on the anniversaries of the days ahead for earnings. Tried without gain: Rogers & Satchell's
    volatility, the volatility of years, mean moves, the weekday, the end of the month, and the days
    since a jump.
    """
    before = shift(scale, 1)
    volume = np.log(np.maximum(histories.channel("volume"), 1.0))
    surprise = squash(volume - shift(decayed_mean(volume, 0.94), 1))
    active = active_days(np.clip(surprise, -2, 2), panel.times, histories.positions, horizon)
    open_, high, low, close = map(histories.channel, ("open", "high", "low", "close"))
    # Within a day, splits and dividends have no effect.
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
