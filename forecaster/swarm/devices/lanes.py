"""Lanes: the devices that train in parallel, and functions of one member mapped over them.

On a CPU a lane is a core: XLA's own threading slows very small matrix products down, so each core
is a JAX device, and members are spread over the devices. A lane works on small chunks of members
(``vmap``), one chunk after another, so that what the backward pass saves stays in the cache.
"""

import dataclasses
import functools
import logging
import math
import os
from collections.abc import Callable, Sequence
from typing import Any, cast

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import Bool, Int

from forecaster.swarm.arrays.data import (
    Rows,
    check_shared,
    is_shared,
    split_shared,
    with_room,
    with_shared,
)
from forecaster.swarm.checks import SwarmError, check_counts, warn
from forecaster.swarm.devices.data_parallel import AXIS
from forecaster.swarm.devices.programs import Program, cores, spread
from forecaster.swarm.task import Tree

log = logging.getLogger(__name__)
_started_in: int | None = None  # id of the process in which JAX starts


def use_all_cores() -> None:
    """Ask JAX for one CPU device per core, which works only before JAX is first used.

    Warns if JAX has started with fewer devices. Raises SwarmError in a process that was forked
    after JAX had started, where JAX would hang.
    """
    check_not_forked()
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


def check_not_forked() -> None:
    """Raise SwarmError in a process that was forked after JAX was started, where it would hang."""
    global _started_in
    process = os.getpid()
    if process == _started_in:
        return
    if _started_in is not None:
        raise SwarmError(
            f"JAX was started in process {_started_in} before this one was forked from it, and "
            "would hang here. Start processes by multiprocessing.get_context('spawn'), or fork "
            "before the first fit or forecast"
        )
    _started_in = process


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
    - ``calls``: calls of a program, one after another, that all members need
    - ``chunk``: members that a lane trains at once
    - ``chunks``: chunks that a lane trains one after another in one call
    - ``room``: the maximum number of members, if the calls have space for more

    A call takes arrays (lane, member, ...), in which chunks follow one another, or (lane, chunk,
    member, ...).
    """

    lanes: int
    calls: int
    chunk: int
    chunks: int = 1
    room: int | None = None

    @property
    def at_once(self) -> int:
        """Members per call."""
        return self.lanes * self.per_lane

    @property
    def per_lane(self) -> int:
        """Members of each lane per call."""
        return self.chunks * self.chunk

    @property
    def capacity(self) -> int:
        """Members in all calls."""
        space = self.calls * self.at_once
        return space if self.room is None else min(space, self.room)

    @staticmethod
    def of(members: int, lanes: int, chunk: int, limit: int | None = None) -> "Layout":
        """Return the smallest layout for this many members, of at most ``limit``."""
        needed = math.ceil(members / (lanes * chunk))
        most = needed if limit is None else limit // (lanes * chunk)
        return Layout(lanes, max(1, min(needed, most)), chunk)

    def with_chunks(self, chunks: int) -> "Layout":
        """Return a layout with the same capacity and this many chunks in each call."""
        calls = math.ceil(self.calls * self.chunks / chunks)
        return Layout(self.lanes, calls, self.chunk, chunks, self.capacity)

    @property
    def split(self) -> int | None:
        """The size of the chunks into which a program splits its arrays; None if it does not."""
        return self.chunk if self.chunks > 1 else None

    def used(self, call: int, members: int) -> Int[np.ndarray, " lane"] | None:
        """Return the number of chunks with members in a call, for each lane; None if not split.

        ``call``: the number of the call, from 0; ``members``: the number of all members
        """
        if self.chunks == 1:
            return None
        begins = call * self.at_once + np.arange(self.lanes) * self.per_lane
        chunks = -(-(members - begins) // self.chunk)
        return np.clip(chunks, 0, self.chunks).astype(np.int32)

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


def place(load: Callable[[Rows], Tree], rows: Rows, layout: Layout, mesh: Mesh) -> Tree:
    """Put the members of a call on their lanes, arranged as by :func:`packed_rows`."""
    return jax.device_put(packed_rows(load, rows, layout), NamedSharding(mesh, P("lane")))


def packed_rows(load: Callable[[Rows], Tree], rows: Rows, layout: Layout) -> Tree:
    """Return a call's members as numpy arrays (lane, member, ...).

    ``load(rows)`` returns arrays (row, ...). The first lanes are filled first; free rows repeat the
    first member. Passing these arrays to a program is faster than placing them on devices first.
    """
    filled = np.full(layout.at_once, rows[0])
    filled[: len(rows)] = rows

    def shape(leaf: Any) -> np.ndarray:
        return _as_jax(leaf).reshape(layout.lanes, layout.per_lane, *np.shape(leaf)[1:])

    return jax.tree.map(shape, load(filled))


def packed_chunks(load: Callable[[Rows], Tree], rows: Rows, layout: Layout) -> Tree:
    """Return a call's members as arrays (lane, chunk, member, ...), filled chunk by chunk."""
    filled = np.full(layout.at_once, rows[0])
    filled[: len(rows)] = rows

    def shape(leaf: Any) -> np.ndarray:
        by_chunk = layout.chunks, layout.lanes, layout.chunk
        leaf = _as_jax(leaf).reshape(*by_chunk, *np.shape(leaf)[1:])
        return np.ascontiguousarray(leaf.swapaxes(0, 1))

    return jax.tree.map(shape, load(filled))


