"""Flax modules for one series; the swarm trains many of them at once.

Knows Flax and the recurrences. Must not know data or training.
"""

import lazy_loader

# The types are in the stub beside this file.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(  # pyright: ignore[reportUnknownVariableType]
    __name__, __file__
)
