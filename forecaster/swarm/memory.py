"""How many members fit: at once into a core's cache, and at once onto the devices."""

import math
import os
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from forecaster.swarm.data import Held, total_bytes, with_shared
from forecaster.swarm.task import Task
from forecaster.swarm.training import start

CACHE = 4 * 2**20
MOST = 8


def chunk_size(task: Task, held: Held, hyper: Mapping[str, Any]) -> int:
    """Members that a lane trains at once: as many as keep what their backward passes save in cache.

    Measured on two server CPUs: best while it fits in about 4 MB, and never better above 8
    members. Not below 2, where XLA compiles a different program.
    """
    saved = max(1, saved_bytes(task, held, hyper))
    return int(np.clip(2 ** math.floor(math.log2(max(1, CACHE / saved))), 2, MOST))


def saved_bytes(task: Task, held: Held, hyper: Mapping[str, Any]) -> int:
    """Bytes that one member's step keeps between its forward and its backward pass."""

    def residuals(key, hyper, own, shared):
        data = with_shared(own, shared)
        params = task.init(jax.random.wrap_key_data(key))
        index, _ = task.batches(data, jax.random.wrap_key_data(key))
        batch = task.take(data, jax.tree.map(lambda leaf: leaf[0], index))
        key = jax.random.wrap_key_data(key)
        return jax.vjp(lambda params: task.loss(params, batch, key, hyper), params)[1]

    key = jax.ShapeDtypeStruct((2,), np.uint32)
    # What jax.vjp returns is a pytree whose leaves are all that the backward pass needs.
    return _bytes(jax.eval_shape(residuals, key, _one(hyper), held.example, held.shared))


def state_bytes(task: Task, held: Held, hyper: Mapping[str, Any]) -> int:
    """Bytes of one member's state: weights, best weights, optimiser."""

    def state(key, hyper, own, shared):
        return start(task, key, with_shared(own, shared), hyper)

    key = jax.ShapeDtypeStruct((2,), np.uint32)
    return _bytes(jax.eval_shape(state, key, _one(hyper), held.example, held.shared))


def members_at_once(memory: int, task: Task, held: Held, hyper: Mapping[str, Any]) -> int:
    """How many members' data and states (old and new) fit into so many bytes, beside what is
    shared."""
    each = held.bytes_each + 2 * state_bytes(task, held, hyper)
    return max(1, (memory - total_bytes(held.shared)) // each)


def usual_memory() -> int:
    """Bytes for members' data and states when nothing is said: on a GPU half of its memory, on a
    CPU a quarter of the machine's, 4 GiB at most."""
    device = jax.local_devices()[0]
    if device.platform != "cpu" and (stats := device.memory_stats()):
        return stats["bytes_limit"] // 2
    try:
        machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        machine = 4 * 2**30  # Windows does not say
    return min(machine // 4, 4 * 2**30)


def _one(hyper: Mapping[str, Any]) -> dict[str, jax.ShapeDtypeStruct]:
    return {name: jax.ShapeDtypeStruct((), np.asarray(v).dtype) for name, v in hyper.items()}


def _bytes(tree: Any) -> int:
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))
