"""Speed up repeated calls: what depends only on shapes and types is worked out once.

The first call with arrays of some structure, shapes and types makes every check. It leaves a
:class:`Call`, by which the next ones check only what depends on values. A call that does not fit
(numbers that are not finite, rows of Shared arrays, lists) makes every check again, so that all
errors come from the ordinary code.
"""

import enum
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias, cast

import jax
import numpy as np

from forecaster.swarm.arrays.data import Shared, is_shared, split_shared, total_bytes
from forecaster.swarm.arrays.shapes import Shapes
from forecaster.swarm.devices.lanes import (
    Layout,
    Placed,
    check_not_forked,
    packed_leaf,
    place_packed,
    program_of,
    replicate,
    unpacked_leaf,
)
from forecaster.swarm.estimators.stepping import Spread
from forecaster.swarm.task import Tree
from forecaster.swarm.training.examples import representable
from forecaster.swarm.training.keys import is_key

Key: TypeAlias = tuple[Any, ...]

_MOST = 32  # calls that a swarm remembers
_MOST_TURNS = 4  # calls of the program; with more, results are fetched in between
_MOST_BYTES = 2**20  # size up to which a call keeps the weight of ones that stands for no weight
_WEIGHT = 2  # position of the weight among the trees of a call


class Given(NamedTuple):
    """The arrays of a call in the order of its trees, and a key that equal calls share."""

    leaves: list[np.ndarray]
    key: Key


class _Check(enum.Enum):
    """Which check of an array's values is made in every call."""

    NOTHING = 0
    FINITE = 1
    FITS = 2  # whole numbers of 64 bits must fit into the 32 that JAX may keep
    WEIGHT = 3


class _Leaf(NamedTuple):
    """What is done with an array: checked, converted and, unless shared, packed by member."""

    check: _Check
    dtype: np.dtype[Any] | None  # None: already of the type
    shared: bool


_PLAIN = _Leaf(_Check.FINITE, None, shared=False)
_all, _is_finite = np.logical_and.reduce, np.isfinite


class Call(NamedTuple):
    """What a first call prepares for later calls with arrays of the same shapes and types.

    - ``spread``, ``layout``: how members are spread over the devices
    - ``program``: executable, called with shared arrays, ``used``, states, hyperparameters and data
    - ``leaves``: what to do with each array that is given
    - ``shared_weight``, ``weight``: the weights to use where the caller gives none: shared arrays,
      and arrays for each turn of the program
    - ``axes``: lanes, and members of each
    - ``full``: whether the members fill every turn
    - ``used``: the number of chunks that are used in each turn, arrays (lane,) or None
    - ``shared``, ``data``: the structures that the program takes
    - ``known``: shapes of single examples
    """

    spread: Spread
    layout: Layout
    program: Callable[..., Tree]
    leaves: tuple[_Leaf, ...]
    shared_weight: list[Any]
    weight: list[list[Any]]
    axes: tuple[int, int]
    full: bool
    used: tuple[Any, ...]
    shared: Any
    data: Any
    known: Shapes

    def repeat(
        self, given: Sequence[np.ndarray], states: Placed, hyperparams: Placed, *, check: bool
    ) -> list[Tree] | None:
        """Return what each turn of the program returns; None if every check is needed.

        ``check``: whether numbers of inputs and targets must be finite; weights are checked anyway.
        """
        check_not_forked()
        if (ready := self.arguments(given, check=check)) is None:
            return None
        shared, data = ready
        try:
            if len(data) == 1:
                first = states.by_call[0], hyperparams.by_call[0], data[0]
                return [self.program(shared, self.used[0], *first)]
            turns = zip(self.used, states.by_call, hyperparams.by_call, data, strict=True)
            return [self.program(shared, *each) for each in turns]
        except TypeError:  # the program takes other types, as when x64 was turned on since
            return None

    def arguments(
        self, given: Sequence[np.ndarray], *, check: bool
    ) -> tuple[Tree, list[Tree]] | None:
        """Return the shared arrays and the data of each turn; None if a value fails its check.

        Arguments as of :meth:`repeat`.
        """
        whole: list[Any] = []  # list[Any]() would take a quarter of a microsecond longer
        by_member: list[Any] = []
        for leaf, array in zip(self.leaves, given, strict=True):
            if leaf is _PLAIN and (not check or _all(_is_finite(array), None)):
                by_member.append(array)
            elif (ready := _taken(leaf, array, check=check)) is None:
                return None
            else:
                (whole if leaf.shared else by_member).append(ready)
        shared = self.shared.unflatten(whole + self.shared_weight)
        if len(self.weight) == 1 and self.full:
            packed = [array.reshape(*self.axes, *array.shape[1:]) for array in by_member]
            return shared, [self.data.unflatten(packed + self.weight[0])]
        data = [
            self.data.unflatten(
                [packed_leaf(each, turn, self.layout) for each in by_member] + weight
            )
            for turn, weight in enumerate(self.weight)
        ]
        return shared, data

    def on_host(self, turns: Sequence[Tree], members: int) -> Tree:
        """Return what the turns of the program returned as arrays (member, ...)."""
        if len(turns) > 1 or not isinstance(turns[0], jax.Array):
            return Placed(turns, self.layout, members).host
        copy = self.layout.chunks > 1
        return unpacked_leaf(np.asarray(turns[0]), members, copy=copy)  # in a fifth of the time


