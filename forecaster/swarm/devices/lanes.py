"""Lanes: the devices that work side by side, and a member-wise function spread over them.

On a CPU one lane is one core. XLA's own threading only slows very small matrix products down, so
each core gets a device of its own, and members are spread over the devices. Inside a lane members
go through in small chunks (``vmap``), one chunk after another, so that what the backward pass
saves stays in the cache.
"""

import dataclasses
import functools
import logging
import math
import os
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
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
_started_in: int | None = None  # the process that JAX starts its backends in


def use_all_cores() -> None:
    """Ask JAX for one CPU device per core; without effect once JAX has started its backends.

    Then it warns if cores are left idle. Raises SwarmError in a process that was forked after that,
    where JAX would hang.
    """
    _check_not_forked()
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


def _check_not_forked() -> None:
    global _started_in
    if _started_in not in (None, os.getpid()):
        raise SwarmError(
            f"JAX was started in process {_started_in} before this one was forked from it, and "
            "would hang here. Start processes by multiprocessing.get_context('spawn'), or fork "
            "before the first fit or forecast"
        )
    _started_in = os.getpid()


def keep_compiled(folder: Path) -> None:
    """Keep compiled programs in a folder, so that the next process need not compile them again."""
    path = str(folder.resolve())
    try:
        path.encode()
    except UnicodeEncodeError:  # bytes that the locale has no letters for; XLA takes text only
        return
    jax.config.update("jax_compilation_cache_dir", path)
    # A cache that cannot be read or written costs time, nothing else.
    warnings.filterwarnings("ignore", module=r"jax\._src\.compil.*")
    # Short enough for what makes forecasts, too long for single operations.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.05)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)


def lane_mesh(lanes: int | None = None, data_parallel: int = 1) -> Mesh:
    """The devices to work on, a mesh of one axis; all local ones unless a number is given.

    With ``data_parallel`` a lane is so many devices, and the mesh has a second axis.
    Raises SwarmError when there are fewer devices than that.
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
    """How members lie on the devices.

    - ``lanes``: the devices that work side by side
    - ``calls``: calls of a program that all members take, one after another
    - ``chunk``: members that a lane trains at once
    - ``chunks``: chunks that a lane goes through in one call
    - ``room``: members that there may be at once, if fewer than the calls have room for

    A call takes arrays (lane, member, ...), or (lane, chunk, member, ...).
    """

    lanes: int
    calls: int
    chunk: int
    chunks: int = 1
    room: int | None = None

    @property
    def at_once(self) -> int:
        """How many members a call takes."""
        return self.lanes * self.chunks * self.chunk

    @property
    def capacity(self) -> int:
        """How many members fit."""
        places = self.calls * self.at_once
        return places if self.room is None else min(places, self.room)

    @staticmethod
    def of(members: int, lanes: int, chunk: int, limit: int | None = None) -> "Layout":
        """The smallest layout for this many members, or for no more than ``limit`` of them."""
        needed = math.ceil(members / (lanes * chunk))
        most = needed if limit is None else limit // (lanes * chunk)
        return Layout(lanes, max(1, min(needed, most)), chunk)

    def with_chunks(self, chunks: int) -> "Layout":
        """Return the same room, with this many chunks in each call."""
        calls = math.ceil(self.calls * self.chunks / chunks)
        return Layout(self.lanes, calls, self.chunk, chunks, self.capacity)

    def chunks_of(self, members: int) -> int:
        """Return the number of chunks of each lane for this many members."""
        return math.ceil(members / (self.lanes * self.chunk))

    def by_chunk(self, some: Bool[np.ndarray, " row"]) -> Int[np.ndarray, "lane chunk"]:
        """Return 1 for each chunk of a call that has at least one of some members, 0 for others."""
        places = np.zeros(self.at_once, np.int32)
        places[: len(some)] = some
        return places.reshape(self.chunks, self.lanes, self.chunk).max(-1).T

    def by_call(self, rows: Rows) -> list[Rows]:
        """Return the rows of each call, packed densely."""
        return np.split(rows, range(0, len(rows), self.at_once)[1:])


def place(load: Callable[[Rows], Tree], rows: Rows, layout: Layout, mesh: Mesh) -> Tree:
    """Put the members of a call on their lanes, as :func:`packed_rows` has them."""
    return jax.device_put(packed_rows(load, rows, layout), NamedSharding(mesh, P("lane")))


def packed_rows(load: Callable[[Rows], Tree], rows: Rows, layout: Layout) -> Tree:
    """A call's members as numpy arrays (lane, member, ...): ``load(rows)`` gives arrays (row, ...).

    The first lanes are filled first; what stays free repeats the first member. A program takes them
    as they are, in less time than it takes to place them first.
    """
    filled = np.full(layout.at_once, rows[0])
    filled[: len(rows)] = rows

    def shape(leaf: Any) -> np.ndarray:
        return _as_jax(leaf).reshape(layout.lanes, layout.chunk, *np.shape(leaf)[1:])

    return jax.tree.map(shape, load(filled))


def packed_chunks(load: Callable[[Rows], Tree], rows: Rows, layout: Layout) -> Tree:
    """The same as arrays (lane, chunk, member, ...): first the first chunk of every lane."""
    filled = np.full(layout.at_once, rows[0])
    filled[: len(rows)] = rows

    def shape(leaf: Any) -> np.ndarray:
        by_chunk = layout.chunks, layout.lanes, layout.chunk
        leaf = _as_jax(leaf).reshape(*by_chunk, *np.shape(leaf)[1:])
        return np.ascontiguousarray(leaf.swapaxes(0, 1))

    return jax.tree.map(shape, load(filled))


def unpack(calls: Sequence[Tree], members: Sequence[int]) -> Tree:
    """Undo :func:`place`: numpy arrays (member, ...) of as many members as each call has."""

    def join(*leaves: np.ndarray) -> np.ndarray:
        flat = [
            leaf.reshape(leaf.shape[0] * leaf.shape[1], *leaf.shape[2:])[:count]
            for leaf, count in zip(leaves, members, strict=True)
        ]
        return flat[0] if len(flat) == 1 else np.concatenate(flat)

    return jax.tree.map(join, *jax.device_get(list(calls)))


def unpack_chunks(calls: Sequence[Tree], members: Sequence[int]) -> Tree:
    """The same of arrays (lane, chunk, member, ...), copied."""

    def rows(leaf: np.ndarray, count: int) -> np.ndarray:
        lanes, _, chunk, *shape = leaf.shape
        used = math.ceil(count / (lanes * chunk))
        return leaf[:, :used].swapaxes(0, 1).reshape(used * lanes * chunk, *shape)[:count]

    def join(*leaves: np.ndarray) -> np.ndarray:
        flat = [rows(leaf, count) for leaf, count in zip(leaves, members, strict=True)]
        return np.concatenate(flat) if len(flat) > 1 else np.array(flat[0], order="C")

    return jax.tree.map(join, *jax.device_get(list(calls)))


def replicate(tree: Tree, mesh: Mesh) -> Tree:
    """Put arrays on every lane, whole."""
    return jax.device_put(tree, NamedSharding(mesh, P()))


class Placed:
    """Arrays of members on the devices, which come to the host when they are looked at."""

    def __init__(self, by_call: Sequence[Tree], layout: Layout, members: int):
        self.by_call, self.layout, self.members = tuple(by_call), layout, members

    @functools.cached_property
    def host(self) -> Tree:
        """Numpy arrays (member, ...)."""
        calls = self.layout.by_call(np.arange(self.members))
        return unpack(self.by_call, [len(rows) for rows in calls])


CHUNK = 8  # members that a lane maps a function over at once


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
    - ``trees``: of arrays (member, ...) or :class:`Shared`.
    - ``members``: how many there are.
    - ``chunk``: members that a lane works on at once.
    - ``lanes``: how many devices to use; by default all.
    - ``once``: the function is cheap and not called again; compiling it is most of the work.

    Returns numpy arrays (member, ...). A member's result depends neither on its position nor on the
    other members. Raises SwarmError where members have rows of Shared arrays that are not there.
    """
    for leaf in jax.tree.leaves(trees, is_leaf=is_shared):
        if is_shared(leaf):
            check_shared(leaf, members, "trees")
    return map_placed(function, *trees, members=members, chunk=chunk, lanes=lanes, once=once).host


