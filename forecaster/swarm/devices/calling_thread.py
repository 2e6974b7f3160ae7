"""A CPU device whose programs run in the thread that calls them.

JAX hands a program for the CPU to another thread, so that its caller can prepare the next one
meanwhile. A caller who waits for the result pays for that with two switches of threads: on two
cores of an AMD EPYC 49 instead of 18 microseconds for sixteen networks of 8-64-64-4 and eight
examples (2026-11). JAX can run programs in the caller's thread, by a setting of the whole process.
A second set of CPU devices, which only single calls use, leaves the caller's own programs alone.
"""

import functools
import threading
from typing import Any, cast

import jax
import numpy as np
from jax.sharding import Mesh

_making = threading.Lock()


def inline_mesh() -> Mesh | None:
    """Return a mesh of one CPU device that runs its programs in the thread that calls them.

    None where this version of JAX does not offer it: the function that makes devices is private,
    so that it may be missing, take other arguments or fail.
    """
    with _making:
        return _inline_mesh()


@functools.cache
def _inline_mesh() -> Mesh | None:
    # As many devices as JAX has: the threads that large products share depend on it.
    count = len(cast(list[Any], jax.local_devices(backend="cpu")))
    try:
        from jaxlib import xla_client

        client = cast(Any, xla_client).make_cpu_client(asynchronous=False, num_devices=count)
        return Mesh(np.array([client.local_devices()[0]]), ("lane",))
    except (ImportError, AttributeError, TypeError, ValueError, IndexError, RuntimeError):
        return None
