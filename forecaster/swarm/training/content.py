"""What a function computes, as a value to compare by: its code and all that it reads.

Two functions of the same content give the same programs, so that the second one need not be traced.
What cannot be read with certainty has no content, and nothing is shared.
"""

import dis
import functools
import hashlib
import site
import sys
import sysconfig
import types
from collections.abc import Hashable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

_MOST_BYTES = 2**24  # of an array that is read


class Unreadable(Exception):
    """Raised for a value that may change without a trace."""


class Content:
    """Reads values; ``kept`` are the objects that it knows by identity and that must stay alive."""

    def __init__(self):
        self.kept: list[Any] = []
        self._seen: dict[int, int] = {}

    def of(self, value: Any) -> Hashable:
        """Return what decides the behaviour of a value. Raises Unreadable."""
        if value is None or isinstance(value, bool | int | float | complex | str | bytes):
            return type(value).__name__, repr(value)
        if id(value) in self._seen:  # a function may refer to itself
            return "seen", self._seen[id(value)]
        self._seen[id(value)] = len(self._seen)
        self.kept.append(value)
        return self._of_object(value)

    def _of_object(self, value: Any) -> Hashable:
        if isinstance(value, np.ndarray | jax.Array | np.generic):
            return _numbers(value)
        if isinstance(value, Mapping):
            named = cast(Mapping[Any, Any], value)
            return "dict", tuple((self.of(key), self.of(named[key])) for key in named)
        if isinstance(value, tuple | list):
            kind = type(cast(object, value))
            return kind, tuple(map(self.of, cast(list[Any], value)))
        if isinstance(value, functools.partial):
            part = cast(Any, value)
            return "partial", self.of(part.func), self.of(part.args), self.of(part.keywords)
        if isinstance(value, types.MethodType):
            return "method", self.of(value.__func__), self.of(value.__self__)
        if isinstance(value, types.FunctionType):
            return self._of_function(value)
        if isinstance(value, type):
            return self._of_class(value)
        if isinstance(value, types.ModuleType) and not _is_library(value.__name__):
            raise Unreadable(value.__name__)  # its names may be bound anew
        if isinstance(value, np.dtype | types.ModuleType) or _is_fixed(value):
            wrapped = getattr(cast(object, value), "__wrapped__", None)
            return "itself", id(cast(object, value)), self.of(wrapped)
        raise Unreadable(repr(value)[:80])

    def _of_function(self, function: types.FunctionType) -> Hashable:
        held = tuple(map(self._held, function.__closure__ or ()))
        parts = self.of(function.__defaults__), self.of(function.__kwdefaults__), held
        code = function.__code__
        self.kept.append(code)
        if _is_installed(code.co_filename):
            return id(code), parts
        read = tuple(
            (name, self.of(function.__globals__[name]))
            for name in sorted(_globals(code))
            if name in function.__globals__
        )
        return id(code), parts, read

    def _held(self, cell: types.CellType) -> Hashable:
        try:
            return self.of(cell.cell_contents)
        except ValueError:  # not assigned yet
            return "empty"

    def _of_class(self, made: type) -> Hashable:
        if _is_library(made.__module__):
            return "itself", id(made)
        own = tuple(
            (name, self.of(_function_of(value)))
            for name, value in sorted(vars(made).items())
            if _counts(name, value)
        )
        return "class", made.__qualname__, tuple(map(self.of, made.__bases__)), own


def _numbers(array: Any) -> Hashable:
    if isinstance(array, Tracer) or array.nbytes > _MOST_BYTES:
        raise Unreadable("array")
    if jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        array = jax.random.key_data(array)
    raw = np.ascontiguousarray(np.asarray(array))
    return "array", raw.shape, str(raw.dtype), hashlib.sha256(raw.tobytes()).hexdigest()


def _is_fixed(value: object) -> bool:
    """Return whether a value is a function of a library that is no Python function."""
    library = type(value).__module__.partition(".")[0]
    return callable(value) and library in ("builtins", "jax", "jaxlib", "numpy")


def _counts(name: str, value: object) -> bool:
    """Return whether an attribute of a class may decide what its objects compute."""
    if isinstance(value, types.FunctionType | classmethod | staticmethod | property):
        return True
    return not (name.startswith("__") or name.startswith("_pytree_") or name == "_abc_impl")


def _function_of(value: Any) -> Any:
    if isinstance(value, classmethod | staticmethod):
        return cast(Any, value).__func__
    return (value.fget, value.fset) if isinstance(value, property) else value


def _globals(code: types.CodeType) -> Iterator[str]:
    """Yield the names of globals that a code and the functions inside it read."""
    for step in dis.get_instructions(code):
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            yield step.argval
        if step.opname == "IMPORT_NAME" and not _is_library(step.argval):
            raise Unreadable(step.argval)
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            yield from _globals(inner)


def _is_library(name: str) -> bool:
    """Return whether a module is one of Python or of an installed library."""
    if name in sys.builtin_module_names:
        return True
    file = getattr(sys.modules.get(name), "__file__", None)
    return file is not None and _is_installed(file)


@functools.cache
def _installed() -> tuple[str, ...]:
    paths = {*site.getsitepackages(), site.getusersitepackages(), sysconfig.get_path("stdlib")}
    ours = Path(__file__).parents[2]
    return (*(str(Path(path).resolve()) for path in paths if path), str(ours))


@functools.lru_cache(maxsize=1024)
def _is_installed(file: str) -> bool:
    """Return whether a file belongs to a library, whose names nobody binds anew."""
    if file.startswith("<frozen"):
        return True
    return str(Path(file).resolve()).startswith(_installed())
