"""Read series from files, Yahoo or a simulated market, and keep them in the price store."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
