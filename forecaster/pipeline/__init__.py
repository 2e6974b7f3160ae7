"""From a source to a saved model, and from a saved model to forecasts: what the commands do."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
