"""An executor whose workers are the nodes of a Ray cluster, and how to connect to it."""

import contextlib
import importlib.metadata
import logging
import os
import signal
import socket
import subprocess
import sys
import warnings
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any, TypeVar, cast

from forecaster import __version__
from forecaster.distributed.crew import Crew, Node
from forecaster.errors import ClusterError, UsageError, has, pip_command
from forecaster.swarm import Failed

NEEDED = (2, 60)
_CONNECTED, _ANSWERED = 4.0, 30.0  # seconds to wait for a connection, and for an answer
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


def import_ray() -> Any:
    """Import Ray. Raises UsageError, with the pip command, if it is missing or too old."""
    problem = "which is not installed"
    if has("ray"):
        found = importlib.metadata.version("ray")
        if tuple(int(part) for part in found.split(".")[:2]) >= NEEDED:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FutureWarning)
                import ray  # pyright: ignore[reportMissingImports]
            return ray
        problem = f"and {found} is installed"
    needed = ".".join(map(str, NEEDED))
    raise UsageError(f"a cluster needs ray>={needed}, {problem}: {pip_command('ray')}")


def connect(address: str) -> bool:
    """Connect this process to a cluster; return False if it is connected already.

    ``address``: HOST:PORT of the cluster's head, or ``auto``: RAY_ADDRESS if it is set, otherwise
    the cluster on this machine. Raises UsageError for an invalid address, and ClusterError, within
    15 seconds, if no cluster answers or if the cluster has another version of Ray or Python.
    """
    ray = import_ray()
    if ray.is_initialized():
        return False
    if address == "auto":
        address = os.environ.get("RAY_ADDRESS") or "auto"
    _check_answers(address)
    before = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address, log_to_driver=False, logging_level="ERROR")
    except (ConnectionError, RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise ClusterError(f"the Ray cluster at {address} cannot be joined: {reason}") from error
    finally:
        with contextlib.suppress(ValueError):  # this is not the main thread
            signal.signal(signal.SIGTERM, before)  # Ray installs a handler of its own
    with contextlib.suppress(ImportError, AttributeError, KeyError):
        # Otherwise Ray prints pages about every lost worker to standard output.
        from ray._private.ray_logging import global_worker_stdstream_dispatcher  # pyright: ignore[reportMissingImports]

        global_worker_stdstream_dispatcher.remove_handler("ray_print_logs")
    return True


def _check_answers(address: str) -> None:
    """Raise UsageError for an invalid address, ClusterError if no Ray cluster answers there.

    Ray itself would try to join a cluster that is gone for minutes.
    """
    host, _, port = address.rpartition(":")
    where = () if address == "auto" else ("--address", address)
    if where and ("://" in address or not host or not port.isdigit()):
        raise UsageError(
            f"expected auto or the HOST:PORT of a Ray cluster's head; got {address!r}. From "
            "outside a cluster, send the command there: ray job submit -- forecaster fit --ray auto"
        )
    command = [sys.executable, "-m", "ray.scripts.scripts", "status", *where]
    try:
        if where:  # which says at once that nobody is there, and why
            socket.create_connection((host.strip("[]"), int(port)), _CONNECTED).close()
        asked = subprocess.run(command, timeout=_ANSWERED, capture_output=True, text=True)
        why = asked.returncode and (asked.stderr.strip().splitlines() or ["no reason given"])[-1]
    except subprocess.TimeoutExpired:
        why = f"none within {_ANSWERED:g} seconds"
    except (OSError, OverflowError) as error:
        why = str(error)
    if why and where:
        raise ClusterError(
            f"no Ray cluster answers at {address} ({why}); see `ray status` there, and check for "
            "a firewall"
        )
    if why:
        raise ClusterError(
            f"no Ray cluster answers on this machine ({why}); start one with `ray start --head`, "
            "or name its address, HOST:PORT. If one was started here and is gone, `ray stop` "
            "forgets it"
        )
