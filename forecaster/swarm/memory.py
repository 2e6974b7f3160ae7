"""How many members fit: at once into a core's cache, and at once onto the devices."""

import math
import os
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from forecaster.swarm.data import Held, total_bytes, with_shared
from forecaster.swarm.task import Limits, Task
from forecaster.swarm.training import start

CACHE = 4 * 2**20
MOST, MOST_ON_GPU = 4, 512


def chunk_size(task: Task, held: Held, hyperparams: Mapping[str, Any]) -> int:
    """Members that a lane trains at once: as many as keep what their backward passes save in cache.

    Measured on server CPUs: best while it fits in about 4 MB, and never much better above 4
    members; fewer leave less idle in small swarms. It must not depend on how many members there
    are: programs of different chunks may round differently, and a member's bits would change with
    its company.

    On GPUs, where a launch costs more than the work of a few members, as many as 512 in an eighth
    of the memory.
    """
    saved = max(1, saved_bytes(task, held, hyperparams))
    device = jax.local_devices()[0]
    if device.platform != "cpu":
        room = _device_memory(device) // 8
        return int(np.clip(2 ** math.floor(math.log2(max(1, room / saved))), 2, MOST_ON_GPU))
    return int(np.clip(2 ** math.floor(math.log2(max(1, CACHE / saved))), 1, MOST))


def saved_bytes(task: Task, held: Held, hyperparams: Mapping[str, Any]) -> int:
    """Bytes that one member's step needs at once: what it keeps between its forward and its
    backward pass, and a gradient beside the weights."""

    def residuals(key, hyperparams, own, shared):
        data = with_shared(own, shared)
        params = task.init(jax.random.wrap_key_data(key))
        index, _ = task.batches(data, jax.random.wrap_key_data(key))
        batch = task.take(data, jax.tree.map(lambda leaf: leaf[0], index))
        key = jax.random.wrap_key_data(key)
        kept = jax.vjp(lambda params: task.loss(params, batch, key, hyperparams), params)[1]
        return kept, params

    key = jax.ShapeDtypeStruct((2,), np.uint32)
    # What jax.vjp returns is a pytree whose leaves are all that the backward pass needs.
    return _bytes(jax.eval_shape(residuals, key, _one(hyperparams), held.example, held.shared))


def state_bytes(task: Task, held: Held, hyperparams: Mapping[str, Any]) -> int:
    """Bytes of one member's state: weights, best weights, optimiser."""

    def state(key, hyperparams, own, shared):
        data, one = with_shared(own, shared), np.ones((), np.int32)
        return start(task, key, data, hyperparams, Limits(one, one))

    key = jax.ShapeDtypeStruct((2,), np.uint32)
    return _bytes(jax.eval_shape(state, key, _one(hyperparams), held.example, held.shared))


def members_at_once(
    memory: int | None, task: Task, held: Held, hyperparams: Mapping[str, Any], lanes: int
) -> int:
    """How many members to have on the devices at once.

    ``memory``: bytes that the process may take on a CPU, or all devices on a GPU; by default a
    quarter of the machine's, 4 GiB at most, beyond what is in use, or half of the GPUs'. On a CPU,
    where host and devices share it, what is held of every member counts too.
    """
    state = state_bytes(task, held, hyperparams)
    each = held.bytes_each + 2 * state  # data, state before and after a block
    device = jax.local_devices()[0]
    if device.platform != "cpu":
        memory = memory or lanes * _device_memory(device) // 2
        return max(1, (memory - lanes * total_bytes(held.shared)) // each)
    if memory is None:
        memory = _used() + min(_machine() // 4, 4 * 2**30)
    # One lane's members are in the host's hands while they are brought to their place.
    each += math.ceil((held.bytes_each + 2 * state) / lanes)
    everybody = 3 * state * held.members
    left = memory - _used() - everybody - lanes * total_bytes(held.shared)
    return max(1, left // each)


def _device_memory(device: Any) -> int:
    """Bytes of a GPU's memory that are this process's."""
    return (device.memory_stats() or {}).get("bytes_limit", 8 * 2**30)


def _used() -> int:
    """Bytes that this process has in memory now; 0 where the system does not say."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, AttributeError):
        return 0


def _machine() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError, AttributeError):
        return 8 * 2**30  # Windows does not say


def _one(hyperparams: Mapping[str, Any]) -> dict[str, jax.ShapeDtypeStruct]:
    return {name: jax.ShapeDtypeStruct((), np.asarray(v).dtype) for name, v in hyperparams.items()}


def _bytes(tree: Any) -> int:
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))
