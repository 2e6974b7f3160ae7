"""Connecting to a cluster: bad address, no answer, another server there, Ray not installed."""

import importlib.metadata
import importlib.util
import socket

import pytest

from forecaster.distributed import cluster
from forecaster.errors import ClusterError, UsageError
from tests.conftest import run
from tests.messages import refuses

pytest.importorskip("ray")


@pytest.mark.parametrize("address", ["ray://head:10001", "head", "head:port", ":6379", ""])
def test_what_is_no_address_is_refused(address):
    with refuses(UsageError):
        cluster._check_answers(address)


def test_nobody_there_is_said_before_anything_is_fetched(monkeypatch, settings, tmp_path):
    assert cluster._ANSWERED < 35  # importing Ray alone may take long
    monkeypatch.setattr(cluster, "_ANSWERED", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as other:  # another program
        address = f"127.0.0.1:{other.getsockname()[1]}"
        result = run(
            "fit", "--source", "simulated", "--config", settings, "--home", tmp_path, "--ray",
            address,
        )  # fmt: skip
        assert result.exit_code == 1 and f"no Ray cluster answers at {address}" in result.output
        assert not list(tmp_path.rglob("*.parquet"))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with refuses(ClusterError):
        cluster.connect("auto")
    monkeypatch.setenv("RAY_ADDRESS", address)
    with refuses(ClusterError):
        cluster.connect("auto")


def test_without_ray_the_command_says_what_to_install(monkeypatch, settings, tmp_path):
    args = ("fit", "--source", "simulated", "--config", settings, "--home", tmp_path)
    found = importlib.util.find_spec
    missing = lambda name, *rest: None if name == "ray" else found(name, *rest)  # noqa: E731
    with monkeypatch.context() as patch:
        patch.setattr(importlib.util, "find_spec", missing)
        result = run(*args, "--ray", "auto")
    assert result.exit_code == 2
    assert "needs ray>=2.60, which is not installed: `pip install" in result.output
    assert '"forecaster-swarm[ray]"` (in a clone: `pip install -e ".[ray]"`)' in result.output
    version = importlib.metadata.version
    old = lambda name: "2.9.3" if name == "ray" else version(name)  # noqa: E731
    monkeypatch.setattr(importlib.metadata, "version", old)
    with refuses(UsageError):
        cluster.import_ray()
