"""AutoETS and AutoTheta, by ``statsforecast``.

Arguments as of :mod:`forecaster.evaluation.baselines.simple`. The model is chosen and estimated on
the data known at the first origin, and applied unchanged to later data, like the networks.
"""

from collections.abc import Mapping
from typing import Protocol

import numpy as np

from forecaster.evaluation.baselines.simple import logarithmic


class Forward(Protocol):
    """A model of statsforecast that can be applied to other data than it was fitted on."""

    def fit(self, y: np.ndarray) -> object:
        """Choose and estimate the model."""
        ...

    def forward(self, y: np.ndarray, h: int, level: list[float]) -> Mapping[str, np.ndarray]:
        """Forecast ``h`` steps after ``y``: ``mean``, ``lo-80``, ``hi-80``, ..., each (h,)."""
        ...


def ets(
    y: np.ndarray, origins: np.ndarray, horizon: int, quantiles: np.ndarray, season: int
) -> np.ndarray:
    """Forecast by exponential smoothing of the form with the best AICc; Hyndman et al. (2008)."""
    from statsforecast.models import AutoETS  # pyright: ignore[reportMissingImports]

    return _forward(AutoETS(season_length=season), y, origins, horizon, quantiles)


def theta(
    y: np.ndarray, origins: np.ndarray, horizon: int, quantiles: np.ndarray, season: int
) -> np.ndarray:
    """Forecast by the best form of Theta.

    Fiorucci et al. (2016), International Journal of Forecasting 32.
    """
    from statsforecast.models import AutoTheta  # pyright: ignore[reportMissingImports]

    return _forward(AutoTheta(season_length=season), y, origins, horizon, quantiles)


def _forward(
    model: Forward, y: np.ndarray, origins: np.ndarray, horizon: int, quantiles: np.ndarray
) -> np.ndarray:
    z = np.log(y) if logarithmic(y) else y
    model.fit(z[: origins[0] + 1])
    below = np.asarray(quantiles)[np.asarray(quantiles) < 0.5]
    level = [round(100 * (1 - 2 * q), 6) for q in below]
    out = np.full((len(origins), horizon, len(quantiles)), np.nan)
    for position, origin in enumerate(origins):
        forecasts = model.forward(z[: origin + 1], h=horizon, level=level)
        for number, quantile in enumerate(quantiles):
            out[position, :, number] = forecasts[_key(forecasts, quantile)]
    return np.exp(out) if logarithmic(y) else out


def _key(forecasts: Mapping[str, np.ndarray], quantile: float) -> str:
    """Return the name that statsforecast gives to a quantile."""
    if quantile == 0.5:
        return "mean"
    side, percent = "lo" if quantile < 0.5 else "hi", round(100 * abs(1 - 2 * quantile), 6)
    return next(k for k in forecasts if k.startswith(side) and float(k.split("-")[1]) == percent)
