"""Write files so that nothing half-written stays, as CSV, JSON, Parquet or Excel; lock folders.

Knows only the file system, nothing of series, models or commands.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
