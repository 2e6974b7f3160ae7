"""An executor whose workers are the nodes of a Ray cluster."""

import contextlib
import importlib.metadata
import logging
import sys
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import TypeVar, cast

from forecaster import __version__
from forecaster.distributed.connecting import connect, import_ray
from forecaster.distributed.crew import Crew, Node
from forecaster.errors import ClusterError
from forecaster.swarm import Failed

log = logging.getLogger(__name__)
_Common = TypeVar("_Common")
_Part = TypeVar("_Part")
_Result = TypeVar("_Result")


class Ray:
    """A Ray cluster as the ``executor`` of a fit: each node trains on all of its devices.

        with Ray("auto") as cluster:
            model = fc.fit(panel, seed=0, executor=cluster)

    Data that all shards use are sent once to each node. If a worker is lost, its shard is trained
    on another node; after three losses the shard's series are reported, and the other shards go on.
    Nodes with another version of this package, JAX or Python get no work and are reported.

    - ``address``: ``auto`` for the cluster that this machine belongs to, or HOST:PORT of its head
    - ``members_per_shard``: number of networks in a shard; None: at most 32 chunks for each device
      of a node, fewer towards the end
    - ``on_notice``: called with a message at each loss or refusal; by default it is logged

    Raises UsageError if Ray is not installed or the address is invalid, and ClusterError, within 15
    seconds, if no cluster answers.
    """

    def __init__(
        self,
        address: str = "auto",
        *,
        members_per_shard: int | None = None,
        on_notice: Callable[[str], None] | None = None,
    ):
        self._members = members_per_shard
        self._notice = on_notice or cast(Callable[[str], None], log.warning)
        self._ray = import_ray()
        self._connected = connect(address)
        self._crew: Crew | None = None

    @property
    def is_local(self) -> bool:
        """Always False: workers run on other machines."""
        return False

    @property
    def members_per_shard(self) -> int | None:
        """Number of networks in a shard; None: see :class:`forecaster.swarm.Executor`."""
        return self._members

    def lanes(self) -> Sequence[int]:
        """Return the number of devices of each node. Raises ClusterError if there is no node."""
        lanes = [node.lanes for node in Node.all(self._ray)]
        if not lanes:
            raise ClusterError(
                "no node of the Ray cluster has a core to work on; see `ray status`, and add one: "
                "ray start --address=HOST:PORT"
            )
        return lanes

    def run(
        self,
        function: Callable[[_Common, _Part], _Result],
        common: _Common,
        parts: Iterable[_Part],
        *,
        per_core: bool = False,
    ) -> Generator[tuple[_Part, _Result | Failed], None, None]:
        """Call ``function(common, part)`` for all parts; see :class:`forecaster.swarm.Executor`.

        ``per_core``: whether to have a worker for each core instead of one for each node.
        """
        if self._crew is None or self._crew.per_core != per_core:
            self._let_go()
            self._crew = Crew(self._ray, _versions(), self._notice, per_core=per_core)
        yield from self._crew.run(function, common, parts)

    def close(self) -> None:
        """Stop the workers, and leave the cluster if this object joined it."""
        self._let_go()
        if self._connected:
            self._ray.shutdown()
            self._connected = False

    def _let_go(self) -> None:
        if self._crew is not None:
            with contextlib.suppress(Exception):  # the cluster may be gone
                self._crew.stop()
            self._crew = None

    def __enter__(self) -> "Ray":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _versions() -> dict[str, str]:
    """Return the versions that a worker must have to compute the same results."""
    libraries = ("jax", "jaxlib", "flax", "optax", "numpy")
    versions = {name: importlib.metadata.version(name) for name in libraries}
    python = f"{sys.version_info[0]}.{sys.version_info[1]}"
    return {"forecaster": __version__, "python": python, **versions}
