"""Forecaster: one independent small network per series, hundreds at the same time.

    import forecaster as fc

    panel = fc.load_panel("simulated")
    model = fc.fit(panel, fc.Config(horizon=5), seed=0)
    fc.predict(model, panel, level=[80, 95])

``forecaster.swarm`` is the second door: the engine that trains many small models at once.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from forecaster.config import Config as Config
    from forecaster.evaluation.cross_validation import cross_validation as cross_validation
    from forecaster.evaluation.cross_validation import (
        cross_validation_to_parquet as cross_validation_to_parquet,
    )
    from forecaster.evaluation.scores import evaluate as evaluate
    from forecaster.forecasting.fitting import Model as Model
    from forecaster.forecasting.fitting import fit as fit
    from forecaster.forecasting.fitting import predict as predict
    from forecaster.ingest import load_panel as load_panel
    from forecaster.plotting import plot_forecast as plot_forecast
    from forecaster.series.panel import Panel as Panel
    from forecaster.storage.saving import load as load
    from forecaster.storage.saving import save as save

__version__ = "0.1.0"

_HOMES = {
    "Config": "config",
    "Model": "forecasting.fitting",
    "Panel": "series.panel",
    "cross_validation": "evaluation.cross_validation",
    "cross_validation_to_parquet": "evaluation.cross_validation",
    "evaluate": "evaluation.scores",
    "fit": "forecasting.fitting",
    "load": "storage.saving",
    "load_panel": "ingest",
    "plot_forecast": "plotting",
    "predict": "forecasting.fitting",
    "save": "storage.saving",
}
__all__ = [*_HOMES, "__version__"]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str):
    # Names are imported when first used: `forecaster --help` should not wait for JAX.
    if name in _HOMES:
        return getattr(importlib.import_module(f"forecaster.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'forecaster' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
