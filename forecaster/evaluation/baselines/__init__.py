"""What a forecast has to be better than: simple, statistical and volatility models, per series."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
