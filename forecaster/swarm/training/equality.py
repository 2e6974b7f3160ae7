"""Whether two functions compute the same, by their code and the values they hold."""

import functools
import types
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, cast

import jax
import jax.numpy as jnp
import numpy as np

_Pairs: TypeAlias = frozenset[tuple[int, int]]


def same_function(one: Any, other: Any, _compared: _Pairs = frozenset()) -> bool:
    """Return whether two functions, or settings, are equal or the same code with equal values.

    The values are defaults and closures. Globals that the functions read are not compared.
    """
    pair = id(one), id(other)
    if one is other or pair in _compared:  # the latter where a function refers to itself
        return True
    ours, theirs = _parts(one), _parts(other)
    if ours is not None and theirs is not None:
        same = functools.partial(same_function, _compared=_compared | {pair})
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    if _is_array(one) or _is_array(other):
        return _is_array(one) and _is_array(other) and _content(one) == _content(other)
    try:
        return bool(one == other)
    except (TypeError, ValueError):  # cannot be compared
        return False


def _parts(value: Any) -> Sequence[Any] | None:
    """Return the parts that determine a value's behaviour; None for a value without parts."""
    if isinstance(value, tuple | list):
        return cast(Sequence[Any], value)
    if isinstance(value, Mapping):
        known = cast(Mapping[Any, Any], value)
        return [part for name in sorted(known, key=repr) for part in (name, known[name])]
    if isinstance(value, functools.partial):
        part = cast(Any, value)
        return part.func, part.args, part.keywords
    if isinstance(value, types.MethodType):
        return value.__func__, value.__self__
    if isinstance(value, types.FunctionType):
        held = [_held(cell) for cell in value.__closure__ or ()]
        return value.__code__, value.__defaults__, value.__kwdefaults__, held
    return None


def _held(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return None


def _is_array(value: object) -> bool:
    return isinstance(value, np.ndarray | jax.Array)


def _content(array: Any) -> tuple[tuple[int, ...], str, bytes]:
    is_key = jnp.issubdtype(array.dtype, jax.dtypes.prng_key)
    numbers = jax.random.key_data(array) if is_key else array
    return array.shape, str(array.dtype), np.asarray(numbers).tobytes()
