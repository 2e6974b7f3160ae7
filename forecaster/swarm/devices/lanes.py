"""Lanes: the devices that train in parallel, and functions of one member mapped over them.

On a CPU a lane is a core: XLA's own threading slows very small matrix products down, so each core
is a JAX device, and members are spread over the devices. A lane works on small chunks of members
(``vmap``), one chunk after another, so that what the backward pass saves stays in the cache.
"""

import dataclasses
import functools
import math
import os
import threading
from collections.abc import Callable, Sequence
from typing import Any, cast

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import Bool, Int

from forecaster.swarm.arrays import (
    Rows,
    check_data,
    consecutive,
    split_shared,
    take_members,
    with_room,
    with_shared,
)
from forecaster.swarm.checks import SwarmError, check_counts, warn
from forecaster.swarm.devices.data_parallel import AXIS
from forecaster.swarm.devices.programs import Program, cores, spread
from forecaster.swarm.task import Tree


def use_all_cores() -> None:
    """Ask JAX for one CPU device per core, which works only before JAX is first used.

    Warns if JAX has started with fewer devices.
    """
    chosen: int = getattr(jax.config, "jax_num_cpu_devices")  # noqa: B009
    if chosen > 0 or "device_count" in os.environ.get("XLA_FLAGS", ""):
        return
    try:
        jax.config.update("jax_num_cpu_devices", cores())
    except RuntimeError:
        if jax.default_backend() == "cpu" and jax.local_device_count() < cores():
            warn(
                f"JAX was already running with {jax.local_device_count()} CPU device(s), so only "
                f"that many of {cores()} cores will train; call forecaster.swarm.use_all_cores() "
                "before JAX is first used"
            )


def lane_mesh(lanes: int | None = None, data_parallel: int = 1) -> Mesh:
    """Return the mesh of lanes: one axis, of all local devices by default.

    ``data_parallel``: devices per lane; more than one adds a second axis. Raises SwarmError if
    there are not enough devices.
    """
    use_all_cores()
    check_counts(data_parallel=data_parallel)
    return _mesh(lanes, int(data_parallel))


@functools.cache
def _mesh(lanes: int | None, data_parallel: int) -> Mesh:
    devices = cast(list[Any], jax.local_devices())
    most = len(devices) // data_parallel
    if most == 0:
        raise SwarmError(
            f"data_parallel: expected at most the number of devices, {len(devices)}; got "
            f"{data_parallel}"
        )
    if lanes is not None and not 1 <= lanes <= most:
        each = f", divided by data_parallel={data_parallel}" if data_parallel > 1 else ""
        raise SwarmError(
            f"lanes must lie between 1 and the number of devices, {len(devices)}{each}; got {lanes}"
        )
    used = np.array(devices[: (lanes or most) * data_parallel])
    if data_parallel == 1:
        return Mesh(used, ("lane",))
    return Mesh(used.reshape(-1, data_parallel), ("lane", AXIS))


@dataclasses.dataclass(frozen=True)
class Layout:
    """The arrangement of members on the devices.

    - ``lanes``: the number of lanes
    - ``chunk``: members that a lane trains at once
    - ``capacity``: the maximum number of members on the devices
    - ``chunks``: chunks that a lane trains one after another in one call

    A call takes arrays (lane, chunk, member, ...).
    """

    lanes: int
    chunk: int
    capacity: int
    chunks: int = 1

    @staticmethod
    def for_members(members: int, lanes: int, chunk: int, limit: int | None = None) -> "Layout":
        """Return the smallest layout for this many members, of at most ``limit``."""
        needed = math.ceil(members / (lanes * chunk))
        most = needed if limit is None else limit // (lanes * chunk)
        return Layout(lanes, chunk, max(1, min(needed, most)) * lanes * chunk)

    @property
    def at_once(self) -> int:
        """Members per call."""
        return self.lanes * self.chunks * self.chunk

    def chunks_of(self, members: int) -> int:
        """Return the number of chunks of each lane for this many members."""
        return math.ceil(members / (self.lanes * self.chunk))

    def by_chunk(self, some: Bool[np.ndarray, " row"]) -> Int[np.ndarray, "lane chunk"]:
        """Return 1 for each chunk of a call with at least one marked member, 0 for others."""
        marked = np.zeros(self.at_once, np.int32)
        marked[: len(some)] = some
        return marked.reshape(self.chunks, self.lanes, self.chunk).max(-1).T

    def by_call(self, rows: Rows) -> list[Rows]:
        """Return the rows of each call, packed densely."""
        return np.split(rows, range(0, len(rows), self.at_once)[1:])


def packed_chunks(load: Callable[[Rows], Tree], rows: Rows, layout: Layout) -> Tree:
    """Return a call's members as arrays (lane, chunk, member, ...), filled chunk by chunk."""
    filled = np.full(layout.at_once, rows[0])
    filled[: len(rows)] = rows

    def shape(leaf: Any) -> np.ndarray:
        by_chunk = layout.chunks, layout.lanes, layout.chunk
        leaf = as_jax(leaf).reshape(*by_chunk, *np.shape(leaf)[1:])
        return np.ascontiguousarray(leaf.swapaxes(0, 1))

    return jax.tree.map(shape, load(filled))


