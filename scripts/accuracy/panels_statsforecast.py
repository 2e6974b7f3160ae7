"""Forecast series by a model of statsforecast: the part of ``panels.py`` for its interpreter.

    python panels_statsforecast.py MODEL KNOWN.npz MADE.npz

``KNOWN`` has all ``values``, the ``lengths`` of series, ``seasons`` and ``horizon``; ``MADE`` gets
``mean``, ``low`` and ``high`` (series, horizon), NaN where there are none, and in ``took`` the
seconds and the peak memory in MB. Imports neither our package nor its dependencies.
"""

import resource
import sys
import time
import warnings

import numpy as np
from statsforecast import models  # pyright: ignore[reportMissingImports]

BANDED = ("AutoETS", "DynamicOptimizedTheta", "AutoCES")
SMOOTHED = {"alpha_d": 0.1, "alpha_p": 0.1}  # smoothing weights of TSB, which has no defaults


def main() -> None:
    warnings.simplefilter("ignore")
    name, known, made = sys.argv[1:]
    with np.load(known) as given:
        rows = np.split(given["values"], np.cumsum(given["lengths"])[:-1])
        seasons, horizon = given["seasons"].tolist(), int(given["horizon"])
    seasonal = {"season_length": seasons[0]} if name in BANDED else {}
    if name == "MSTL":
        seasonal = {"season_length": seasons}
    model = getattr(models, name)(**seasonal, **(SMOOTHED if name == "TSB" else {}))
    simulated = name == "AutoCES"  # its bands take longer than its forecasts
    began = time.perf_counter()
    out = [forecast(model, row, horizon, name in BANDED and not simulated) for row in rows]
    seconds = time.perf_counter() - began
    if simulated:
        out = [forecast(model, row, horizon, True) for row in rows]
    mean, low, high = np.array(out).swapaxes(0, 1)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    np.savez(made, mean=mean, low=low, high=high, took=[seconds, memory])


def forecast(model: object, row: np.ndarray, horizon: int, banded: bool) -> np.ndarray:
    """Return mean and band (3, horizon); NaN where the model refuses the series."""
    try:
        level = {"level": [80]} if banded else {}
        found = model.forecast(y=row, h=horizon, **level)  # pyright: ignore[reportAttributeAccessIssue]
    except Exception:
        return np.full((3, horizon), np.nan)
    none = np.full(horizon, np.nan)
    mean = np.broadcast_to(found["mean"], horizon)
    return np.array([mean, found.get("lo-80", none), found.get("hi-80", none)], float)


if __name__ == "__main__":
    main()
