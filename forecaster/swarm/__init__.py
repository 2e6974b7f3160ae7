"""Train many small independent models at once. Knows nothing of time or of stocks."""

import lazy_loader

# The types are in the stub beside this file.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(  # pyright: ignore[reportUnknownVariableType]
    __name__, __file__
)