class Calls:
    """The calls that a swarm remembers, by the arrays that were given.

    It never changes, so that swarms and threads may share it.
    """

    def __init__(self, known: dict[Key, Call] | None = None):
        self._known = known or {}

    def get(self, given: Given) -> Call | None:
        """Return the call for such arrays."""
        return self._known.get(given.key)

    def adding(self, given: Given, call: Call | None) -> "Calls":
        """Return the calls with one more; beyond the limit, the oldest is dropped."""
        if call is None:
            return self
        others = [pair for pair in self._known.items() if pair[0] != given.key]
        return Calls(dict([*others[1 - _MOST :], (given.key, call)]))


def given(kind: str, *trees: Tree) -> Given | None:
    """Return the arrays of a call of this kind; None if every check is needed.

    ``trees``: inputs; or inputs, targets and weight.
    """
    for tree in trees:
        if isinstance(tree, list) or (isinstance(tree, Shared) and tree.rows is not None):
            return None  # lists of arrays are stacked, and rows checked
    leaves, structure = cast(tuple[list[Any], Any], jax.tree.flatten(trees))
    arrays: list[np.ndarray] = []
    key: list[Any] = [kind, structure, getattr(jax.config, "jax_enable_x64")]  # noqa: B009
    for leaf in leaves:
        array = leaf
        if type(leaf) is not np.ndarray:
            if not isinstance(leaf, jax.Array) or is_key(leaf):
                return None
            array = np.asarray(leaf)
        arrays.append(array)
        key.append(array.shape)
        key.append(array.dtype)
    return Given(arrays, tuple(key))


def learned(
    given: Given,
    trees: Sequence[Tree],
    data: Tree,
    *,
    function: Callable[..., Tree],
    spread: Spread,
    states: Placed,
    hyperparams: Placed,
    known: Shapes,
) -> Call | None:
    """Return what a fully checked call leaves to later calls; None if they need every check too.

    - ``given``, ``trees``: what the caller gave
    - ``data``: the data that were made from them
    - ``function``: takes one member's state, hyperparameters and data
    - ``spread``, ``known``: as of :class:`Call`
    - ``states``, ``hyperparams``: what the program took beside the data
    """
    layout, mesh = states.layout, spread.mesh
    if layout.calls > _MOST_TURNS or any(map(_hides_shared, trees)):
        return None
    kinds = [_leaf(leaf, tree, number) for number, tree in enumerate(trees) for leaf in _in(tree)]
    shared_weight, weight = list[Any](), [list[Any]() for _ in range(layout.calls)]
    if len(trees) > _WEIGHT and trees[_WEIGHT] is None:
        ones = data[_WEIGHT]
        if total_bytes(ones) > _MOST_BYTES:
            return None
        if isinstance(ones, Shared):
            shared_weight = _in(replicate(ones.values, mesh))
        else:
            weight = [[place_packed(ones, turn, layout, mesh)] for turn in range(layout.calls)]
    by_member, shared = split_shared(data)
    full = layout.calls * layout.at_once == states.members
    used = tuple(layout.used(turn, states.members) for turn in range(layout.calls))
    structures = cast(Any, jax.tree.structure(shared)), cast(Any, jax.tree.structure(by_member))
    call = Call(
        spread, layout, _no_program, tuple(kinds), shared_weight, weight,
        (layout.lanes, layout.per_lane), full, used, *structures, known,
    )  # fmt: skip
    with np.errstate(over="ignore"):  # of which the call itself has warned
        ready = call.arguments(given.leaves, check=False)
    if ready is None:
        return None
    args = ready[0], used[0], states.by_call[0], hyperparams.by_call[0], ready[1][0]
    return call._replace(program=program_of(function, mesh, layout).compiled(*args))


def _no_program(*_: Tree) -> Tree:
    raise NotImplementedError


def _in(tree: Tree) -> list[Any]:
    return jax.tree.leaves(tree)


def _hides_shared(tree: Tree) -> bool:
    """Return whether there are Shared arrays inside a tree."""
    leaves = jax.tree.leaves(tree, is_leaf=is_shared)
    return not is_shared(tree) and any(map(is_shared, leaves))


def _leaf(leaf: Any, tree: Tree, number: int) -> _Leaf:
    """Return what is done with an array of inputs (number 0), targets (1) or weight (2)."""
    dtype, shared = np.dtype(leaf.dtype), isinstance(tree, Shared)
    if number == _WEIGHT:
        return _Leaf(_Check.WEIGHT, None, shared)
    kept, check = jax.dtypes.canonicalize_dtype(dtype), _Check.NOTHING
    if jax.numpy.issubdtype(dtype, np.inexact):
        check = _Check.FINITE
    elif kept != dtype:
        check = _Check.FITS
    found = _Leaf(check, None if kept == dtype else kept, shared)
    return _PLAIN if found == _PLAIN else found


def _taken(leaf: _Leaf, array: np.ndarray, *, check: bool) -> np.ndarray | None:
    """Return an array of the type that the program takes; None if a value fails its check."""
    kind, dtype, _ = leaf
    if kind is _Check.WEIGHT:
        weight = array.astype(np.float32, copy=False)
        return weight if (np.isfinite(weight) & (weight >= 0)).all() else None
    if check and kind is _Check.FITS and not representable(array).all():
        return None
    if dtype is not None:
        with np.errstate(over="ignore" if check else None):
            array = array.astype(dtype)
    if check and kind is _Check.FINITE and not _all(_is_finite(array), None):
        return None
    return array
