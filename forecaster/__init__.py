"""Forecaster: small networks of its own for each series, hundreds at the same time.

    import forecaster as fc

    panel = fc.load_panel("simulated")
    model = fc.fit(panel, fc.Config(horizon=5), seed=0)
    fc.predict(model, panel, level=[80, 95])

``forecaster.swarm`` is the second door: the engine that trains many small models at once.
"""

import os

import lazy_loader

__version__ = "0.3.0.dev0"

# XLA writes to standard error what only its developers can act on; it reads this when JAX starts.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

# Names are imported when first used: `forecaster --help` should not wait for JAX.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
