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
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from forecaster.swarm.checks import SwarmError
from forecaster.swarm.data import Held, with_shared

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
        if jax.default_backend() == "cpu" and jax.local_device_count() < (cores or 1):
            warnings.warn(
                f"JAX was already running with {jax.local_device_count()} CPU device(s), so only "
                f"that many of {cores} cores will train; call forecaster.swarm.use_all_cores() "
                "before JAX is first used",
                stacklevel=3,
            )


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
        raise SwarmError(
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
        """The smallest layout for so many members with a round number of groups, four to each
        doubling, so that swarms of many sizes share a few compiled shapes. With a ``limit`` of
        members at once there may be less room than members.
        """
        needed = max(1, math.ceil(members / (lanes * chunk)))
        most = max(1, limit // (lanes * chunk)) if limit else needed
        step = int(max(1, 2 ** (min(needed, most).bit_length() - 3)))
        groups = math.ceil(needed / step) * step
        return Layout(lanes, groups if groups <= most or not limit else most // step * step, chunk)

    def groups_for(self, members: int) -> int:
        """How many groups hold so many members, packed densely."""
        return math.ceil(members / (self.lanes * self.chunk))

    def places(self, rows: np.ndarray) -> np.ndarray:
        """Which of the rows lie on each lane, (lane, group x chunk); free places repeat the first.

        Groups are filled one after another over all lanes, so that the lanes share the work.
        """
        places = np.full(self.capacity, rows[0])
        places[: len(rows)] = rows
        places = places.reshape(self.groups, self.lanes, self.chunk).swapaxes(0, 1)
        return places.reshape(self.lanes, -1)

    def unpack(self, tree: Any, members: int) -> Any:
        """Undo :func:`place`: arrays with a leading axis of so many members, as numpy."""
        groups = self.groups_for(members)

        def flatten(leaf):
            # Lane by lane into its place, so that each number is copied once.
            out = np.empty((groups, self.lanes, *leaf.shape[2:]), leaf.dtype)
            for part in leaf.addressable_shards:
                lane = part.index[0].start or 0
                out[:, lane] = np.asarray(part.data)[0, :groups]
            return out.reshape(groups * self.lanes * self.chunk, *leaf.shape[3:])[:members]

        return jax.tree.map(flatten, tree)


def place(load: Callable[[np.ndarray], Any], rows: np.ndarray, layout: Layout, mesh: Mesh) -> Any:
    """Put members on their lanes; ``load(rows)`` gives arrays (row, ...).

    One lane after another is loaded, so that the host never holds all of it twice.
    """

    def shape(leaf):
        return leaf.reshape(1, layout.groups, layout.chunk, *leaf.shape[1:])

    parts = []
    for places, device in zip(layout.places(rows), mesh.devices, strict=True):
        parts.append(jax.device_put(jax.tree.map(shape, load(places)), device))
    sharding = NamedSharding(mesh, P("lane"))

    def join(*leaves):
        whole = (layout.lanes, *leaves[0].shape[1:])
        return jax.make_array_from_single_device_arrays(whole, sharding, list(leaves))

    return jax.tree.map(join, *parts)


def replicate(tree: Any, mesh: Mesh) -> Any:
    """Put arrays on every lane, whole."""
    return jax.device_put(tree, NamedSharding(mesh, P()))


def spread(function: Callable[..., Any], mesh: Mesh, donate: bool = False) -> Callable[..., Any]:
    """Turn ``function(shared, *own)`` of one member into a compiled ``f(groups, shared, *packed)``.

    The number of groups is data, so that a swarm that shrinks compiles nothing new. What later
    groups hold in the result is zero. With ``donate``, the memory of the first packed argument is
    given to the result.
    """

    def lane(groups, shared, *args):
        args = jax.tree.map(lambda leaf: leaf[0], args)  # this lane's (group, chunk, ...)
        chunked = jax.vmap(lambda *own: function(shared, *own))

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

    def everywhere(groups, shared, *args):
        specs = (P(), P(), *([P("lane")] * len(args)))
        mapped = jax.shard_map(
            lane, mesh=mesh, in_specs=specs, out_specs=P("lane"), check_vma=False
        )
        return mapped(groups, shared, *args)

    return jax.jit(everywhere, donate_argnums=(2,) if donate else ())


def map_members(
    function: Callable[..., Any],
    *trees: Any,
    members: int,
    chunk: int = 8,
    limit: int = 64,
    lanes: int | None = None,
) -> Any:
    """Apply a function of one member to all members, over all lanes, in bounded memory.

    ``trees`` have a leading member axis or are :class:`Shared`; the result, as numpy, has a leading
    member axis. ``limit`` members are on the devices at once. Results do not depend on a member's
    place or on the others.
    """
    mesh = lane_mesh(lanes)
    layout = Layout.of(members, mesh.size, chunk, limit=max(limit, mesh.size * chunk))
    compiled = _spread_whole(function, mesh)
    held = Held(trees, members)
    shared = replicate(held.shared, mesh)
    parts = []
    for first in range(0, members, layout.capacity):
        rows = np.arange(first, min(first + layout.capacity, members))
        packed = place(held.rows, rows, layout, mesh)
        out = compiled(layout.groups_for(len(rows)), shared, packed)
        parts.append(layout.unpack(out, len(rows)))
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)


@functools.lru_cache(maxsize=16)
def _spread_whole(function: Callable[..., Any], mesh: Mesh) -> Callable[..., Any]:
    return spread(lambda shared, own: function(*with_shared(own, shared)), mesh)
