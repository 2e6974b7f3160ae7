"""Baselines to compare with: simple, statistical and volatility models, for each series.

Knows panels and cutoffs. Must not know the networks or their scores.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
