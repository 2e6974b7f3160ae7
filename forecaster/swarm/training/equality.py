"""Whether two functions, models or settings do the same, as far as can be told."""

import collections
import dis
import functools
import itertools
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias, cast

import jax
import jax.numpy as jnp
import numpy as np

from forecaster.swarm.task import AnyArray

Globals: TypeAlias = dict[str, Any]
"""Values of globals, by the way that leads to them."""

_MOST = 1000  # values that are looked at for the globals they name


def same_function(one: Any, other: Any) -> bool:
    """Whether two functions do the same: one object, or the same code on the same values."""
    return _same(one, other, frozenset())


def globals_named(value: Any) -> Globals:
    """The globals that functions name, with the values they have now.

    ``value``: a function, or tuples, methods and classes of such. Functions and classes among the
    globals are followed where they are of the same module: libraries do not change. At most 1000
    values are looked at, the nearest first.
    """
    found: Globals = {}
    seen: dict[int, Any] = {}  # the values, too: an id is one's own only as long as one lives
    to_come = collections.deque([("", value)])
    while to_come and len(seen) < _MOST:
        way, one = to_come.popleft()
        if id(one) in seen:
            continue
        seen[id(one)] = one
        if isinstance(one, types.FunctionType):
            for name in _names(one.__code__):
                if name in one.__globals__:
                    found[f"{way}.{name}"] = known = one.__globals__[name]
                    if getattr(known, "__module__", None) == one.__module__:
                        to_come.append((f"{way}.{name}", known))
        inner = vars(one).values() if isinstance(one, type) else _parts(one) or ()
        for number, part in enumerate(itertools.islice(inner, _MOST)):
            to_come.append((f"{way}[{number}]", part))
    return found


def changed_globals(before: Globals, now: Globals) -> list[str]:
    """The names of globals that have another value; those on one side alone do not count."""
    return sorted(
        {
            way.rpartition(".")[2]
            for way in before.keys() & now.keys()
            if not _same(before[way], now[way], frozenset())
        }
    )


@functools.lru_cache(maxsize=1024)
def _names(code: types.CodeType) -> tuple[str, ...]:
    """The globals that code names, that of functions inside it, too."""

    def each(code: types.CodeType) -> Iterator[str]:
        for step in dis.get_instructions(code):
            if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                yield step.argval
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                yield from each(constant)

    return tuple(dict.fromkeys(each(code)))


def _same(one: Any, other: Any, above: frozenset[tuple[int, int]]) -> bool:
    """The same; ``above``: pairs under comparison, for functions that refer to themselves."""
    if one is other or (id(one), id(other)) in above:
        return True
    above |= {(id(one), id(other))}
    if _is_array(one) or _is_array(other):
        return _is_array(one) and _is_array(other) and _same_array(one, other)
    ours, theirs = _parts(one), _parts(other)
    if ours is not None and theirs is not None:
        return len(ours) == len(theirs) and all(
            _same(mine, yours, above) for mine, yours in zip(ours, theirs, strict=True)
        )
    try:
        return bool(np.all(one == other))
    except (TypeError, ValueError):  # what cannot be compared, such as tables of other shapes
        return False


def _parts(value: Any) -> Sequence[Any] | None:
    """What decides what a value does; None for one that has no parts."""
    if isinstance(value, tuple | list):
        return cast(Sequence[Any], value)
    if isinstance(value, Mapping):
        known = cast(Mapping[Any, Any], value)
        names = sorted(known, key=repr)
        return [*names, *(known[name] for name in names)]
    if isinstance(value, functools.partial):
        part = cast(Any, value)
        return part.func, part.args, part.keywords
    if isinstance(value, types.MethodType):
        return value.__func__, value.__self__
    if isinstance(value, types.FunctionType):
        return value.__code__, value.__defaults__, value.__kwdefaults__, _closure(value)
    return None


def _closure(function: types.FunctionType) -> list[Any]:
    """The values that a function has from around it; those that it will only get are left out."""
    values: list[Any] = []
    for cell in function.__closure__ or ():
        try:
            values.append(cell.cell_contents)
        except ValueError:
            values.append(None)
    return values


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray | jax.Array)


def _same_array(one: AnyArray, other: AnyArray) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if jnp.issubdtype(one.dtype, jax.dtypes.prng_key):
        one, other = (jax.random.key_data(cast(jax.Array, key)) for key in (one, other))
    return np.asarray(one).tobytes() == np.asarray(other).tobytes()
