"""AutoETS and AutoTheta, by ``statsforecast``; see :mod:`forecaster.evaluation.baselines.simple`.

The model is chosen and estimated on what was known at the first origin, and applied as it is to
what came later, as the networks are.
"""

import numpy as np

from forecaster.evaluation.baselines.simple import logarithmic


def ets(y, origins, horizon, quantiles, season) -> np.ndarray:
    """Exponential smoothing, its form chosen by AICc; Hyndman et al. (2008)."""
    from statsforecast.models import AutoETS  # pyright: ignore[reportMissingImports]

    return _forward(AutoETS(season_length=season), y, origins, horizon, quantiles)


def theta(y, origins, horizon, quantiles, season) -> np.ndarray:
    """Theta, its form chosen; Fiorucci et al. (2016), International Journal of Forecasting 32."""
    from statsforecast.models import AutoTheta  # pyright: ignore[reportMissingImports]

    return _forward(AutoTheta(season_length=season), y, origins, horizon, quantiles)


def _forward(model, y, origins, horizon, quantiles) -> np.ndarray:
    z = np.log(y) if logarithmic(y) else y
    model.fit(z[: origins[0] + 1])
    below = np.asarray(quantiles)[np.asarray(quantiles) < 0.5]
    level = [round(100 * (1 - 2 * q), 6) for q in below]
    out = np.full((len(origins), horizon, len(quantiles)), np.nan)
    for place, origin in enumerate(origins):
        made = model.forward(z[: origin + 1], h=horizon, level=level)
        for number, q in enumerate(quantiles):
            if q == 0.5:
                out[place, :, number] = made["mean"]
            else:
                percent = round(100 * abs(1 - 2 * q), 6)
                side = "lo" if q < 0.5 else "hi"
                key = next(
                    k for k in made if k.startswith(side) and float(k.split("-")[1]) == percent
                )
                out[place, :, number] = made[key]
    return np.exp(out) if logarithmic(y) else out
