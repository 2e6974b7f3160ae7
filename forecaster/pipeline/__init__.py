"""What the commands do: from a source to a saved model, to its forecasts, or to an evaluation."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
