"""One small network per series: its windows, its training, its forecasts and their bands."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
