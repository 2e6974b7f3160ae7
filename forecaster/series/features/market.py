"""A declared index, such as SPY: what networks see of the market beside their own series.

The index is one series that is named, never a mean over the panel's, so that adding a series to a
panel or taking one away changes nothing that another's network sees.
"""

import numpy as np
from jaxtyping import Int, Shaped

from forecaster.errors import DataError
from forecaster.series.calendar.times import show_time
from forecaster.series.causal import Rows, change_features, shift, squash
from forecaster.series.panel.panel import Panel
from forecaster.skipped import Kind, Skipped

MARKET_FEATURES = 5
_MOST_BEHIND = 3  # rows of a series after the index's latest


def market_features(
    market: Panel,
    target: str,
    times: Shaped[np.ndarray, " time"],
    positions: Int[np.ndarray, "series step"],
    scale: Rows,
) -> list[Rows]:
    """Features of the index at the steps of series; NaN before its first row.

    Those of :func:`change_features`, and its volatility over the series' own. Each is that of its
    latest row at the time of the step or before.

    - ``market``: the index, a panel of one series
    - ``target``: the channel that changes are of
    - ``times``, ``positions``: the series' time axis, and where the steps stand on it; -1: padding
    - ``scale``: the series' volatility
    """
    values, index_times = _observed(market, target)
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
    """The series that go on for more than a few rows after the market's latest, in words."""
    if panel.market is None:
        return {}
    name = panel.market.ids[0]
    _, index_times = _observed(panel.market, panel.target)
    reasons: dict[str, Skipped] = {}
    for series, seen in zip(panel.ids, panel.mask, strict=True):
        times = panel.times[seen]
        if not len(times):
            continue
        latest = show_time(times[-1])
        if not len(index_times):
            reasons[series] = Skipped(Kind.BEFORE_MARKET, market=name, first=latest)
        elif (times > index_times[-1]).sum() > _MOST_BEHIND:
            end = show_time(index_times[-1])
            reasons[series] = Skipped(Kind.BEHIND_MARKET, market=name, first=latest, last=end)
    return reasons


def check_market(panel: Panel) -> None:
    """Raise DataError where a series goes on after the market's end."""
    for name, reason in behind_market(panel).items():
        raise DataError(f"{name}: {reason}")


def _observed(market: Panel, target: str) -> tuple[np.ndarray, np.ndarray]:
    """The rows that a logarithm can be taken of, and their times."""
    values = market.channel(target)[0]
    seen = market.mask[0] & (values > 0)
    return values[seen], market.times[seen]
