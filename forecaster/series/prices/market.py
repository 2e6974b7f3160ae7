"""Features of the market, declared indices such as SPY, that networks see beside their own series.

An index is one series that the user names, never a mean over the panel: a series that is added or
removed must not change the features of another.
"""

import numpy as np
from jaxtyping import Float, Int, Shaped

from forecaster.errors import DataError, Kind, Skipped
from forecaster.series.calendar.times import show_time
from forecaster.series.causal import Rows, change_features, shift, squash
from forecaster.series.panel.panel import Panel

MARKET_FEATURES = 5  # of each index
_MOST_BEHIND = 3  # rows that a series may have after the latest of the index


def market_features(
    market: Panel,
    target: str,
    times: Shaped[np.ndarray, " time"],
    positions: Int[np.ndarray, "series step"],
    scale: Rows,
) -> list[Rows]:
    """Return features of each index at the steps of each series; NaN before its first row.

    They are those of :func:`change_features`, and the index's volatility over that of the series,
    from the latest row of the index at or before the time of the step.

    - ``market``: the indices
    - ``target``: their channel
    - ``times``, ``positions``: the series' time axis, and the positions of steps on it; -1: padding
    - ``scale``: the volatility of each series
    """
    of_each = (
        _features(*_observed(market, row, target), times, positions, scale)
        for row in range(len(market.ids))
    )
    return [feature for features in of_each for feature in features]


def _features(
    values: Float[np.ndarray, " row"],
    index_times: Shaped[np.ndarray, " row"],
    times: Shaped[np.ndarray, " time"],
    positions: Int[np.ndarray, "series step"],
    scale: Rows,
) -> list[Rows]:
    """Return the features of one index, of which ``values`` and ``index_times`` are the rows."""
    if not len(values):
        return [np.full(scale.shape, np.nan)] * MARKET_FEATURES
    z = np.log(values)[None]
    features, volatility = change_features(z - shift(z, 1), 1e-8)
    latest = np.searchsorted(index_times, times[positions], side="right") - 1
    known = (latest >= 0) & (positions >= 0)

    def at_steps(row: Rows) -> Rows:
        return np.where(known, row[0, latest], np.nan)

    relative = squash(np.log(at_steps(volatility) / scale))
    return [*(at_steps(feature) for feature in features), relative]


def behind_market(panel: Panel) -> dict[str, Skipped]:
    """Return the series with more than a few rows after an index's latest, with the reason."""
    reasons: dict[str, Skipped] = {}
    for row, name in enumerate(() if panel.market is None else panel.market.ids):
        assert panel.market is not None
        _, index_times = _observed(panel.market, row, panel.target)
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


def _observed(market: Panel, row: int, target: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the values above zero of one index, and their times."""
    values = market.channel(target)[row]
    seen = market.mask[row] & (values > 0)
    return values[seen], market.times[seen]
