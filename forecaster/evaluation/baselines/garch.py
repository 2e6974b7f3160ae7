"""GARCH with Student-t errors, by the ``arch`` library.

Arguments as of :mod:`forecaster.evaluation.baselines.simple`. Parameters are estimated once, like
the networks', on the data known at the first origin; the variance is updated from there. The sum of
several days' returns is taken as Student-t with the summed variance, which is exact for one day.
An estimate whose variance explodes at once raises ValueError; if it explodes later, forecasts are
NaN from there on.

Bollerslev (1987), Review of Economics and Statistics 69; with leverage Glosten, Jagannathan &
Runkle (1993), Journal of Finance 48.
"""

import warnings

import numpy as np
import pandas as pd
from scipy.stats import t as student_t

from forecaster.evaluation.baselines.simple import taken

_ROUNDING = 1e-3  # estimates often lie on the border, a persistence of 1
# In units of the largest change before the first cutoff; 67 US stocks of 2000-2015 stay below 1.
_MOST_VOLATILITY = 10.0


def garch(
    y: np.ndarray, origins: np.ndarray, horizon: int, quantiles: np.ndarray, season: int
) -> np.ndarray:
    """Forecast by GARCH(1,1)-t with a constant mean."""
    return _volatility(y, origins, horizon, quantiles, leverage=0)


def gjr(
    y: np.ndarray, origins: np.ndarray, horizon: int, quantiles: np.ndarray, season: int
) -> np.ndarray:
    """Forecast by GJR-GARCH(1,1,1)-t, where falls may raise the variance more than rises."""
    return _volatility(y, origins, horizon, quantiles, leverage=1)


def _volatility(
    y: np.ndarray, origins: np.ndarray, horizon: int, quantiles: np.ndarray, *, leverage: int
) -> np.ndarray:
    from arch import arch_model

    z, back = taken(y)
    steps = np.diff(z)  # steps[i] is known at step i + 1
    known = int(origins[0])
    size = steps[:known].std()
    if known < 50 or not size > 0:
        raise ValueError(f"{known} changes before the first cutoff; expected 50 that are not all 0")
    scaled = steps / size  # the optimiser needs numbers near one
    model = arch_model(scaled, mean="Constant", vol="GARCH", p=1, o=leverage, q=1, dist="t")
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # estimates that did not converge are found below
        fitted = model.fit(last_obs=known, disp="off", show_warning=False)
        _check_estimate(fitted.params, scaled[:known])
        # The estimate uses the steps up to `last_obs`; the forecasts start at every later step.
        forecast = fitted.forecast(horizon=horizon, start=known - 1, reindex=False)
    variance = np.cumsum(forecast.variance.to_numpy()[origins - known], axis=1)
    sound = ~np.logical_or.accumulate(_exploded(variance, scaled[:known]))
    if not sound[0]:
        raise ValueError("the estimate's variance explodes")
    dof = max(float(fitted.params["nu"]), 2.05)
    unit = student_t.ppf(quantiles, dof) * np.sqrt((dof - 2) / dof)
    mean = float(fitted.params["mu"]) * np.arange(1, horizon + 1)
    with np.errstate(invalid="ignore"):
        out = size * (mean[:, None] + np.sqrt(variance)[..., None] * unit)
    out += z[origins][:, None, None]
    out[~sound] = np.nan
    return back(out)


def _check_estimate(params: pd.Series, steps: np.ndarray) -> None:
    """Raise ValueError for parameters that cannot maximise the likelihood.

    The optimiser may leave the likelihood's domain where a series hardly ever changes.
    """
    if not steps.min() <= params["mu"] <= steps.max():
        raise ValueError("the estimate diverged: the mean change lies beyond every change seen")
    # A fall raises the variance by alpha + gamma, a rise by alpha.
    persistence = params["alpha[1]"] + params["beta[1]"] + params.get("gamma[1]", 0.0) / 2
    if not persistence <= 1 + _ROUNDING:
        raise ValueError(f"the estimate's variance explodes: its persistence is {persistence:.4g}")


def _exploded(variance: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """Return which origins have unusable variances (origin, horizon), summed over steps.

    A volatility far beyond every change before the first cutoff comes from an estimate on a listing
    that was frozen, or nearly so.
    """
    ahead = np.arange(1, variance.shape[1] + 1)
    most = ahead * (_MOST_VOLATILITY * np.abs(steps).max()) ** 2
    return ~((variance > 0) & (variance <= most)).all(1)
