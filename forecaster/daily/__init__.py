"""Do what is due each day in one go: update prices, forecast, score, and raise alarms."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
