"""What runs on a node of the cluster.

The class is sent there as it stands here, so it can tell what is installed even where that is
another version of this package, or none.
"""

import os
import sys
from typing import Any


class NodeWorker:
    """Does one part of some work after another. ``cores``: of the node, that it may use."""

    def __init__(self, cores: int):
        os.environ["NPROC"] = str(cores)  # what XLA takes for the number of cores
        # With other threads than in a process of one's own, NumPy rounds otherwise.
        os.environ.pop("OMP_NUM_THREADS", None)
        self._cores = cores
        self._function: Any = None
        self._common: Any = None

    def versions(self) -> dict[str, str]:
        """What is installed here, as far as results depend on it."""
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
        """Start JAX on this node's devices; returns which code computes here."""
        from pathlib import Path

        import jax
        import platformdirs

        from forecaster import swarm

        if "device_count" not in os.environ.get("XLA_FLAGS", ""):
            # One device alone runs another program, which rounds otherwise.
            jax.config.update("jax_num_cpu_devices", max(2, self._cores))
        if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
            cache = Path(platformdirs.user_cache_dir("forecaster", appauthor=False))
            swarm.keep_compiled(cache / "compiled")
        return swarm.arithmetic("bfloat16")

    def begin(self, what: tuple[Any, Any]) -> None:
        """Take in what the parts to come have in common: their function, and its first argument."""
        self._function, self._common = what

    def work(self, part: Any) -> Any:
        """The result of a part."""
        return self._function(self._common, part)
