"""The cluster file and the RayJob in the docs are valid for Ray's own parsers."""

import copy
from pathlib import Path

import pytest

pytest.importorskip("ray")
pytest.importorskip("jsonschema")
yaml = pytest.importorskip("yaml")
ASSETS = Path(__file__).parents[2] / "docs" / "assets"


def read(name):
    return yaml.safe_load((ASSETS / name).read_text())


def test_the_cluster_file_is_one():
    from ray.autoscaler._private.util import prepare_config, validate_config  # pyright: ignore[reportMissingImports]

    config = read("ray-cluster.yaml")
    prepared = prepare_config(copy.deepcopy(config))
    validate_config(prepared)
    assert prepared["max_workers"] == len(config["provider"]["worker_ips"]) == 2
    with pytest.raises(Exception, match="workers_ips"):
        validate_config(prepared | {"workers_ips": []})


def cluster_of(job):
    from ray.autoscaler._private.kuberay import autoscaling_config  # pyright: ignore[reportMissingImports]

    resource = {"metadata": job["metadata"], "spec": job["spec"]["rayClusterSpec"]}
    return autoscaling_config._derive_autoscaling_config_from_ray_cr(resource)


def test_the_ray_job_is_one():
    job = read("rayjob.yaml")
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    types = cluster_of(job)["available_node_types"]
    (head,) = [name for name in types if name != "cores"]
    assert types[head]["resources"]["CPU"] == 0 and types["cores"]["resources"]["CPU"] == 16
    assert types["cores"]["max_workers"] == 4
    job["spec"]["rayClusterSpec"]["workerGroupSpecs"][0].pop("maxReplicas")
    with pytest.raises(KeyError, match="maxReplicas"):
        cluster_of(job)


def test_the_job_runs_a_command_that_there_is():
    from forecaster.cli import main

    words = read("rayjob.yaml")["spec"]["entrypoint"].split()
    assert words[0] == "forecaster" and words[1] in main.commands
    options = {option for each in main.commands[words[1]].params for option in each.opts}
    assert {word for word in words if word.startswith("--")} <= options
