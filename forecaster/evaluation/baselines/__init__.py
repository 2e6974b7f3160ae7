"""What a forecast has to be better than: simple, statistical and volatility models, per series.

Knows panels and cutoffs. Must not know the networks or their scores.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
