"""Series from files, Yahoo or a simulated market, and the store that keeps them."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
