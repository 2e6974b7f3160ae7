"""How many members fit into a core's cache at once, and how many onto the devices."""

import functools
import math
import operator
import os
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, cast

import jax
import numpy as np
from jaxtyping import Shaped, UInt32

from forecaster.swarm.arrays.data import Held, shape_in_jax, total_bytes, with_shared
from forecaster.swarm.arrays.variables import count_weights, loss_of_weights, trained
from forecaster.swarm.task import Data, Hyperparams, Params, Task, Tree
from forecaster.swarm.training.keys import typed_key
from forecaster.swarm.training.loop import State, init_state

_HostHyperparams: TypeAlias = Mapping[str, Shaped[np.ndarray, " member"]]
_KeyData: TypeAlias = UInt32[jax.Array, "2"]

CACHE = 4 * 2**20  # bytes
MOST, MOST_ON_GPU = 4, 512  # largest chunks, in members
# Chunks are larger where a member saves at most LITTLE bytes, and its data are small too. Chunks of
# 16 instead of 8 took 0.9 to 1.1 of the time for a thousand of the smallest members, and 1.4 to 1.5
# for ten.
LITTLE, MOST_OF_LITTLE = 2**18, 8
LARGE = 2**15  # weights of a member from which on it trains alone
# Bytes that a member saves, above which it trains alone. Compared with chunks of two, on an AMD
# EPYC with six kinds of networks, a swarm of one took 0.54 to 0.67 of the time, of two 0.7 to 0.9,
# of sixteen 0.8 to 1.05.
ALONE = 2**20


def chunk_size(task: Task, held: Held, hyperparams: _HostHyperparams) -> int:
    """Return the number of members that a lane trains at once.

    On CPUs, what the members save for the backward pass has to fit in the cache. Measured on server
    CPUs: fastest while it fits in about 4 MB, and hardly faster with more than 4 members, or 8
    small ones; smaller chunks leave fewer lanes idle in small swarms. Large members gain nothing
    from each other.

    On GPUs, where a launch costs more than the work of a few members: the number that fits in an
    eighth of the memory, 512 at most.

    The size must not depend on the number of members: programs of different chunks round
    differently, and a member's bits would change with its company.
    """
    saved = max(1, saved_bytes(task, held, hyperparams))
    device = cast(Any, jax.local_devices()[0])
    if device.platform != "cpu":
        room = _bytes_limit(device.memory_stats()) // 8
        return int(np.clip(2 ** math.floor(math.log2(max(1, room / saved))), 2, MOST_ON_GPU))
    if weights(task) >= LARGE or saved > ALONE:
        return 1
    little = saved <= LITTLE and MOST_OF_LITTLE * held.bytes_each <= CACHE
    most = MOST_OF_LITTLE if little else MOST
    return int(np.clip(2 ** math.floor(math.log2(max(1, CACHE / saved))), 1, most))


def weights(task: Task) -> int:
    """Return the number of weights of a member."""
    return count_weights(_params(task))


def _params(task: Task) -> Params:
    """Return the shapes of a member's weights."""
    return _params_as(task, jax.dtypes.canonicalize_dtype(float))


@functools.lru_cache(maxsize=64)
def _params_as(task: Task, _: np.dtype[Any]) -> Params:
    """Return the shapes of the weights, made once for each task and float type of JAX."""

    def init(key: _KeyData) -> Params:
        return task.init(typed_key(key))

    return jax.eval_shape(init, _KEY)


def saved_bytes(task: Task, held: Held, hyperparams: _HostHyperparams) -> int:
    """Return the bytes that one member's step saves.

    These are what its backward pass needs of its forward pass, and a gradient as large as the
    weights.
    """

    def residuals(
        params: Params,
        key_data: _KeyData,
        hyperparams: Hyperparams,
        by_member: Data,
        shared: tuple[Tree, ...],
    ) -> tuple[Tree, Params]:
        data: Data = with_shared(by_member, shared)
        key = typed_key(key_data)
        batch = first_batch(task, data, key)

        loss = loss_of_weights(task.loss, params, batch, key, hyperparams)
        return cast(Tree, jax.vjp(loss, trained(params))[1]), params

    # The function that jax.vjp returns is a pytree, whose leaves are all that it needs.
    return _counted(("saved", task), residuals, hyperparams, held)


