"""Compiled programs: a function of one member, mapped over chunks of members on all lanes.

Other processes find them on disk, see ``program_cache``.
"""

import contextlib
import functools
import operator
import os
from collections.abc import Callable
from typing import Any, cast

import jax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from forecaster.swarm.devices.program_cache import first_call
from forecaster.swarm.task import Tree

_SHAPE = operator.attrgetter("shape", "dtype")


class Program:
    """A function over all lanes, traced and compiled for each new combination of shapes.

    ``program(common, by_chunk, *trees)`` takes what all members share, arrays (lane, chunk), and
    trees of arrays (lane, chunk, member, ...), on the devices or numpy. It returns such a tree.
    """

    def __init__(self, function: Callable[..., Tree], mesh: Mesh, *, once: bool = False):
        split, whole = NamedSharding(mesh, P("lane")), NamedSharding(mesh, P())
        on_cpus = mesh.devices.flat[0].platform == "cpu"
        options: Any = {"compiler_options": _cpu_options(once=once)} if on_cpus else {}
        # Explicit output shardings, because empty arrays would come out replicated.
        options |= {"in_shardings": (whole, split), "out_shardings": split}
        self._jitted = cast(Any, jax.jit(function, **options))
        self._mesh, self._known, self._places = mesh, set[Any](), (whole, split)

    def __call__(self, common: Tree, *by_lane: Tree) -> Tree:
        """Run the program; see the class."""
        leaves, structure = cast(tuple[list[Any], Any], jax.tree.flatten((common, by_lane)))
        key = structure, *map(_SHAPE, leaves)
        if not all(isinstance(leaf, jax.Array) for leaf in leaves):
            # Of numpy's arrays, and then of its own results, jax.jit would compile two programs.
            common, by_lane = jax.device_put((common, by_lane), self._places)
        with in_place_of_other_mesh(self._mesh):
            if key in self._known:
                return self._jitted(common, by_lane)
            found = first_call(self._jitted, common, by_lane)
        self._known.add(key)
        return found

    @property
    def ready(self) -> bool:
        """Whether the program was compiled before."""
        return bool(self._known)


def in_place_of_other_mesh(mesh: Mesh) -> contextlib.AbstractContextManager[Any]:
    """Return a context with this mesh if the caller has set one by ``jax.set_mesh``."""
    if jax.sharding.get_abstract_mesh().empty:
        return contextlib.nullcontext()
    return cast(contextlib.AbstractContextManager[Any], jax.set_mesh(mesh))


def cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _cpu_options(*, once: bool) -> dict[str, Any]:
    """Return the compiler's options for CPUs.

    XLA compiles in as many parallel parts as there are cores, at least two. Its own default of 32,
    also the maximum, takes a tenth longer on two cores.

    A program that runs ``once`` per member is compiled fast rather than well: it runs two to three
    times as long, except for products, recurrences and convolutions, which are library calls.
    """
    options: dict[str, Any] = {"xla_cpu_parallel_codegen_split_count": min(32, max(2, cores()))}
    return options | ({"xla_backend_optimization_level": 0} if once else {})


def spread(
    function: Callable[..., Tree], mesh: Mesh, *, once: bool = False, name: str = ""
) -> Program:
    """Turn a function of one member into a compiled function of all members, on every lane.

    - ``function``: called as ``function(common, by_chunk, *trees)`` with what all members share,
      the chunk's own scalars, and one member's part of each tree
    - ``once``: it runs once per member, so that on CPUs it is compiled fast rather than well (on
      other devices the first validation of members would suffer)
    - ``name``: shown in profiles as ``jit_swarm_NAME``; by default the function's
    """

    def lane(common: Tree, by_lane: tuple[Tree, ...]) -> Tree:
        """Do the work of one lane, one chunk after another. Arrays are (1, chunk, member, ...)."""

        def chunk(each: tuple[Tree, ...]) -> Tree:
            by_chunk, *trees = each
            return jax.vmap(functools.partial(function, common, by_chunk))(*trees)

        chunks = jax.tree.map(operator.itemgetter(0), by_lane)
        return jax.tree.map(operator.itemgetter(None), cast(Tree, jax.lax.map(chunk, chunks)))

    def everywhere(common: Tree, by_lane: tuple[Tree, ...]) -> Tree:
        specs, out = (P(), P("lane")), P("lane")
        mapped = jax.shard_map(
            lane, mesh=mesh, in_specs=specs, out_specs=out, axis_names={"lane"}, check_vma=False
        )
        return mapped(common, by_lane)

    name = name or getattr(function, "__name__", "")
    everywhere.__name__ = f"swarm_{name}" if name.isidentifier() else "swarm_function"
    return Program(everywhere, mesh, once=once)
