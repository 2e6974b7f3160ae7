"""Features of prices beside their changes: from open, high, low, close and volume.

Among them is how active a stock was at the same time of earlier quarters, as companies report by a
calendar. A day of earnings, with its volume and its jump, recurs 13, 26, 39 and 52 weeks later,
mostly on the same weekday. The market knows the day in advance; a network learns it from past
prices.
"""

import functools

import numpy as np
from jaxtyping import Int

from forecaster.series.causal import FEW_CHANGES, Rows, decayed_mean, shift, squash
from forecaster.series.panel.histories import Histories
from forecaster.series.panel.panel import Panel

PRICE_FEATURES = 9
"""Features of :func:`price_features` one row ahead; one more where the horizon is longer."""
WEEKS = (13, 26, 39, 52)
_FARTHEST = 20  # rows ahead, at most


def usual_volatility(panel: Panel) -> float | None:
    """Return the median volatility of the series of a panel, from one row to the next.

    None where no series has changes enough.
    """
    found = [
        float(np.sqrt(np.square(np.diff(np.log(values))).mean()))
        for values, _ in panel.rows()
        if len(values) > FEW_CHANGES
    ]
    return float(np.median(found)) if found and np.median(found) > 0 else None


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


def active_days(
    activity: Rows, times: np.ndarray, positions: Int[np.ndarray, "series step"], horizon: int
) -> list[Rows]:
    """Return the activity on the anniversaries of the rows ahead, averaged over :data:`WEEKS`.

    - ``activity``: how much happened at each step, such as the surprise in its volume; NaN where
      unknown
    - ``times``: the time axis; whole numbers have no anniversaries
    - ``positions``: positions of the steps on the time axis; -1 in the padding
    - ``horizon``: the number of rows ahead

    The first feature is the activity of the next row, averaged with its neighbours at half the
    weight. Where the horizon is longer than one row, the second is the highest activity of the
    later rows. NaN where no anniversary is known.
    """
    features = [np.full(activity.shape, np.nan) for _ in range(min(2, horizon))]
    if times.dtype.kind != "M":
        return features
    alike: dict[bytes, list[int]] = {}  # series that have the same days
    for series, own in enumerate(positions):
        alike.setdefault(own.tobytes(), []).append(series)
    for rows in alike.values():
        begin = int((positions[rows[0]] < 0).sum())
        sources = _anniversaries(times[positions[rows[0], begin:]], min(horizon, _FARTHEST))
        values = np.pad(activity[rows, begin:], ((0, 0), (0, 1)), constant_values=np.nan)
        known = ~np.isnan(values)
        values[~known] = 0.0
        with np.errstate(invalid="ignore"):
            means = (
                sum(values[:, at] for at in weeks) / sum(known[:, at] for at in weeks)
                for weeks in sources
            )
            before, at, after = (next(means) for _ in range(3))
            features[0][rows, begin:] = before / 2 + at + after / 2
            if horizon > 1:
                features[1][rows, begin:] = functools.reduce(np.fmax, means, after)
    return features


def _anniversaries(times: np.ndarray, horizon: int) -> Int[np.ndarray, "offset week step"]:
    """Return the rows beside the latest one that is at least a number of weeks old, at each step.

    They are that row, the next one, and at least one more, up to a horizon. Where there is none, or
    it is later than the step, the number of rows stands for it.
    """
    before = [times - np.timedelta64(weeks, "W") for weeks in WEEKS]
    latest = np.stack([np.searchsorted(times, each, side="right") - 1 for each in before])
    rows = latest + np.arange(max(3, horizon + 1))[:, None, None]
    return np.where((latest >= 0) & (rows <= np.arange(len(times))), rows, len(times))
