"""Features of the market, declared indices such as SPY, that networks see beside their own series.

An index is one series that the user names, never a mean over the panel: a series that is added or
removed must not change the features of another.
"""

import numpy as np
from jaxtyping import Int

from forecaster.errors import DataError, Kind, Skipped
from forecaster.series.calendar.times import show_time
from forecaster.series.causal import Rows, change_features, shift, squash
from forecaster.series.panel.panel import Panel

MARKET_FEATURES = 5  # of each index
_MOST_BEHIND = 3  # rows that a series may have after the latest of the index


def market_features(
    panel: Panel, positions: Int[np.ndarray, "series step"], scale: Rows
) -> list[Rows]:
    """Return features of each index at the steps of each series; NaN before its first row.

    They are those of :func:`change_features`, and the index's volatility over that of the series,
    from the latest row of the index at or before the time of the step.

    - ``positions``: positions of steps on the panel's time axis; -1: padding
    - ``scale``: the volatility of each series
    """
    made: list[Rows] = []
    times = panel.times
    for values, index_times in _observed(panel).values():
        if not len(values):
            made += [np.full(scale.shape, np.nan)] * MARKET_FEATURES
            continue
        z = np.log(values)[None]
        features, volatility = change_features(z - shift(z, 1), 1e-8)
        latest = np.searchsorted(index_times, times[positions], side="right") - 1
        known = (latest >= 0) & (positions >= 0)
        *own, volatility = (
            np.where(known, row[0, latest], np.nan) for row in (*features, volatility)
        )
        made += [*own, squash(np.log(volatility / scale))]
    return made


def behind_market(panel: Panel) -> dict[str, Skipped]:
    """Return the series with more than a few rows after an index's latest, with the reason."""
    reasons: dict[str, Skipped] = {}
    for name, (_, index_times) in _observed(panel).items():
        for series, times in panel.times_of_rows().items():
            if series in reasons or not len(times):
                continue
            latest = show_time(times[-1])
            if not len(index_times):
                reasons[series] = Skipped(Kind.BEFORE_MARKET, market=name, first=latest)
            elif (times > index_times[-1]).sum() > _MOST_BEHIND:
                end = show_time(index_times[-1])
                reasons[series] = Skipped(Kind.BEHIND_MARKET, market=name, first=latest, last=end)
    return reasons


def check_market(panel: Panel) -> None:
    """Raise DataError for a series of :func:`behind_market`."""
    for name, reason in behind_market(panel).items():
        raise DataError(f"{name}: {reason}")


def _observed(panel: Panel) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return the values above zero of each index, and their times."""
    if panel.market is None:
        return {}
    values = panel.market.channel(panel.target)
    seen = panel.market.mask & (values > 0)
    return {
        name: (own[there], panel.market.times[there])
        for name, own, there in zip(panel.market.ids, values, seen, strict=True)
    }
