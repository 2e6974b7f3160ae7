"""Models on disk, smaller ones, and fits that were interrupted."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
