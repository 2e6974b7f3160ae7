"""The worker that runs on a node of the cluster.

Its class is pickled by value, so it can report the installed versions even if the node has another
version of this package, or if the package is not installed there.
"""

import functools
import os
import pickle
import sys
from typing import Any

_KEPT = 16  # tasks: more than the sizes of networks that a search has


class NodeWorker:
    """A worker that does one part of some work after another.

    ``cores``: the number of the node's cores that it may use.
    """

    def __init__(self, cores: int):
        os.environ["NPROC"] = str(cores)  # XLA reads the number of cores from this variable
        # Ray sets this variable. With another number of threads NumPy rounds differently.
        os.environ.pop("OMP_NUM_THREADS", None)
        self._cores = cores
        self._task_of = functools.lru_cache(_KEPT)(pickle.loads)

    def start(self, expected: dict[str, str], *, per_core: bool) -> dict[str, str]:
        """Return what results depend on here: versions, and which compiled kernels compute.

        If versions are others than expected, only they are returned. JAX starts on this node's
        devices, unless there is a worker for each core.
        """
        import importlib.metadata
        from pathlib import Path

        found = {"python": f"{sys.version_info[0]}.{sys.version_info[1]}"}
        try:
            import forecaster

            found["forecaster"] = forecaster.__version__
        except ImportError:
            found["forecaster"] = "not installed"
        for name in expected.keys() - found:
            try:
                found[name] = importlib.metadata.version(name)
            except importlib.metadata.PackageNotFoundError:
                found[name] = "not installed"
        if per_core or found != expected:
            return found
        import jax
        import platformdirs

        from forecaster import swarm

        if "device_count" not in os.environ.get("XLA_FLAGS", ""):
            # With a single device JAX runs another program, which rounds differently.
            jax.config.update("jax_num_cpu_devices", max(2, self._cores))
        if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
            cache = Path(platformdirs.user_cache_dir("forecaster", appauthor=False))
            swarm.keep_compiled(cache / "compiled")
        return found | swarm.arithmetic("bfloat16")

    def work(self, of: list[Any], part: Any) -> Any:
        """Return the result of a part.

        ``of``: Ray's reference to three things: the function of the parts, the first argument of
        the function, and the pickled task of that argument, or None. The latest tasks are kept, so
        that JAX traces each only once.
        """
        import ray  # pyright: ignore[reportMissingImports]

        try:
            function, common, pickled = ray.get(of[0])
            if pickled is not None:
                common = common._replace(task=self._task_of(pickled))
        except (ImportError, AttributeError) as error:
            from forecaster.errors import ClusterError

            raise ClusterError(
                f"a node cannot load the work ({error}); a network of your own must be in a module "
                "that is installed on every node"
            ) from error
        return function(common, part)
