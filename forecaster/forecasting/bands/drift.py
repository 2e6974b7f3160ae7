"""The drift of prices: by how much the mean of a price grows.

Networks that are trained on ten years of companies that survived learn that prices rise, and by how
much they rose just then. To forecast by that is a bet on more of the same. So what networks say of
the direction has no influence on prices, and the mean of each price grows by the same premium
(``Config.premium``), and a basket with it. The median of a price grows by half the variance of what
is forecast less.

The figures that this was chosen by are in ``research/010-drift-of-prices.md``.
"""

import numpy as np
from jaxtyping import Float, Shaped

from forecaster.forecasting.config import Config
from forecaster.series import Panel

_YEAR = np.timedelta64(31_557_600, "s")  # 365.25 days


def premium_of(config: Config, panel: Panel) -> float | None:
    """Return the premium of a panel's series; None where their drift is what networks learned.

    Only dated prices whose logarithm is forecast have a premium.
    """
    logarithmic = config.transform in ("auto", "log_return")
    dated = panel.times.dtype.kind == "M"
    return config.premium if panel.target != "y" and logarithmic and dated else None


def growth_of(config: Config, panel: Panel) -> Float[np.ndarray, " series"]:
    """Return the growth of each price's mean from one row to the next, as a logarithm.

    It is that of the premium over the mean time between two rows of a series. NaN: the series have
    no premium, and networks say where their forecasts lie.
    """
    premium = premium_of(config, panel)
    if premium is None:
        return np.full(len(panel.ids), np.nan)
    return np.array([growth_per_row(premium, panel.times[seen]) for seen in panel.mask], float)


def growth_per_row(premium: float, times: Shaped[np.ndarray, " row"]) -> float:
    """Return the growth of a mean from one row of a series to the next; ``times``: of its rows."""
    years = float((times[-1] - times[0]) / _YEAR)
    return float(np.log1p(premium)) * years / max(len(times) - 1, 1)
