"""Forecaster: small networks for each series, hundreds of series at the same time.

    import forecaster as fc

    panel = fc.load_panel("simulated")
    model = fc.fit(panel, fc.Config(horizon=5), seed=0)
    fc.predict(model, panel, level=[80, 95])

``forecaster.swarm`` is the engine: it trains many small models of any kind at once.
"""

import os

import lazy_loader

__version__ = "0.3.0.dev0"

# Silences XLA's messages for its own developers; XLA reads this when JAX starts.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

# Names are imported when first used, so that `forecaster --help` does not wait for JAX.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
