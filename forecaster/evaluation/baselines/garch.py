"""GARCH with Student-t errors, by the ``arch`` library.

Arguments as of :mod:`forecaster.evaluation.baselines.simple`. Parameters are estimated once, as the
networks' are, on what was known at the first origin, and the variance is updated from there. The
sum of several days' returns is taken as Student-t with the summed variance, which is exact for one
day.

Bollerslev (1987), Review of Economics and Statistics 69; with leverage Glosten, Jagannathan &
Runkle (1993), Journal of Finance 48.
"""

import warnings

import numpy as np
from scipy.stats import t as student_t

from forecaster.evaluation.baselines.simple import logarithmic


def garch(
    y: np.ndarray, origins: np.ndarray, horizon: int, quantiles: np.ndarray, season: int
) -> np.ndarray:
    """GARCH(1,1)-t with a constant mean."""
    return _volatility(y, origins, horizon, quantiles, leverage=0)


def gjr(
    y: np.ndarray, origins: np.ndarray, horizon: int, quantiles: np.ndarray, season: int
) -> np.ndarray:
    """GJR-GARCH(1,1,1)-t: falls may raise the variance more than rises."""
    return _volatility(y, origins, horizon, quantiles, leverage=1)


def _volatility(
    y: np.ndarray, origins: np.ndarray, horizon: int, quantiles: np.ndarray, *, leverage: int
) -> np.ndarray:
    from arch import arch_model

    z = np.log(y) if logarithmic(y) else y
    steps = np.diff(z)  # steps[i] is known at step i + 1
    known = int(origins[0])
    size = steps[:known].std()
    if known < 50 or not size > 0:
        raise ValueError(f"{known} changes before the first cutoff; expected 50 that are not all 0")
    scaled = steps / size  # the optimiser wants numbers near one
    model = arch_model(scaled, mean="Constant", vol="GARCH", p=1, o=leverage, q=1, dist="t")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what did not converge shows in its forecasts
        fitted = model.fit(last_obs=known, disp="off", show_warning=False)
    # Of an estimate made up to `last_obs`, the forecasts from every later step.
    forecast = fitted.forecast(horizon=horizon, start=known - 1, reindex=False)
    variance = np.cumsum(forecast.variance.to_numpy()[origins - known], axis=1)
    dof = max(float(fitted.params["nu"]), 2.05)
    unit = student_t.ppf(quantiles, dof) * np.sqrt((dof - 2) / dof)
    mean = float(fitted.params["mu"]) * np.arange(1, horizon + 1)
    out = size * (mean[:, None] + np.sqrt(variance)[..., None] * unit)
    if not np.isfinite(out).all():
        raise ValueError("the estimate has no finite variance")
    out += z[origins][:, None, None]
    return np.exp(out) if logarithmic(y) else out
