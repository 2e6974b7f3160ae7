"""Books of positions: what they hold, what they may lose, and what a move would do to them.

Knows positions and paths of prices. Must not know networks, nor where prices are stored.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