def unpack(calls: Sequence[Tree], members: Sequence[int], *, copy: bool = False) -> Tree:
    """Undo :func:`place`; return numpy arrays (member, ...).

    ``members``: the number of members in each call. ``copy``: as of :func:`unpacked_leaf`
    """

    def join(*leaves: np.ndarray) -> np.ndarray:
        if len(leaves) == 1:
            return unpacked_leaf(leaves[0], members[0], copy=copy)
        pairs = zip(leaves, members, strict=True)
        return np.concatenate([_flat(leaf)[:count] for leaf, count in pairs])

    if len(calls) == 1 and isinstance(calls[0], jax.Array):
        return join(np.asarray(calls[0]))  # in a tenth of the time
    return jax.tree.map(join, *jax.device_get(list(calls)))


def unpacked_leaf(leaf: np.ndarray, members: int, *, copy: bool = False) -> np.ndarray:
    """Return one array of a single call as :func:`unpack` does.

    ``copy``: make a copy that can be written to, as results of several calls are. Otherwise it is a
    copy only where members fill at most half of the array: a caller who keeps many results of few
    members would keep the free rows as well.
    """
    flat = _flat(leaf)
    rows = flat[:members]
    if copy:
        return rows.copy()
    if 2 * members <= len(flat):
        rows = rows.copy()
        rows.flags.writeable = leaf.flags.writeable
    return rows


def _flat(leaf: np.ndarray) -> np.ndarray:
    """Return an array (lane, member, ...) as (lane*member, ...)."""
    return leaf.reshape(leaf.shape[0] * leaf.shape[1], *leaf.shape[2:])


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


def replicate(tree: Tree, mesh: Mesh) -> Tree:
    """Copy arrays to every lane."""
    return jax.device_put(tree, NamedSharding(mesh, P()))


class Placed:
    """Arrays of members on the devices, copied to the host on demand."""

    def __init__(self, by_call: Sequence[Tree], layout: Layout, members: int):
        self.by_call, self.layout, self.members = tuple(by_call), layout, members

    @functools.cached_property
    def host(self) -> Tree:
        """The members as numpy arrays (member, ...)."""
        begins = range(0, self.members, self.layout.at_once)
        counts = [min(self.layout.at_once, self.members - begin) for begin in begins]
        return unpack(self.by_call, counts, copy=self.layout.chunks > 1)


CHUNK = 8  # members that a lane works on at once


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
    for leaf in jax.tree.leaves(trees, is_leaf=is_shared):
        if is_shared(leaf):
            check_shared(leaf, members, "trees")
    mesh = lane_mesh(lanes)
    layout = Layout.of(members, mesh.size, chunk)
    return map_placed(function, *trees, members=members, layout=layout, mesh=mesh, once=once).host


