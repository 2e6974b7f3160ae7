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
import operator
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import Int

from forecaster.swarm.checks import SwarmError, SwarmWarning
from forecaster.swarm.data import Held, Rows, with_shared
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
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    try:
        jax.config.update("jax_num_cpu_devices", cores)
    except RuntimeError:
        if jax.default_backend() == "cpu" and jax.local_device_count() < (cores or 1):
            warnings.warn(
                f"JAX was already running with {jax.local_device_count()} CPU device(s), so only "
                f"that many of {cores} cores will train; call forecaster.swarm.use_all_cores() "
                "before JAX is first used",
                SwarmWarning,
                stacklevel=3,
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
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)


def lane_mesh(lanes: int | None = None) -> Mesh:
    """The devices to work on, a one-dimensional mesh; all local ones unless a number is given.

    Raises SwarmError when there are fewer devices than lanes.
    """
    use_all_cores()
    return _mesh(lanes)


@functools.cache
def _mesh(lanes: int | None) -> Mesh:
    devices = cast(list[Any], jax.local_devices())
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
        """The smallest layout for this many members with a round number of groups.

        Round: four numbers to each doubling, so that swarms of many sizes share a few compiled
        shapes. With a ``limit`` of members at once there may be less room than members.
        """
        needed = max(1, math.ceil(members / (lanes * chunk)))
        most = max(1, limit // (lanes * chunk)) if limit else needed
        step = int(max(1, 2 ** (min(needed, most).bit_length() - 3)))
        groups = math.ceil(needed / step) * step
        return Layout(lanes, groups if groups <= most or not limit else most // step * step, chunk)

    def groups_for(self, members: int) -> int:
        """How many groups hold this many members, packed densely."""
        return math.ceil(members / (self.lanes * self.chunk))

    def rows_by_lane(self, rows: Rows) -> Int[np.ndarray, "lane position"]:
        """Which of the rows lie on each lane, (lane, group x chunk).

        Groups are filled one after another over all lanes, so that the lanes share the work; what
        stays free repeats the first row.
        """
        packed = np.full(self.capacity, rows[0])
        packed[: len(rows)] = rows
        packed = packed.reshape(self.groups, self.lanes, self.chunk).swapaxes(0, 1)
        return packed.reshape(self.lanes, -1)

    def unpack(self, tree: Tree, members: int) -> Tree:
        """Undo :func:`place`: numpy arrays (member, ...) from arrays (lane, group, chunk, ...)."""
        groups = self.groups_for(members)

        def flatten(leaf: jax.Array) -> np.ndarray:
            # Lane by lane to where it belongs, so that each number is copied once.
            out = np.empty((groups, self.lanes, *leaf.shape[2:]), leaf.dtype)
            for part in leaf.addressable_shards:
                lane = part.index[0].start or 0
                out[:, lane] = np.asarray(part.data)[0, :groups]
            return out.reshape(groups * self.lanes * self.chunk, *leaf.shape[3:])[:members]

        return jax.tree.map(flatten, tree)


def place(load: Callable[[Rows], Tree], rows: Rows, layout: Layout, mesh: Mesh) -> Tree:
    """Put members on their lanes: ``load(rows)`` gives arrays (row, ...).

    Returns arrays (lane, group, chunk, ...). One lane after another is loaded, so that the host
    never holds all of it twice.
    """

    def shape(leaf: np.ndarray) -> np.ndarray:
        return leaf.reshape(1, layout.groups, layout.chunk, *leaf.shape[1:])

    parts: list[Tree] = []
    for some, device in zip(layout.rows_by_lane(rows), mesh.devices, strict=True):
        parts.append(jax.device_put(jax.tree.map(shape, load(some)), device))
    sharding = NamedSharding(mesh, P("lane"))

    def join(*leaves: jax.Array) -> jax.Array:
        whole = (layout.lanes, *leaves[0].shape[1:])
        return jax.make_array_from_single_device_arrays(whole, sharding, list(leaves))

    return jax.tree.map(join, *parts)


def replicate(tree: Tree, mesh: Mesh) -> Tree:
    """Put arrays on every lane, whole."""
    return jax.device_put(tree, NamedSharding(mesh, P()))


def spread(
    function: Callable[..., Tree], mesh: Mesh, *, donate: bool = False
) -> Callable[..., Tree]:
    """Turn a function of one member into a compiled function of all, on every lane.

    ``function(shared, *trees)`` becomes ``f(groups, shared, *packed)``, whose packed trees and
    result are arrays (lane, group, chunk, ...). The number of groups is data, so that a swarm that
    shrinks compiles nothing new; groups beyond it are zero in the result. With ``donate``, the
    memory of the first packed argument is given to the result.
    """

    def lane(groups: jax.Array, shared: Tree, *args: Tree) -> Tree:
        args = jax.tree.map(operator.itemgetter(0), args)  # this lane's (group, chunk, ...)
        chunked = jax.vmap(functools.partial(function, shared))
        room: int = jax.tree.leaves(args)[0].shape[0]

        def run(group: jax.Array | int) -> Tree:
            def chunk(leaf: jax.Array) -> jax.Array:
                return cast(Tree, jax.lax.dynamic_index_in_dim(leaf, group, keepdims=False))

            return chunked(*jax.tree.map(chunk, args))

        def body(group: jax.Array, out: Tree) -> Tree:
            def write(leaf: jax.Array, new: jax.Array) -> jax.Array:
                return cast(Tree, jax.lax.dynamic_update_index_in_dim(leaf, new, group, 0))

            return jax.tree.map(write, out, run(group))

        def zeros(one: jax.ShapeDtypeStruct) -> jax.Array:
            return jnp.zeros((room, *one.shape), one.dtype)

        empty: Tree = jax.tree.map(zeros, jax.eval_shape(run, 0))
        out = cast(Tree, jax.lax.fori_loop(0, groups, body, empty))
        return jax.tree.map(operator.itemgetter(None), out)  # (1, group, chunk, ...)

    def everywhere(groups: jax.Array, shared: Tree, *args: Tree) -> Tree:
        specs = (P(), P(), *([P("lane")] * len(args)))
        mapped = jax.shard_map(
            lane, mesh=mesh, in_specs=specs, out_specs=P("lane"), check_vma=False
        )
        return mapped(groups, shared, *args)

    return jax.jit(everywhere, donate_argnums=(2,) if donate else ())


def map_members(
    function: Callable[..., Tree],
    *trees: Tree,
    members: int,
    chunk: int = 8,
    limit: int = 64,
    lanes: int | None = None,
) -> Tree:
    """Apply a function of one member to all members, over all lanes, in bounded memory.

    - ``function``: takes one member's part of each tree and returns a pytree of arrays.
    - ``trees``: of arrays (member, ...) or :class:`Shared`.
    - ``members``: how many there are.
    - ``chunk``: members that a lane works on at once.
    - ``limit``: members that are on the devices at once.
    - ``lanes``: how many devices to use; by default all.

    Returns numpy arrays (member, ...). A member's result depends neither on its position nor on the
    other members.
    """
    mesh = lane_mesh(lanes)
    layout = Layout.of(members, mesh.size, chunk, limit=max(limit, mesh.size * chunk))
    compiled = _spread_whole(function, mesh)
    held = Held(trees, members)
    shared = replicate(held.shared, mesh)
    parts: list[Tree] = []
    for first in range(0, members, layout.capacity):
        rows = np.arange(first, min(first + layout.capacity, members))
        packed = place(held.rows, rows, layout, mesh)
        out = compiled(layout.groups_for(len(rows)), shared, packed)
        parts.append(layout.unpack(out, len(rows)))
    return jax.tree.map(_concatenated, *parts)


def _concatenated(*leaves: np.ndarray) -> np.ndarray:
    return np.concatenate(leaves)


@functools.lru_cache(maxsize=16)
def _spread_whole(function: Callable[..., Tree], mesh: Mesh) -> Callable[..., Tree]:
    def of_member(shared: tuple[Tree, ...], trees: Tree) -> Tree:
        return function(*with_shared(trees, shared))

    return spread(of_member, mesh)
