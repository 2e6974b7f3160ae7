"""How many members fit into a core's cache at once, and how many onto the devices."""

import functools
import math
import operator
import os
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias, cast

import jax
import numpy as np
from jaxtyping import Shaped, UInt32

from forecaster.swarm.arrays import (
    Held,
    count_weights,
    loss_of_weights,
    shape_in_jax,
    total_bytes,
    trained,
    with_shared,
)
from forecaster.swarm.task import Data, Hyperparams, Task, Tree
from forecaster.swarm.training.keys import typed_key
from forecaster.swarm.training.loop import State, init_state

_HostHyperparams: TypeAlias = Mapping[str, Shaped[np.ndarray, " member"]]

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


class Shapes(NamedTuple):
    """Shapes of one member, and bytes.

    - ``state``: its training state
    - ``batch``: the first batch of an epoch
    - ``steps``: the number of steps of an epoch
    - ``saved_bytes``: what a step's backward pass needs of its forward pass, and a gradient as
      large as the weights
    """

    state: State
    batch: Tree
    steps: int
    saved_bytes: int

    @property
    def state_bytes(self) -> int:
        """Bytes of the state: weights, best weights, optimiser."""
        return _bytes(self.state)

    @property
    def weights(self) -> int:
        """The number of weights."""
        return count_weights(self.state.params)


KEY = jax.ShapeDtypeStruct((2,), np.uint32)  # of a raw random key


def scalars_of(hyperparams: _HostHyperparams) -> dict[str, jax.ShapeDtypeStruct]:
    """Return the shapes of one member's hyperparameters."""
    return {name: shape_in_jax((), np.asarray(v).dtype) for name, v in hyperparams.items()}


def shapes_of(task: Task, held: Held, hyperparams: _HostHyperparams) -> Shapes:
    """Return the shapes of one member, traced once for the same task, data and float type."""
    given = scalars_of(hyperparams), held.example, held.shared
    leaves, structure = cast(tuple[list[Any], Any], jax.tree.flatten(given))
    shapes = tuple(shape_in_jax(np.shape(leaf), np.result_type(leaf)) for leaf in leaves)
    return _shapes_of(task, structure, shapes, jax.dtypes.canonicalize_dtype(float))


@functools.lru_cache(maxsize=64)
def _shapes_of(
    task: Task, structure: Any, leaves: tuple[jax.ShapeDtypeStruct, ...], _: np.dtype[Any]
) -> Shapes:
    def member(
        words: UInt32[jax.Array, "2"],
        hyperparams: Hyperparams,
        by_member: Data,
        shared: tuple[Tree, ...],
    ) -> tuple[State, Tree, jax.Array, Tree]:
        data, key = with_shared(by_member, shared), typed_key(words)
        state = init_state(task, words, hyperparams)
        index, active = task.batches(data, key)
        batch = task.take(data, jax.tree.map(operator.itemgetter(0), index))
        loss = loss_of_weights(task.loss, state.params, batch, key, hyperparams)
        # The function that jax.vjp returns is a pytree, whose leaves are all that it needs.
        pull = cast(Tree, jax.vjp(loss, trained(state.params), has_aux=True)[1])
        return state, batch, active, pull

    given = jax.tree.unflatten(structure, leaves)
    state, batch, active, saved = jax.eval_shape(member, KEY, *given)
    return Shapes(state, batch, active.shape[0], _bytes((saved, state.params)))


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
    shapes = shapes_of(task, held, hyperparams)
    saved = max(1, shapes.saved_bytes)
    device = cast(Any, jax.local_devices()[0])
    if device.platform != "cpu":
        room = _bytes_limit(device.memory_stats()) // 8
        return int(np.clip(2 ** math.floor(math.log2(max(1, room / saved))), 2, MOST_ON_GPU))
    if shapes.weights >= LARGE or saved > ALONE:
        return 1
    little = saved <= LITTLE and MOST_OF_LITTLE * held.bytes_each <= CACHE
    most = MOST_OF_LITTLE if little else MOST
    return int(np.clip(2 ** math.floor(math.log2(max(1, CACHE / saved))), 1, most))


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
    state = shapes_of(task, held, hyperparams).state_bytes
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


def _bytes(tree: Tree) -> int:
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))
