"""Connect to a Ray cluster, or fail within seconds with an error that says why."""

import contextlib
import importlib.metadata
import os
import signal
import socket
import subprocess
import sys
import warnings
from typing import Any

from forecaster.errors import ClusterError, UsageError, has, pip_command

NEEDED = (2, 60)
_CONNECTED, _ANSWERED = 4.0, 30.0  # seconds to wait for a connection, and for an answer


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
