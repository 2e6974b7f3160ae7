"""Do the work of the commands: lead from a source to a saved model, forecasts, an evaluation."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
