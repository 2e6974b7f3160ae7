"""Compiled code for CPUs: sources, build, loading and calls.

LSTM and GRU, forward and backward pass. Without it JAX computes the same. Knows C++ and calls from
XLA. Must not know the engine.
"""

import lazy_loader

# The types are in the stub beside this file.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(  # pyright: ignore[reportUnknownVariableType]
    __name__, __file__
)
