"""Compiled programs: a function of one member, mapped over chunks of members on all lanes.

Programs are cached by the text of their lowered code: functions that are traced again use the
executables of equal ones, even if they are other Python objects. Other processes find them on
disk, see ``compiled``.
"""

import collections
import contextlib
import functools
import hashlib
import operator
import os
from collections.abc import Callable, Hashable
from typing import Any, cast

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from forecaster.swarm.canonical import shape_in_jax
from forecaster.swarm.devices.compiled import from_disk
from forecaster.swarm.task import Tree

_MOST = 128  # executables that are kept in memory
_SHAPE = operator.attrgetter("shape", "dtype")
_compiled: collections.OrderedDict[Hashable, Any] = collections.OrderedDict()


class Program:
    """A function over all lanes, traced and compiled for each new combination of shapes.

    ``program(common, by_chunk, *trees)`` takes what all members share, arrays (lane, chunk), and
    trees of arrays (lane, chunk, member, ...), on the devices or numpy. It returns such a tree.
    """

    def __init__(
        self,
        function: Callable[..., Tree],
        mesh: Mesh,
        *,
        once: bool = False,
    ):
        # Explicit output shardings, because empty arrays would come out replicated.
        self._split, self._whole = NamedSharding(mesh, P("lane")), NamedSharding(mesh, P())
        self._jitted = jax.jit(function, out_shardings=self._split)
        self._name = str(getattr(function, "__name__", ""))
        on_cpus = mesh.devices.flat[0].platform == "cpu"
        self._options = _cpu_options(once=once) if on_cpus else {}
        self._mesh = mesh
        self._by_shape: dict[Any, Any] = {}

    def __call__(self, *args: Tree) -> Tree:
        """Run the program; see the class."""
        return self.compiled(*args)(*args)

    def compiled(self, *args: Tree) -> Any:
        """Return the executable for arguments of these shapes, compiled if needed."""
        leaves, structure = cast(tuple[list[Any], Any], jax.tree.flatten(args))
        key = structure, *map(_SHAPE, leaves)
        if key not in self._by_shape:
            while len(self._by_shape) >= _MOST:
                del self._by_shape[next(iter(self._by_shape))]
            lowered = self._lower(*args)
            self._by_shape[key] = _shared(self._name, lowered, self._mesh, self._options)
        return self._by_shape[key]

    def compile(self, *args: Tree) -> Any:
        """Compile an executable for arguments of these shapes, without the caches of programs."""
        return self._lower(*args).compile(self._options)

    def _lower(self, *args: Tree) -> Any:
        """Lower the program for arguments of these shapes.

        Arrays on the host are described as they will lie on the devices.
        """
        common, *by_lane = args
        shapes = [
            jax.tree.map(functools.partial(_as_placed, sharding), tree)
            for sharding, tree in ((self._whole, common), (self._split, tuple(by_lane)))
        ]
        with in_place_of_other_mesh(self._mesh):
            return self._jitted.lower(shapes[0], *shapes[1])

    @property
    def ready(self) -> bool:
        """Whether the program was compiled before."""
        return bool(self._by_shape)


def in_place_of_other_mesh(mesh: Mesh) -> contextlib.AbstractContextManager[Any]:
    """Return a context with this mesh if the caller has set one by ``jax.set_mesh``."""
    if jax.sharding.get_abstract_mesh().empty:
        return contextlib.nullcontext()
    return cast(contextlib.AbstractContextManager[Any], jax.set_mesh(mesh))


def _as_placed(sharding: NamedSharding, leaf: Any) -> Any:
    if not isinstance(leaf, np.ndarray):
        return leaf
    array = cast(np.ndarray, leaf)
    return shape_in_jax(array.shape, array.dtype, sharding)


def _shared(name: str, lowered: Any, mesh: Mesh, options: dict[str, Any]) -> Any:
    """Return a lowered program's executable; programs of the same text are compiled once."""
    text: str = lowered.as_text()
    if "callback" in text:  # which refers to objects of this process
        return lowered.compile(options)
    # Devices of other clients may have the same numbers.
    devices = tuple((id(device.client), device.id) for device in mesh.devices.flat)
    about = lowered.in_tree, lowered.out_tree, str(lowered.in_avals), devices
    key = hashlib.sha256(text.encode()).hexdigest(), *about, tuple(sorted(options.items()))
    executable = _compiled.get(key)
    if executable is None:
        executable = from_disk(name, functools.partial(lowered.compile, options))
    _compiled[key] = executable
    _compiled.move_to_end(key)
    while len(_compiled) > _MOST:
        _compiled.popitem(last=False)
    return executable


def forget_programs() -> None:
    """Drop all executables that swarms share."""
    _compiled.clear()


def cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _cpu_options(*, once: bool) -> dict[str, Any]:
    """Return the compiler's options for CPUs.

    XLA compiles in as many parallel parts as there are cores, at least two. Its own default of 32,
    also the maximum, takes a tenth longer on two cores.

    A program that runs ``once`` per member is compiled in a quarter of the time and runs two to
    three times as long, except for products, recurrences and convolutions, which are library calls.
    Turning off only the fusion emitters would compile training in 0.7 of the time, but some
    perceptrons would then train in 1.2 of it.
    """
    options: dict[str, Any] = {"xla_cpu_parallel_codegen_split_count": min(32, max(2, cores()))}
    quickly = {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False}
    return options | (quickly if once else {})


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

    def everywhere(common: Tree, *by_lane: Tree) -> Tree:
        mapped = jax.shard_map(
            functools.partial(lane, function),
            mesh=mesh,
            in_specs=(P(), *[P("lane")] * len(by_lane)),
            out_specs=P("lane"),
            axis_names={"lane"},
            check_vma=False,
        )
        return mapped(common, *by_lane)

    name = name or getattr(function, "__name__", "")
    everywhere.__name__ = f"swarm_{name}" if name.isidentifier() else "swarm_function"
    return Program(everywhere, mesh, once=once)


def lane(function: Callable[..., Tree], common: Tree, *by_lane: Tree) -> Tree:
    """Do the work of one lane: one chunk after another. Arrays are (1, chunk, member, ...)."""
    of_chunk = functools.partial(chunk, function, common)
    chunks = jax.tree.map(operator.itemgetter(0), by_lane)
    return jax.tree.map(operator.itemgetter(None), cast(Tree, jax.lax.map(of_chunk, chunks)))


def chunk(function: Callable[..., Tree], common: Tree, each: tuple[Tree, ...]) -> Tree:
    """Do the work of one chunk, all of its members at once."""
    by_chunk, *trees = each
    return jax.vmap(functools.partial(function, common, by_chunk))(*trees)
