"""Forecast that a series stays where it is, and how far it may move.

It is the transform of prices where no stock has rows enough for networks. In ten or twenty rows,
the trends that a combination of methods would follow are mostly chance. The width of a band comes
from the variance of a series' own changes, shrunk to that of its panel, and the panel's to what is
usual of stocks. Each of the two priors counts for ten changes. This weight was chosen on stocks of
2013 to 2018, cut to 1 to 33 days; on others of 2000 to 2015 it is within 1 % of the best one, by
the mean logarithm of the density at the outcome.
"""

import numpy as np
from jaxtyping import Float

from forecaster.series.causal import Rows, decayed_mean
from forecaster.series.combination.nature import Nature
from forecaster.series.panel.panel import Panel

_PRIOR = 10.0  # weight of the usual change, in changes
_DECAYS = (0.94, 0.985)  # volatility of about a month and a quarter, as of the other transforms
_VOLATILITY = 0.32  # of a stock in a year; the medians of two markets' decades are 0.23 and 0.37
_SESSIONS = 252  # sessions in a year, where times are whole numbers
_YEAR = np.timedelta64(31_557_600, "s")  # 365.25 days


def unit_of_prices(panel: Panel) -> float:
    """Return the usual change of a stock from one row of a panel to the next, as a share."""
    times = max((times for _, times in panel.rows()), key=len)
    if len(times) < 3 or times.dtype.kind != "M":
        return _VOLATILITY / _SESSIONS**0.5
    return float(_VOLATILITY * np.sqrt((times[-1] - times[0]) / _YEAR / (len(times) - 1)))


def learned_unit(panel: Panel, natures: dict[str, Nature], usual: float) -> float:
    """Return the usual change from one row to the next of a panel's series, in units of the level.

    Series move together, so all changes of a row count for one.

    ``usual``: the usual change of other panels, to which it is shrunk
    """
    squares: list[np.ndarray] = []
    for name, (values, _) in zip(panel.ids, panel.rows(), strict=True):
        if len(values) > 1 and values.any():
            with np.errstate(all="ignore"):  # of numbers that no double can hold
                changes = np.diff(natures[name].as_features(values))
                level = 1.0 if natures[name].logarithmic else np.abs(values).mean()
                squares.append(np.square(changes / level))
    known = [each for each in squares if np.isfinite(each).all()]
    if not known:
        return usual
    count = max(map(len, known))
    mean = float(np.concatenate(known).mean())
    return float(np.sqrt((count * mean + _PRIOR * usual**2) / (count + _PRIOR)))


def walk_scale(change: Rows, unit: Rows) -> Rows:
    """Return the deviation of the next change, shrunk to the usual one, at each row.

    - ``change``: from the row before; NaN where there is none
    - ``unit``: the usual change
    """
    known = np.cumsum(np.isfinite(change), axis=1)
    month, quarter = (decayed_mean(np.square(change), decay) for decay in _DECAYS)
    own = np.where(known > 0, (month + quarter) / 2, 0.0)
    return np.sqrt((known * own + _PRIOR * unit**2) / (known + _PRIOR))


def usual_changes(
    z: Rows, logarithmic: np.ndarray, unit: float
) -> Float[np.ndarray, "series step"]:
    """Return the usual change of series, in the units of each; ``unit``: as a share of the level.

    The level is the largest value yet, so that a price at zero may move, too.
    """
    level = np.fmax.accumulate(np.abs(z), axis=1)
    return unit * np.where(logarithmic[:, None], 1.0, np.where(level > 0, level, 1.0))
