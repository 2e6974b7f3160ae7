"""Compiled programs: a function of one member, mapped over chunks of members on all lanes.

Programs are known by what they compute. Where two swarms are made of equal functions, the second
finds the first one's programs, whatever Python objects the functions are.
"""

import collections
import functools
import hashlib
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any, cast

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from forecaster.swarm.task import Tree

_CompilerError = cast(type[Exception], jax.errors.JaxRuntimeError)
_MOST = 64  # compiled programs that are kept
_compiled: collections.OrderedDict[str, Any] = collections.OrderedDict()


class Program:
    """A function over all lanes; it is traced and compiled for the shapes that it is called with.

    ``program(common, by_lane, *trees)``: what all members share, arrays (lane,), and trees of
    arrays (lane, chunk, ...), or (lane, round, chunk, ...) of those with rounds, on the devices or
    numpy. The result is one of the latter kind.
    """

    def __init__(self, function: Callable[..., Tree], mesh: Mesh, options: Mapping[str, Any]):
        # Said outright: arrays without numbers would come out on all lanes, and not go in again.
        self._split, self._whole = NamedSharding(mesh, P("lane")), NamedSharding(mesh, P())
        self._jitted = jax.jit(function, out_shardings=self._split)
        self._mesh, self._options = mesh, dict(options)
        self._by_shape: dict[Any, Any] = {}

    def __call__(self, *args: Tree) -> Tree:
        """The results; see the class."""
        return self.compiled(*args)(*args)

    def compiled(self, *args: Tree) -> Any:
        """The executable for arguments of these shapes, made now if it is not there yet."""
        leaves, structure = cast(tuple[list[Any], Any], jax.tree.flatten(args))
        key = structure, tuple((leaf.shape, leaf.dtype) for leaf in leaves)
        if key not in self._by_shape:
            while len(self._by_shape) >= _MOST:
                del self._by_shape[next(iter(self._by_shape))]
            self._by_shape[key] = _shared(self.lower(*args), self._mesh, self._options)
        return self._by_shape[key]

    def lower(self, *args: Tree) -> Any:
        """The program for arguments of these shapes, as JAX lowers it.

        Arrays on the host are taken for what they will be on the devices.
        """
        common, *by_lane = args
        shapes = [
            jax.tree.map(functools.partial(_as_placed, sharding), tree)
            for sharding, tree in ((self._whole, common), (self._split, tuple(by_lane)))
        ]
        return self._jitted.lower(shapes[0], *shapes[1])

    @property
    def ready(self) -> bool:
        """Whether it was called before."""
        return bool(self._by_shape)


def _as_placed(sharding: NamedSharding, leaf: Any) -> Any:
    if not isinstance(leaf, np.ndarray):
        return leaf
    array = cast(np.ndarray, leaf)
    return jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=sharding)


def _shared(lowered: Any, mesh: Mesh, options: dict[str, Any]) -> Any:
    """The executable of a lowered program; one that computes the same is compiled once."""
    text: str = lowered.as_text()
    if "callback" in text:  # into this very process's objects
        return _executable(lowered, options)
    devices = [device.id for device in mesh.devices.flat]
    parts = (
        text,
        lowered.in_tree,
        lowered.out_tree,
        lowered.in_avals,
        devices,
        sorted(options.items()),
    )
    key = hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()
    if key not in _compiled:
        _compiled[key] = _executable(lowered, options)
    _compiled.move_to_end(key)
    while len(_compiled) > _MOST:
        _compiled.popitem(last=False)
    return _compiled[key]


def _executable(lowered: Any, options: dict[str, Any]) -> Any:
    """Compiled with these options of the compiler, but for those that it knows no longer."""
    try:
        return lowered.compile(options)
    except _CompilerError as error:
        unknown = re.search("No such compile option: '(.*)'", str(error))
        if not unknown or unknown[1] not in options:
            raise
        known = {name: value for name, value in options.items() if name != unknown[1]}
        return _executable(lowered, known)


def forget_programs() -> None:
    """Let go of all executables that swarms share."""
    _compiled.clear()


# For what runs once for each member: it is compiled in a quarter of the time. On CPUs it takes two
# to three times as long, but for products, recurrences and convolutions, which are there already.
QUICKLY = {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False}


def spread(
    function: Callable[..., Tree],
    mesh: Mesh,
    options: Mapping[str, Any] | None = None,
    *,
    name: str = "",
    rounds: bool = False,
) -> Program:
    """Turn a function of one member into a compiled function of all, on every lane.

    ``function(common, by_lane, *trees)`` takes what all share, a lane's own scalars, and one
    member's part of each tree. ``options``: the compiler's. ``name``: what profiles show, as
    ``jit_swarm_NAME``; by default the function's. ``rounds``: trees are of arrays (lane, round,
    chunk, ...), and a lane's scalars of arrays (lane, round); a lane goes through its rounds.
    """

    def lane(common: Tree, by_lane: Tree, *args: Tree) -> Tree:
        first = operator.itemgetter(0)  # this lane's (chunk, ...)

        def of_chunk(each: tuple[Tree, tuple[Tree, ...]]) -> Tree:
            return jax.vmap(functools.partial(function, common, each[0]))(*each[1])

        by_lane, args = jax.tree.map(first, (by_lane, args))
        each = by_lane, args
        out = cast(Tree, jax.lax.map(of_chunk, each)) if rounds else of_chunk(each)
        return jax.tree.map(operator.itemgetter(None), out)  # (1, chunk, ...)

    def everywhere(common: Tree, by_lane: Tree, *args: Tree) -> Tree:
        specs = (P(), *([P("lane")] * (1 + len(args))))
        mapped = jax.shard_map(
            lane, mesh=mesh, in_specs=specs, out_specs=P("lane"), axis_names={"lane"},
            check_vma=False,
        )  # fmt: skip
        return mapped(common, by_lane, *args)

    name = name or getattr(function, "__name__", "")
    everywhere.__name__ = f"swarm_{name}" if name.isidentifier() else "swarm_function"
    return Program(everywhere, mesh, options or {})
