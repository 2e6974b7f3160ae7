"""Lanes: the devices that work side by side, and a member-wise function spread over them.

On a CPU one lane is one core. XLA's own threading of very small matrix products only costs, so
each core gets a device of its own, and members are spread over the devices. Inside a lane members
go through in small chunks (``vmap``), one chunk after the other, so that what the backward pass
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
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

log = logging.getLogger(__name__)


def use_all_cores() -> None:
    """Ask JAX for one CPU device a core. Does nothing once JAX has started its backends."""
    chosen: int = getattr(jax.config, "jax_num_cpu_devices")  # noqa: B009
    if chosen > 0 or "device_count" in os.environ.get("XLA_FLAGS", ""):
        return
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    try:
        jax.config.update("jax_num_cpu_devices", cores)
    except RuntimeError:
        log.info("JAX was already running with %d device(s); using those", jax.device_count())


def keep_compiled(folder: Path) -> None:
    """Keep compiled programs in a folder, so that the next process need not compile them again."""
    jax.config.update("jax_compilation_cache_dir", str(folder.resolve()))
    # A cache that cannot be read or written costs time, nothing else.
    warnings.filterwarnings("ignore", module=r"jax\._src\.compil.*")
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)


@functools.cache
def lane_mesh(lanes: int | None = None) -> Mesh:
    """The devices to work on, a one-dimensional mesh; all local ones unless a number is given."""
    use_all_cores()
    devices = jax.local_devices()
    if lanes is not None and not 1 <= lanes <= len(devices):
        raise ValueError(
            f"lanes must lie between 1 and the number of devices, {len(devices)}; got {lanes}"
        )
    return Mesh(np.array(devices[:lanes]), ("lane",))


@dataclasses.dataclass(frozen=True)
class Layout:
    """How members lie in arrays of shape (lane, group, chunk, ...): groups go one after another."""

    lanes: int
    groups: int
    chunk: int

    @property
    def capacity(self) -> int:
        """How many members fit."""
        return self.lanes * self.groups * self.chunk

    @staticmethod
    def of(members: int, lanes: int, chunk: int, limit: int | None = None) -> "Layout":
        """The smallest layout for so many members, its groups a power of two, so that few shapes
        are ever compiled. With a ``limit`` of members at once there may be less room than members.
        """
        members = min(members, limit or members)
        groups = max(1, math.ceil(members / (lanes * chunk)))
        groups = 2 ** math.ceil(math.log2(groups))
        while limit and groups > 1 and lanes * groups * chunk > limit:
            groups //= 2
        return Layout(lanes, groups, chunk)

    def groups_for(self, members: int) -> int:
        """How many groups hold so many members, packed densely."""
        return math.ceil(members / (self.lanes * self.chunk))

    def pack(self, tree: Any, rows: np.ndarray) -> Any:
        """Take these rows of arrays with a leading member axis; free places repeat the first."""
        places = np.full(self.capacity, rows[0])
        places[: len(rows)] = rows
        places = places.reshape(self.groups, self.lanes, self.chunk).swapaxes(0, 1)
        return jax.tree.map(lambda leaf: np.asarray(leaf)[places], tree)

    def unpack(self, tree: Any, members: int) -> Any:
        """Undo :meth:`pack`: arrays with a leading axis of so many members, as numpy."""

        def flatten(leaf):
            leaf = np.asarray(leaf).swapaxes(0, 1)
            return leaf.reshape(self.capacity, *leaf.shape[3:])[:members]

        return jax.tree.map(flatten, tree)


def place(tree: Any, mesh: Mesh) -> Any:
    """Put packed arrays on their lanes."""
    return jax.device_put(tree, NamedSharding(mesh, P("lane")))


def spread(function: Callable[..., Any], mesh: Mesh) -> Callable[..., Any]:
    """Turn a function of one member into a compiled ``f(groups, *packed)`` over all lanes.

    The number of groups is data, so that a swarm that shrinks compiles nothing new. What later
    groups hold in the result is zero.
    """
    chunked = jax.vmap(function)

    def lane(groups, *args):
        args = jax.tree.map(lambda leaf: leaf[0], args)  # this lane's (group, chunk, ...)

        def run(i):
            return chunked(
                *jax.tree.map(lambda a: jax.lax.dynamic_index_in_dim(a, i, keepdims=False), args)
            )

        def body(i, out):
            return jax.tree.map(
                lambda o, new: jax.lax.dynamic_update_index_in_dim(o, new, i, 0), out, run(i)
            )

        room = jax.tree.leaves(args)[0].shape[0]
        shapes = jax.eval_shape(run, 0)
        out = jax.tree.map(lambda s: jnp.zeros((room, *s.shape), s.dtype), shapes)
        out = jax.lax.fori_loop(0, groups, body, out)
        return jax.tree.map(lambda leaf: leaf[None], out)

    def everywhere(groups, *args):
        specs = (P(), *([P("lane")] * len(args)))
        mapped = jax.shard_map(
            lane, mesh=mesh, in_specs=specs, out_specs=P("lane"), check_vma=False
        )
        return mapped(groups, *args)

    return jax.jit(everywhere)


def map_members(
    function: Callable[..., Any],
    *trees: Any,
    members: int,
    chunk: int = 8,
    limit: int = 64,
    lanes: int | None = None,
) -> Any:
    """Apply a function of one member to all members, over all lanes, in bounded memory.

    ``trees`` have a leading member axis, and so has the result, as numpy. ``limit`` members are on
    the devices at once. Results do not depend on a member's place or on the others.
    """
    mesh = lane_mesh(lanes)
    layout = Layout.of(members, mesh.size, chunk, limit=max(limit, mesh.size * chunk))
    compiled = _spread_cached(function, mesh)
    parts = []
    for first in range(0, members, layout.capacity):
        rows = np.arange(first, min(first + layout.capacity, members))
        packed = [place(layout.pack(tree, rows), mesh) for tree in trees]
        parts.append(layout.unpack(compiled(layout.groups_for(len(rows)), *packed), len(rows)))
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)


_spread_cached = functools.lru_cache(maxsize=16)(spread)


def total_bytes(tree: Any) -> int:
    """Bytes of all arrays of a tree."""
    return sum(np.asarray(leaf).nbytes for leaf in jax.tree.leaves(tree))


def members_of(tree: Any, ids: Sequence[str]) -> int:
    """Check that every array has one row per id and return how many."""
    for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
        if np.ndim(leaf) == 0 or np.shape(leaf)[0] != len(ids):
            raise ValueError(
                f"{jax.tree_util.keystr(path) or 'data'}: expected a leading axis of {len(ids)} "
                f"members, one per id; got shape {np.shape(leaf)}"
            )
    return len(ids)
