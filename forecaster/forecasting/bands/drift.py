"""The drift of prices: how far from the latest price the middle of a distribution lies.

Networks that are trained on ten years of companies that survived learn that prices rise, and by how
much they rose just then. That is a bet on more of the same. So the mean of what a series' networks
forecast is replaced by a premium that all prices share (``Config.premium``), moved towards the
series' own mean change as far as its standard error allows (James & Stein 1961, Fourth Berkeley
Symposium 1). The premium is the growth of the mean, so that a basket grows by it; the median of a
price grows by half the variance of its changes less. A quarter of what networks forecast beyond
their own mean is kept, within three standard errors of the mean change. The mean change of all
series together has no influence: it is a single draw of history, in which companies that failed are
missing.

The figures that this was chosen by are in ``research/010-drift-of-prices.md``.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int, Shaped

from forecaster.forecasting.config import Config
from forecaster.series import Panel

KEPT = 0.25
"""The share that is kept of what a network forecasts beyond its mean."""
_OWN = 0.025  # standard deviation of yearly drifts around the premium
_FEWEST = 60  # changes; with fewer the expected change is the premium
_ERRORS = 3  # largest distance of a forecast from the mean change, in its standard errors
_YEAR = np.timedelta64(31_557_600, "s")  # 365.25 days


class Drift(NamedTuple):
    """The drift of some series.

    - ``per_row``: from :func:`change_of`
    - ``usual``: the mean location that a series' networks forecast, standardised; NaN for series
      that are new to the model, until it is known
    """

    per_row: Float[np.ndarray, "series 3"]
    usual: Float[np.ndarray, "series horizon"]

    def only(self, rows: Int[np.ndarray, " some"]) -> "Drift":
        """Return the drift of some series, by their rows."""
        return Drift(self.per_row[rows], self.usual[rows])


def premium_of(config: Config, panel: Panel) -> float | None:
    """Return the premium of a panel's series; None where their drift is what networks learned.

    Only dated prices whose logarithm is forecast have a premium.
    """
    logarithmic = config.transform in ("auto", "log_return")
    dated = panel.times.dtype.kind == "M"
    return config.premium if panel.target != "y" and logarithmic and dated else None


def drift_of(panel: Panel, config: Config) -> Drift | None:
    """Return the drift of a panel's series before networks are asked; None without a premium."""
    premium = premium_of(config, panel)
    if premium is None:
        return None
    prices = panel.channel(panel.target)
    per_row = [
        change_of(row[seen], panel.times[seen], premium)
        for row, seen in zip(prices, panel.mask, strict=True)
    ]
    usual = np.full((len(per_row), config.horizon), np.nan)
    return Drift(np.array(per_row, float).reshape(-1, 3), usual)


def change_of(
    prices: Float[np.ndarray, " row"], times: Shaped[np.ndarray, " row"], premium: float
) -> tuple[float, float, float]:
    """Return the expected change of a price's logarithm from one row to the next, and its limits.

    It is that of the premium, moved towards the mean of the changes seen. The limits lie three
    standard errors below and above that mean; for a series of few rows, far enough for the expected
    change. With fewer than three rows all are zero.

    - ``prices``: above zero
    - ``times``: dates, in order; the premium of a row is that of the mean time between two rows
    - ``premium``: the growth of the mean price in a year, as a share
    """
    if len(prices) < 3:
        return 0.0, 0.0, 0.0
    changes = np.diff(np.log(prices))
    years = float((times[-1] - times[0]) / _YEAR) / len(changes)
    spread, own = float(changes.var(ddof=1)), float(changes.mean())
    common = float(np.log1p(premium) * years - spread / 2)
    variance = spread / len(changes)  # of the mean change
    weight = (_OWN * years) ** 2 / ((_OWN * years) ** 2 + variance)
    reach = _ERRORS * np.sqrt(variance)
    if len(changes) < _FEWEST:  # the standard error is then hardly known
        return common, min(own - reach, common), max(own + reach, common)
    return float(common + weight * (own - common)), own - reach, own + reach
