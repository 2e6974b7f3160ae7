"""Connect to a Ray cluster, or fail within seconds with an error that says why."""

import contextlib
import importlib.metadata
import os
import signal
import socket
import subprocess
import sys
import warnings
from typing import Any, cast

from forecaster.errors import ClusterError, UsageError, has, pip_command

NEEDED = (2, 60)
_CONNECTED, _ANSWERED = 4.0, 10.0  # seconds to wait for a connection, and for an answer
_NONE = (
    "no Ray cluster runs on this machine; start one with `ray start --head`, or name its address, "
    "HOST:PORT"
)
_PROBE = "import sys; from ray._raylet import GcsClient; GcsClient(address=sys.argv[1])"


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
    if address == "auto":
        address = _local_address()
    else:
        _check_answers(address)
    before = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address, log_to_driver=False, logging_level="ERROR")
    except ConnectionError as error:
        raise ClusterError(_NONE) from error
    except (RuntimeError, ValueError) as error:
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


def _local_address() -> str:
    """Return the address of this machine's cluster, or ``auto`` if Ray does not reveal it.

    The cluster that Ray has on record may be gone, and trying to join it would take minutes. So
    ClusterError is raised unless it answers.
    """
    try:
        from ray._private import services  # pyright: ignore[reportMissingImports]

        cast(Any, services.find_gcs_addresses).cache_clear()
        found = services.canonicalize_bootstrap_address("auto") or "auto"
    except (OSError, ValueError) as error:
        raise ClusterError(_NONE) from error
    except (ImportError, AttributeError, TypeError):  # this interface of Ray is not public
        return "auto"
    try:
        _check_answers(found)
    except ClusterError as error:
        raise ClusterError(
            f"{error}. That is the cluster last started on this machine: if it is gone, "
            "`ray stop` forgets it; otherwise name another, HOST:PORT"
        ) from error
    return found


def _check_answers(address: str) -> None:
    """Raise UsageError for an invalid address, ClusterError if no Ray cluster answers there."""
    host, _, port = address.rpartition(":")
    if "://" in address or not host or not port.isdigit():
        raise UsageError(
            f"expected auto or the HOST:PORT of a Ray cluster's head; got {address}. From outside "
            "a cluster, send the command there: ray job submit -- forecaster fit --ray auto"
        )
    advice = "see `ray status` there, and check for a firewall"
    try:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECTED).close()
    except (OSError, OverflowError) as error:
        raise ClusterError(f"no Ray cluster answers at {address} ({error}); {advice}") from error
    # Ray itself would try much longer, and could not be interrupted.
    command = [sys.executable, "-c", _PROBE, address]
    try:
        answers = subprocess.run(command, timeout=_ANSWERED, capture_output=True).returncode == 0
    except subprocess.TimeoutExpired:
        answers = False
    if not answers:
        raise ClusterError(f"what answers at {address} is not a Ray cluster; {advice}")
