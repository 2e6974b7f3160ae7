"""SciPy's special functions, loaded without what they have no use for.

While it is imported, ``scipy.special`` looks up every name that NumPy has. One of them, the front
end of a Fortran compiler, then loads parsers and encodings for as long as all the rest takes. That
module is put in place as a lazy one: it is loaded when somebody looks into it.
"""

import importlib.util
import sys

import numpy as np


def _load_f2py_when_used() -> None:
    """Have ``numpy.f2py`` be there at once; see :class:`importlib.util.LazyLoader`."""
    name = "numpy.f2py"
    spec = None if name in sys.modules else importlib.util.find_spec(name)
    if spec is None or spec.loader is None:
        return
    spec.loader = importlib.util.LazyLoader(spec.loader)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    setattr(np, "f2py", module)  # noqa: B010 - as an import does


_load_f2py_when_used()

from scipy.special import gammaln, ndtr, ndtri, stdtr, stdtrit  # noqa: E402

__all__ = ["gammaln", "ndtr", "ndtri", "stdtr", "stdtrit"]
