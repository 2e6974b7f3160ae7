"""Time the same training by this program, by PyTorch and by a plain ``vmap``."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
