"""Say what went wrong: errors and warnings, series that were skipped, names written in two ways.

Every error that a user meets is a :class:`ForecasterError`; each class says what to do next.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
