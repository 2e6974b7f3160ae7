"""How good forecasts were: rolling origins, scores, tests, and what they are compared with."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