_AHEAD = 4  # calls made before the first one's results are fetched


def map_placed(
    function: Callable[..., Tree],
    *trees: Tree,
    members: int,
    layout: Layout,
    mesh: Mesh,
    stay: bool = False,
    once: bool = False,
) -> Placed:
    """Apply a function as :func:`map_members` does, and return the results as :class:`Placed`.

    Trees may be :class:`Placed` ones of the same members and layout. ``stay``: leave the results on
    the devices.
    """
    by_member, shared = _split(trees)
    common: Tree = shared if layout.calls == 1 else replicate(shared, mesh)
    program = _spread_whole(function, mesh, layout.split, once=once)
    results: list[Tree] = []
    for number in range(layout.calls):
        args = [
            tree.by_call[number] if isinstance(tree, Placed) else packed(tree, number, layout)
            for tree in by_member
        ]
        results.append(program(common, layout.used(number, members), *args))
        if not stay and number >= _AHEAD:
            results[number - _AHEAD] = jax.device_get(results[number - _AHEAD])
    return Placed(results, layout, members)


def _split(trees: Sequence[Tree]) -> tuple[Sequence[Tree], tuple[Tree, ...]]:
    """Return the trees without their shared arrays, and the shared arrays."""
    whole = tuple(None if isinstance(tree, Placed) else tree for tree in trees)
    by_member, shared = split_shared(whole)
    if shared:
        shared = jax.tree.map(_as_jax, with_room(by_member, shared))
    pairs = zip(trees, cast(tuple[Tree, ...], by_member), strict=True)
    return [tree if isinstance(tree, Placed) else rows for tree, rows in pairs], shared


def packed(tree: Tree, number: int, layout: Layout) -> Tree:
    """Return a call's members as :func:`packed_rows` does, from arrays (member, ...)."""

    def pack(leaf: Any) -> np.ndarray:
        return packed_leaf(_as_jax(leaf), number, layout)

    return jax.tree.map(pack, tree)


def place_packed(leaf: np.ndarray, number: int, layout: Layout, mesh: Mesh) -> jax.Array:
    """Put a call's members on their lanes, from one array (member, ...)."""
    return jax.device_put(packed_leaf(leaf, number, layout), NamedSharding(mesh, P("lane")))


def packed_leaf(leaf: np.ndarray, number: int, layout: Layout) -> np.ndarray:
    """Return a call's members as :func:`packed` does, from one array (member, ...)."""
    lanes, at_once = layout.lanes, layout.at_once
    rows = leaf if len(leaf) == at_once else leaf[number * at_once : (number + 1) * at_once]
    if free := at_once - len(rows):
        rows = np.concatenate([rows, np.broadcast_to(rows[:1], (free, *rows.shape[1:]))])
    return rows.reshape(lanes, layout.per_lane, *rows.shape[1:])


def _as_jax(leaf: Any) -> np.ndarray:
    """Return a numpy array of a type that JAX computes with: 32 bits instead of 64 by default."""
    array = np.asarray(leaf)
    if array.dtype.itemsize == 8:
        array = array.astype(jax.dtypes.canonicalize_dtype(array.dtype), copy=False)
    return array


def program_of(function: Callable[..., Tree], mesh: Mesh, layout: Layout) -> Program:
    """Return the program by which :func:`map_placed` applies a function.

    It is called with the shared arrays, :meth:`Layout.used`, and a call's part of each tree.
    """
    return _spread_whole(function, mesh, layout.split, once=False)


@functools.lru_cache(maxsize=64)
def _spread_whole(
    function: Callable[..., Tree], mesh: Mesh, chunk: int | None, *, once: bool
) -> Program:
    def of_member(shared: tuple[Tree, ...], _: Tree, *trees: Tree) -> Tree:
        return function(*with_shared(trees, shared))

    name = getattr(function, "__name__", "")
    return spread(of_member, mesh, once=once, name=name, chunk=chunk)
