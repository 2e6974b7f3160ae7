"""Connecting to a cluster: bad address, no answer, another server there, Ray not installed."""

import functools
import importlib.metadata
import importlib.util
import socket
import time

import pytest

from forecaster.distributed import connecting
from forecaster.errors import ClusterError, UsageError
from tests.conftest import run

pytest.importorskip("ray")


@pytest.mark.parametrize("address", ["ray://head:10001", "head", "head:port", ":6379", ""])
def test_what_is_no_address_is_refused(address):
    with pytest.raises(UsageError, match=r"expected auto or the HOST:PORT .*ray job submit"):
        connecting._check_answers(address)


def test_nobody_there_is_said_at_once():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(ClusterError, match=f"no Ray cluster answers at {address}"):
        connecting._check_answers(address)
    with pytest.raises(ClusterError, match="no Ray cluster answers at no-such-host:6379"):
        connecting._check_answers("no-such-host:6379")


def test_a_cluster_that_is_gone_is_named_before_it_is_joined(monkeypatch, tmp_path):
    import ray  # pyright: ignore[reportMissingImports]
    from ray._private import services  # pyright: ignore[reportMissingImports]

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(ray, "init", lambda *rest, **options: pytest.fail("joined what is gone"))
    monkeypatch.setattr(services, "find_gcs_addresses", functools.cache(frozenset))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        gone = f"127.0.0.1:{free.getsockname()[1]}"
    (tmp_path / "ray_current_cluster").write_text(gone)
    noted = services.find_bootstrap_address
    monkeypatch.setattr(services, "find_bootstrap_address", lambda _: noted(str(tmp_path)))
    with pytest.raises(ClusterError, match=r"answers at .*the cluster last started.*ray stop"):
        connecting.connect("auto")
    (tmp_path / "ray_current_cluster").unlink()
    with pytest.raises(ClusterError, match="no Ray cluster runs on this machine"):
        connecting.connect("auto")
    monkeypatch.setenv("RAY_ADDRESS", gone)
    with pytest.raises(ClusterError, match="no Ray cluster answers at"):
        connecting.connect("auto")


def test_somebody_else_there_is_said_within_fifteen_seconds(monkeypatch, settings, tmp_path):
    assert connecting._CONNECTED + connecting._ANSWERED < 15
    monkeypatch.setattr(connecting, "_ANSWERED", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        began = time.monotonic()
        with pytest.raises(ClusterError, match=f"what answers at {address} is not a Ray cluster"):
            connecting._check_answers(address)
        assert time.monotonic() - began < 10
    result = run(
        "fit", "--source", "simulated", "--config", settings, "--home", tmp_path, "--ray", address
    )
    assert result.exit_code == 1 and "no Ray cluster answers" in result.output
    assert not list(tmp_path.rglob("*.parquet"))  # before anything is fetched


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
    with pytest.raises(UsageError, match=r"and 2\.9\.3 is installed: `pip install"):
        connecting.import_ray()