def unpack_chunks(calls: Sequence[Tree], members: Sequence[int]) -> Tree:
    """Undo :func:`packed_chunks`; return copies, numpy arrays (member, ...)."""

    def rows(leaf: np.ndarray, count: int) -> np.ndarray:
        lanes, _, chunk, *shape = leaf.shape
        used = math.ceil(count / (lanes * chunk))
        return leaf[:, :used].swapaxes(0, 1).reshape(used * lanes * chunk, *shape)[:count]

    def join(*leaves: np.ndarray) -> np.ndarray:
        flat = [rows(leaf, count) for leaf, count in zip(leaves, members, strict=True)]
        return np.concatenate(flat) if len(flat) > 1 else np.array(flat[0], order="C")

    return jax.tree.map(join, *jax.device_get(list(calls)))


CHUNK = 8  # members that a lane works on at once
_AHEAD = 4  # calls made before the first one's results are fetched


def map_members(
    function: Callable[..., Tree],
    *trees: Tree,
    members: int,
    chunk: int = CHUNK,
    lanes: int | None = None,
    once: bool = False,
) -> Tree:
    """Apply a function of one member to all members, over all lanes, in bounded memory.

    - ``function``: takes one member's part of each tree and returns a pytree of arrays.
    - ``trees``: trees of arrays (member, ...) or :class:`Shared`.
    - ``members``: the number of members.
    - ``chunk``: members that a lane works on at once.
    - ``lanes``: the number of lanes to use; by default all.
    - ``once``: the function is cheap and called only once; compile it fast rather than well.

    Returns numpy arrays (member, ...). A member's result depends neither on its position nor on the
    other members. Raises SwarmError for invalid rows of Shared arrays.
    """
    check_data(trees, members)
    mesh = lane_mesh(lanes)
    layout = Layout.for_members(members, mesh.size, chunk)
    by_member, shared = split_shared(trees)
    shared = jax.tree.map(as_jax, with_room(by_member, shared)) if shared else ()
    if members > layout.at_once:
        shared = jax.device_put(shared, NamedSharding(mesh, P()))
    program, results = over_lanes(function, mesh, once=once), list[Tree]()
    calls = layout.by_call(np.arange(members))
    for number, rows in enumerate(calls):
        results.append(program(shared, None, *packed_members(by_member, rows, layout)))
        if number >= _AHEAD:
            results[number - _AHEAD] = jax.device_get(results[number - _AHEAD])
    return unpack_chunks(results, list(map(len, calls)))


def packed_members(tree: Tree, rows: Rows, layout: Layout) -> Tree:
    """Return a call's members as :func:`packed_chunks` does, from arrays (member, ...)."""
    return packed_chunks(lambda rows: take_members(tree, consecutive(rows)), rows, layout)


def as_jax(leaf: Any) -> np.ndarray:
    """Return a numpy array of a type that JAX computes with: 32 bits instead of 64 by default."""
    array = np.asarray(leaf)
    if array.dtype.itemsize == 8:
        array = array.astype(jax.dtypes.canonicalize_dtype(array.dtype), copy=False)
    return array


@functools.lru_cache(maxsize=64)
def over_lanes(function: Callable[..., Tree], mesh: Mesh, *, once: bool = False) -> Program:
    """Return the program by which :func:`map_members` applies a function.

    It is called with the shared arrays, None, and a call's part of each tree.
    """

    def of_member(shared: tuple[Tree, ...], _: None, *trees: Tree) -> Tree:
        return function(*with_shared(trees, shared))

    return spread(of_member, mesh, once=once, name=getattr(function, "__name__", ""))


_making = threading.Lock()


def inline_mesh() -> Mesh | None:
    """Return a mesh of one CPU device that runs its programs in the thread that calls them.

    JAX hands a program for the CPU to another thread, so that its caller can prepare the next one
    meanwhile. A caller who waits for the result pays for that with two switches of threads: on two
    cores of an AMD EPYC 49 instead of 18 microseconds for sixteen networks of 8-64-64-4 and eight
    examples (2026-11). JAX can run programs in the caller's thread, by a setting of the whole
    process. A second set of CPU devices, which only single calls use, leaves the caller's own
    programs alone.

    None where this version of JAX does not offer it: the function that makes devices is private,
    so that it may be missing, take other arguments or fail.
    """
    with _making:
        return _inline_mesh()


@functools.cache
def _inline_mesh() -> Mesh | None:
    # As many devices as JAX has: the threads that large products share depend on it.
    count = len(cast(list[Any], jax.local_devices(backend="cpu")))
    try:
        from jaxlib import xla_client

        client = cast(Any, xla_client).make_cpu_client(asynchronous=False, num_devices=count)
        return Mesh(np.array([client.local_devices()[0]]), ("lane",))
    except (ImportError, AttributeError, TypeError, ValueError, IndexError, RuntimeError):
        return None