def state_bytes(task: Task, held: Held, hyperparams: _HostHyperparams) -> int:
    """Return the bytes of one member's state: weights, best weights, optimiser."""

    def state(
        params: Params, key: _KeyData, hyperparams: Hyperparams, *_: Data | tuple[Tree, ...]
    ) -> State:
        return init_state(task, key, hyperparams, params)

    return _counted(("state", task), state, hyperparams, held)


_KEY = jax.ShapeDtypeStruct((2,), np.uint32)
_counts: dict[Any, int] = {}


def _counted(
    what: tuple[str, Task], function: Callable[..., Tree], hyperparams: _HostHyperparams, held: Held
) -> int:
    """Return the bytes that a function of one member returns, traced once for the same shapes.

    ``what``: a name, and the task
    """
    shapes = jax.tree.map(_shape, (_one(hyperparams), held.example, held.shared))
    leaves, structure = cast(tuple[list[Any], Any], jax.tree.flatten(shapes))
    key = what, structure, tuple((leaf.shape, leaf.dtype) for leaf in leaves)
    if key not in _counts:
        while len(_counts) >= 64:
            del _counts[next(iter(_counts))]
        _counts[key] = _bytes(jax.eval_shape(function, _params(what[1]), _KEY, *shapes))
    return _counts[key]


def _shape(leaf: Any) -> jax.ShapeDtypeStruct:
    return shape_in_jax(np.shape(leaf), np.result_type(leaf))


def members_at_once(
    memory: int | None, task: Task, held: Held, hyperparams: _HostHyperparams, lanes: int
) -> int:
    """Return the number of members that may be on the devices at once.

    - ``memory``: bytes that the process may take on a CPU, or all devices together on GPUs. By
      default, beyond what the process uses already, a quarter of the machine's memory, 4 GiB at
      most; or half of the GPUs'. On a CPU, where host and devices share it, the states of all
      members count too.
    - ``task``, ``held``, ``hyperparams``: task, data and hyperparameters of the members
    - ``lanes``: the number of devices
    """
    state = state_bytes(task, held, hyperparams)
    each = held.bytes_each + 2 * state  # data, state before and after a block
    device = cast(Any, jax.local_devices()[0])
    if device.platform != "cpu":
        memory = memory or lanes * _bytes_limit(device.memory_stats()) // 2
        return max(1, (memory - lanes * total_bytes(held.shared)) // each)
    if memory is None:
        memory = _used() + min(_machine() // 4, 4 * 2**30)
    # While members are packed, the host has a copy.
    each += math.ceil((held.bytes_each + 2 * state) / lanes)
    everybody = 3 * state * held.members
    left = memory - _used() - everybody - lanes * total_bytes(held.shared)
    return max(1, left // each)


def first_batch(task: Task, data: Data, key: jax.Array) -> Tree:
    """Return the first batch of an epoch of one member."""
    index, _ = task.batches(data, key)
    return task.take(data, jax.tree.map(operator.itemgetter(0), index))


def _bytes_limit(stats: Mapping[str, int] | None) -> int:
    """Return the bytes of a GPU's memory that this process may use, from its ``memory_stats``."""
    return (stats or {}).get("bytes_limit", 8 * 2**30)


def _used() -> int:
    """Return the bytes that this process uses now; 0 where the system does not tell."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, AttributeError):
        return 0


def _machine() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError, AttributeError):
        return 8 * 2**30  # Windows does not tell


def _one(hyperparams: _HostHyperparams) -> dict[str, jax.ShapeDtypeStruct]:
    """Return the shapes of one member's hyperparameters."""
    return {name: jax.ShapeDtypeStruct((), np.asarray(v).dtype) for name, v in hyperparams.items()}


def _bytes(tree: Tree) -> int:
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))
