"""Classical forecasts of many series at once: exponential smoothing and Theta, without networks.

Knows rows of numbers. Must not know panels, times or how forecasts are combined.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
