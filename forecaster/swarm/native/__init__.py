"""Compiled code for CPUs: its sources, how it is built, loaded and called.

LSTM and GRU, forwards and backwards, and the hash of JAX's random keys. Without it JAX does the
same. Knows C++ and calls from XLA. Must not know the engine.
"""

import lazy_loader

# The types are in the stub beside this file.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(  # pyright: ignore[reportUnknownVariableType]
    __name__, __file__
)
