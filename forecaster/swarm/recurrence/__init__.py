"""LSTM and GRU over time for one model: pure functions that work under ``vmap``.

Knows the compiled kernels. Must not know members, losses or training.
"""

import lazy_loader

# The types are in the stub beside this file.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(  # pyright: ignore[reportUnknownVariableType]
    __name__, __file__
)