_AHEAD = 4  # calls that are sent to the devices before the results of the first come back


def map_placed(
    function: Callable[..., Tree],
    *trees: Tree,
    members: int,
    chunk: int = CHUNK,
    lanes: int | None = None,
    stay: bool = False,
    once: bool = False,
) -> Placed:
    """The same, and with ``stay`` the results are left on the devices.

    Trees may be :class:`Placed` ones of the same members.
    """
    mesh = lane_mesh(lanes)
    layout = Layout.of(members, mesh.size, chunk)
    by_member, shared = _split(trees)
    common: Tree = shared if layout.calls == 1 else replicate(shared, mesh)
    program = _spread_whole(function, mesh, once=once)
    results: list[Tree] = []
    for number in range(layout.calls):
        args = [
            tree.by_call[number] if isinstance(tree, Placed) else packed(tree, number, layout)
            for tree in by_member
        ]
        results.append(program(common, None, *args))
        if not stay and number >= _AHEAD:
            results[number - _AHEAD] = jax.device_get(results[number - _AHEAD])
    return Placed(results, layout, members)


def _split(trees: Sequence[Tree]) -> tuple[Sequence[Tree], tuple[Tree, ...]]:
    """Trees with a row per member or on the devices already, and the arrays that they share."""
    whole = tuple(None if isinstance(tree, Placed) else tree for tree in trees)
    by_member, shared = split_shared(whole)
    if shared:
        shared = jax.tree.map(_as_jax, with_room(by_member, shared))
    pairs = zip(trees, cast(tuple[Tree, ...], by_member), strict=True)
    return [tree if isinstance(tree, Placed) else rows for tree, rows in pairs], shared


def packed(tree: Tree, number: int, layout: Layout) -> Tree:
    """The members of a call, as :func:`packed_rows`, of arrays (member, ...)."""
    first = number * layout.at_once

    def pack(leaf: Any) -> np.ndarray:
        rows = _as_jax(leaf)[first : first + layout.at_once]
        if free := layout.at_once - len(rows):
            rows = np.concatenate([rows, np.broadcast_to(rows[:1], (free, *rows.shape[1:]))])
        return rows.reshape(layout.lanes, layout.chunk, *rows.shape[1:])

    return jax.tree.map(pack, tree)


def _as_jax(leaf: Any) -> np.ndarray:
    """A numpy array of a type that JAX computes with: by default none of 64 bits."""
    array = np.asarray(leaf)
    if array.dtype.itemsize == 8:
        array = array.astype(jax.dtypes.canonicalize_dtype(array.dtype), copy=False)
    return array


@functools.lru_cache(maxsize=64)
def _spread_whole(function: Callable[..., Tree], mesh: Mesh, *, once: bool) -> Program:
    def of_member(shared: tuple[Tree, ...], _: None, *trees: Tree) -> Tree:
        return function(*with_shared(trees, shared))

    name = getattr(function, "__name__", "")
    return spread(of_member, mesh, once=once, name=name)
