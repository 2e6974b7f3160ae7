"""Record the forecasts that were made, and score them once their outcomes are known."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
