"""Many series on a common time axis: panels, their frequency, and the features of networks."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)  # pyright: ignore
