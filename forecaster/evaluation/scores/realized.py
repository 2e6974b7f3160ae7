"""What prices did between a cutoff and an outcome: log returns, and the variance of ranges."""

from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float, Shaped

from forecaster.evaluation.origins.rolling_origin import NAIVE
from forecaster.series import Panel, Time

COLUMNS = ("open", "high", "low", "close")
"""The columns that a session's variance is computed from."""

Row = Float[np.ndarray, " step"]


class Realized(NamedTuple):
    """What prices did from the cutoff of each forecast to its time, (row,).

    - ``latest``: the price at the cutoff
    - ``change``: the log return; NaN where the outcome is not known, minus infinity where it, or
      the price at the cutoff, is zero or below
    - ``variance``: the sum of the sessions' variances by their ranges, in units of squared returns;
      NaN where it is not known, None without the columns for it
    """

    latest: np.ndarray
    change: np.ndarray
    variance: np.ndarray | None

    @staticmethod
    def of(
        frame: pd.DataFrame, panel: Panel, first_cutoff: Time | Shaped[np.ndarray, ""]
    ) -> "Realized":
        """Return what the prices of a panel did.

        - ``frame``: forecasts with the column ``Naive``, the price at the cutoff
        - ``first_cutoff``: the time up to which the variances of sessions are compared with squared
          returns
        """
        latest, y = frame[NAIVE].to_numpy(float), frame["y"].to_numpy(float)
        with np.errstate(divide="ignore", invalid="ignore"):
            change = np.log(y / latest)
        change = np.where((y <= 0) | (latest <= 0), -np.inf, change)  # not to be left out of a mean
        ranges = set(COLUMNS) <= set(panel.channels)
        variance = _summed(frame, panel, first_cutoff) if ranges else None
        return Realized(latest, change, variance)


def session_variance(y: Row, bars: Float[np.ndarray, "4 step"]) -> Row:
    """Return the variance of each session: by its range, plus the squared move of the night before.

    The variance by the range is the estimator of Garman & Klass (1980), Journal of Business 53.
    Where a column is missing, or makes no sense, the result is the squared change of ``y``.

    - ``y``: the series that is forecast, above zero; its changes allow for splits and dividends
    - ``bars``: the columns of :data:`COLUMNS`
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        change = np.diff(np.log(y), prepend=np.log(y[:1]))
        open_, high, low, close = bars
        within, span = np.log(close / open_), np.log(high / low)
        inside = np.maximum(0.5 * span**2 - (2 * np.log(2) - 1) * within**2, 0.0)
        variance = inside + (change - within) ** 2
    return np.where(np.isfinite(variance), variance, change**2)


def _summed(
    frame: pd.DataFrame, panel: Panel, first_cutoff: Time | Shaped[np.ndarray, ""]
) -> np.ndarray:
    """Return the summed variance of the sessions after each cutoff up to ``ds``, (row,)."""
    early = panel.times <= np.asarray(first_cutoff, panel.times.dtype)
    learned = panel.masked(first_cutoff, forecasting=True).mask & early
    begin, end = (frame[name].to_numpy(panel.times.dtype) for name in ("cutoff", "ds"))
    out = np.full(len(frame), np.nan)
    for name, rows in frame.groupby("unique_id", sort=False).indices.items():
        if name in panel.ids:
            running = _running_variance(panel, panel.ids.index(str(name)), learned)
            sums = pd.Series(running, panel.times)  # NaN at a time that is none of the panel's
            out[rows] = sums.reindex(end[rows]).to_numpy() - sums.reindex(begin[rows]).to_numpy()
    return np.where(out > 0, out, np.nan)


def _running_variance(panel: Panel, row: int, learned: np.ndarray) -> np.ndarray:
    """Return the sum of a series' variances up to each time, in units of its squared changes.

    The variance of ranges is not the variance of returns: ranges miss what happens between ticks,
    and prices move in steps. So it is multiplied by the ratio of both in the rows that are
    ``learned`` from (series, time), as by Hansen & Lunde (2005), Journal of Financial Econometrics
    3.
    """
    observed = panel.mask[row]
    values = panel.values[row, observed]
    y = values[:, panel.channels.index(panel.target)]
    out = np.full(len(panel.times), np.nan)
    if not (y > 0).all():
        return out
    bars = values[:, [panel.channels.index(name) for name in COLUMNS]].T
    variance = session_variance(y, bars)
    squares = np.diff(np.log(y), prepend=np.log(y[:1])) ** 2
    before = learned[row, observed]
    total = float(variance[before].sum())
    if total > 0:
        out[observed] = np.cumsum(variance) * float(squares[before].sum()) / total
    return out
