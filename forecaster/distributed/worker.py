"""The worker that runs on a node of the cluster.

Its class is pickled by value, so it can report the installed versions even if the node has another
version of this package, or if the package is not installed there.
"""

import os
import sys
from typing import Any


class NodeWorker:
    """A worker that does one part of some work after another.

    ``cores``: the number of the node's cores that it may use.
    """

    def __init__(self, cores: int):
        os.environ["NPROC"] = str(cores)  # XLA reads the number of cores from this variable
        # Ray sets this variable. With another number of threads NumPy rounds differently.
        os.environ.pop("OMP_NUM_THREADS", None)
        self._cores = cores
        self._function: Any = None
        self._common: Any = None
        self._tasks: dict[bytes, Any] = {}

    def versions(self) -> dict[str, str]:
        """Return the installed versions of all packages that results depend on."""
        import importlib.metadata

        found = {"python": f"{sys.version_info[0]}.{sys.version_info[1]}"}
        try:
            import forecaster

            found["forecaster"] = forecaster.__version__
        except ImportError:
            found["forecaster"] = "not installed"
        for name in ("jax", "jaxlib", "flax", "optax", "numpy"):
            try:
                found[name] = importlib.metadata.version(name)
            except importlib.metadata.PackageNotFoundError:
                found[name] = "not installed"
        return found

    def start(self) -> dict[str, str]:
        """Start JAX on this node's devices; return which compiled kernels it computes with."""
        from pathlib import Path

        import jax
        import platformdirs

        from forecaster import swarm

        if "device_count" not in os.environ.get("XLA_FLAGS", ""):
            # With a single device JAX runs another program, which rounds differently.
            jax.config.update("jax_num_cpu_devices", max(2, self._cores))
        if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
            cache = Path(platformdirs.user_cache_dir("forecaster", appauthor=False))
            swarm.keep_compiled(cache / "compiled")
        return swarm.arithmetic("bfloat16")

    def begin(self, what: tuple[Any, Any, bytes | None]) -> None:
        """Receive the data that the next parts have in common.

        ``what``: the function of the parts, its first argument, and the pickled task of that
        argument, or None. The latest tasks are cached, so that JAX need not trace the same task
        twice.
        """
        import pickle

        self._function, self._common, pickled = what
        if pickled is None:
            return
        task = self._tasks.pop(pickled, None) or pickle.loads(pickled)
        self._tasks[pickled] = task
        for old in list(self._tasks)[:-8]:
            del self._tasks[old]
        self._common = self._common._replace(task=task)

    def work(self, part: Any) -> Any:
        """Return the result of a part."""
        return self._function(self._common, part)
