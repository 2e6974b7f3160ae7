"""Describe what a function computes by a comparable value: its code and all that it reads.

Two functions of the same content give the same programs, so that the second one need not be traced.
Only the kinds of values listed here are read; a function that reads anything else is not shared.

Within a process, code, classes and mutable values are compared by identity. ``text_of`` describes
them by what they hold, so that other processes can compare it.
"""

import builtins
import dis
import functools
import hashlib
import operator
import site
import sys
import sysconfig
import types
from collections.abc import Hashable, Iterable, Iterator
from pathlib import Path
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

_MOST_BYTES = 2**24  # of an array that is read
_PLAIN = (type(None), bool, int, float, complex, str, bytes)
_LISTED = (tuple, list, set, frozenset)
_CUSTOM = (jax.custom_jvp, jax.custom_vjp)
_JITTED = type(jax.jit(lambda: None))

# Libraries whose functions depend on nothing but their arguments and the settings of JAX
_LIBRARIES = {
    "chex", "distrax", "einops", "equinox", "flax", "forecaster", "jax", "jaxlib", "jaxtyping",
    "ml_dtypes", "numpy", "optax",
}  # fmt: skip
_STANDARD = {
    "__future__", "_abc", "_functools", "_operator", "abc", "collections", "dataclasses",
    "functools", "itertools", "math", "operator", "typing",
}  # fmt: skip
_BUILTINS = {
    "abs", "all", "any", "bool", "bytes", "callable", "classmethod", "complex", "dict", "divmod",
    "enumerate", "filter", "float", "frozenset", "int", "isinstance", "issubclass", "len", "list",
    "map", "max", "min", "object", "pow", "print", "property", "range", "repr", "reversed", "round",
    "set", "slice", "sorted", "staticmethod", "str", "sum", "super", "tuple", "type", "zip",
    "NotImplemented", "Ellipsis",
}  # fmt: skip
_IMPURE = {  # functions of NumPy that read files or the clock
    "datetime64", "fromfile", "genfromtxt", "get_annotations", "get_type_hints", "loadtxt",
    "memmap",
}  # fmt: skip
_IMPURE_WORDS = {  # of names of functions that read files, or what a program has set
    "attrgetter", "checkpoints", "datasource", "deserialise", "deserialize", "fromregex", "geterr",
    "geterrcall", "live", "load", "loads", "methodcaller", "open", "printoptions", "read",
    "restore",
}  # fmt: skip
_METHODS = {"__init__", "__call__", "__post_init__", "__setattr__", "__getitem__", "__len__"}
_NO_MATTER = {  # attributes of a class that no code here reads, see _names
    "__module__", "__qualname__", "__doc__", "__dict__", "__weakref__", "__annotations__",
    "__abstractmethods__", "__parameters__", "__orig_bases__", "_abc_impl", "__annotate_func__",
    "__annotations_cache__", "__firstlineno__", "__static_attributes__",
}  # fmt: skip


class Unreadable(Exception):
    """Raised for a value that may change without a trace."""


class Content:
    """Reads values; ``kept`` are the objects that it knows by identity and that must stay alive."""

    def __init__(self):
        self.kept: list[Any] = []
        self._seen: dict[int, int] = {}

    def of(self, value: Any) -> Hashable:
        """Return what decides the behaviour of a value. Raises Unreadable."""
        if type(value) in _PLAIN:
            return type(value).__name__, repr(value)
        if id(value) in self._seen:  # a function may refer to itself
            return "seen", self._seen[id(value)]
        self._seen[id(value)] = len(self._seen)
        self.kept.append(value)
        if _is_of_library(value):
            return "itself", self._which(value)
        return self._of_object(value)

    def _which(self, value: Any) -> Hashable:
        """Return what tells a code, a class, a function or a mutable value from others."""
        return id(value)

    def _of_object(self, value: Any) -> Hashable:
        kind = cast(Any, type(value))
        attributes = cast(dict[str, Any], getattr(value, "__dict__", {}))
        if isinstance(value, jax.Array) or kind is np.ndarray or _is_scalar(value):
            return self._numbers(value)
        if kind is dict:
            return self._which(value), tuple((self.of(key), self.of(value[key])) for key in value)
        if kind is _nodes_of_flax():
            return "nodes", self._named(dict(value))
        if kind in _LISTED or _is_named_tuple(value):
            mutable = kind in (list, set)  # changed, it is no longer equal to another
            return self._which(value if mutable else kind), tuple(map(self.of, value))
        if kind is functools.partial:
            keywords = tuple((name, self.of(each)) for name, each in value.keywords.items())
            return (
                "partial",
                self.of(value.func),
                self.of(value.args),
                keywords,
                self._named(attributes),
            )
        if kind is types.FunctionType:
            return self._of_function(value)
        if kind in _CUSTOM:  # its rules are among its attributes
            return "custom", self._which(value), self._named(attributes)
        if kind is _JITTED:
            return "jitted", self._which(value), self.of(value.__wrapped__)
        if isinstance(value, type):
            return self._of_class(value)
        if isinstance(value, np.dtype) and not value.hasobject and value.names is None:
            return "dtype", str(cast(object, value))
        raise Unreadable(kind.__qualname__)

    def _of_function(self, function: types.FunctionType) -> Hashable:
        code = function.__code__
        self.kept.append(code)
        held = tuple(map(self._held, function.__closure__ or ()))
        named = self._named(function.__kwdefaults__ or {}), self._named(vars(function))
        parts = self.of(function.__defaults__), named, held
        if _is_installed(code.co_filename):
            if _is_impure(code.co_name):
                raise Unreadable(code.co_name)
            return self._which(code), parts
        bound = function.__globals__
        self._check_libraries(code, bound)
        names = sorted(set(_names(code, bound)))
        return self._which(code), parts, tuple((name, self.of(bound[name])) for name in names)

    def _check_libraries(self, code: types.CodeType, bound: dict[str, Any]) -> None:
        """Raise Unreadable where a code uses an attribute of a library that is not the library's.

        Within a process such attributes are taken as they are.
        """

    def _held(self, cell: types.CellType) -> Hashable:
        try:
            return self.of(cell.cell_contents)
        except ValueError:  # not assigned yet
            return "empty"

    def _of_class(self, made: type) -> Hashable:
        if type(made) is not type and not _is_of_library(type(made)):
            raise Unreadable(made.__qualname__)  # attributes of the class's own class
        own = self._named({name: _function_of(value) for name, value in vars(made).items()})
        return "class", self._which(made), tuple(map(self.of, made.__bases__)), own

    def _named(self, attributes: dict[str, Any]) -> Hashable:
        names = sorted(attributes.keys() - _NO_MATTER)
        return tuple((name, self.of(attributes[name])) for name in names)

    def _numbers(self, array: Any) -> Hashable:
        if isinstance(array, Tracer) or array.nbytes > _MOST_BYTES:
            raise Unreadable("array")
        kind, place = cast(Any, type(array)), str(getattr(array, "sharding", ""))
        whose = self._which(array if kind is np.ndarray else kind)
        about = whose, place, str(array.dtype), getattr(array, "weak_type", False)
        if jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
            with jax.ensure_compile_time_eval():  # a function that is being traced may be read
                about += (str(jax.random.key_impl(array)),)
                array = jax.random.key_data(array)
        raw = np.asarray(array)
        if raw.dtype.hasobject or raw.dtype.names is not None:
            raise Unreadable("array of objects")
        digest = hashlib.sha256(np.ascontiguousarray(raw).tobytes()).hexdigest()
        return "array", about, raw.shape, raw.strides, digest


def _nodes_of_flax() -> Any:
    """Return the class of what Flax keeps of each class of modules; None if Flax is not loaded."""
    nodes = getattr(getattr(sys.modules.get("flax.nnx"), "Module", None), "_pytree__nodes", None)
    return None if nodes is None else cast(Any, type)(nodes)


class _Lasting(Content):
    """Reads values as :class:`Content` does, and names nothing by an identity of this process."""

    def _which(self, value: Any) -> Hashable:
        if isinstance(value, types.CodeType):
            return _of_code(value)
        if type(value) is types.ModuleType:
            return "module", value.__name__
        if type(value) in (dict, list, np.ndarray, *_CUSTOM):
            return type(value).__name__
        if isinstance(value, type) and _is_of_library(value):
            _check_own(value)
        name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
        if type(value) is _JITTED and not _is_of_library(value):
            raise Unreadable("jitted")  # its static arguments and the like are not read
        if name is None:
            raise Unreadable(type(value).__qualname__)
        return value.__module__, name

    def _of_object(self, value: Any) -> Hashable:
        if type(value) in (set, frozenset):
            return type(value).__name__, _sorted(value)
        return super()._of_object(value)

    def _of_class(self, made: type) -> Hashable:
        registered = _registration(made)
        how = None if registered is None else tuple(map(self.of, registered))
        return super()._of_class(made), how

    def _check_libraries(self, code: types.CodeType, bound: dict[str, Any]) -> None:
        reached: Any = None
        for step in dis.get_instructions(code):
            if step.opname == "LOAD_GLOBAL":
                reached = bound.get(step.argval)
            elif step.opname in ("LOAD_ATTR", "LOAD_METHOD") and type(reached) is types.ModuleType:
                reached = getattr(reached, step.argval, None)
                if type(reached) is not types.ModuleType and type(reached) not in _PLAIN:
                    _check_own(reached)
            elif step.opname != "CACHE":
                reached = None
        for inner in code.co_consts:
            if isinstance(inner, types.CodeType):
                self._check_libraries(inner, bound)


def _check_own(value: Any) -> None:
    """Raise Unreadable for what a library does not have by itself, as where it was replaced."""
    if not _is_of_library(value):
        raise Unreadable(f"{value!r:.60}")
    for part in vars(value).values() if isinstance(value, type) else (value,):
        function = getattr(part, "__func__", part)
        if type(function) is types.FunctionType:
            file = function.__code__.co_filename
            if not (_is_installed(file) or file.startswith("<")):  # generated, as by dataclass
                raise Unreadable(f"{value!r:.60}")


def _registration(made: type) -> tuple[Any, Any] | None:
    """Return how a class of one's own is taken apart and put together as a pytree; None if not."""
    if any(_is_of_library(base) and base is not object for base in made.__mro__[1:]):
        return None  # the library has registered it
    # Private to JAX; without it another registration of a class is not noticed.
    registry = getattr(sys.modules.get("jax._src.tree_util"), "_registry", {})
    entry = registry.get(made)
    return None if entry is None else (entry.to_iter, entry.from_iter)


def _of_code(code: types.CodeType) -> Hashable:
    """Return all of a code that decides what it does."""
    return (
        code.co_code, tuple(map(_constant, code.co_consts)), code.co_names, code.co_varnames,
        code.co_freevars, code.co_cellvars, code.co_flags, code.co_argcount,
        code.co_posonlyargcount, code.co_kwonlyargcount, code.co_exceptiontable, code.co_name,
    )  # fmt: skip


def _constant(value: Any) -> Hashable:
    if isinstance(value, types.CodeType):
        return _of_code(value)
    if isinstance(value, tuple):
        return tuple(map(_constant, cast(tuple[Any, ...], value)))
    if isinstance(value, frozenset):
        return _sorted(cast(frozenset[Any], value))
    return type(value).__name__, repr(value)


def _sorted(values: Iterable[Any]) -> Hashable:
    """Return the values of a set in an order that does not depend on the process."""
    if any(type(value) not in _PLAIN for value in values):
        raise Unreadable("set")
    return tuple(sorted((type(value).__name__, repr(value)) for value in values))


def text_of(value: Any) -> str:
    """Return a text of what decides a value's behaviour, the same in all processes.

    Raises Unreadable, and RecursionError for values that are nested too deeply.
    """
    return hashlib.sha256(repr(_Lasting().of(value)).encode()).hexdigest()


def _is_scalar(value: object) -> bool:
    library = type(value).__module__
    return isinstance(value, np.generic) and library in ("numpy", "ml_dtypes")


def _is_named_tuple(value: Any) -> bool:
    """Return whether a value is a named tuple of a library and has no other attributes."""
    named = isinstance(value, tuple) and _is_of_library(type(cast(object, value)))
    return named and not getattr(cast(object, value), "__dict__", None)


def _function_of(value: Any) -> Any:
    if type(value) in (classmethod, staticmethod):
        return type(value).__name__, value.__func__
    return ("property", value.fget, value.fset) if type(value) is property else value


def _names(code: types.CodeType, bound: dict[str, Any]) -> Iterator[str]:
    """Yield the names of globals that a code and the functions inside it read.

    Raises Unreadable where it may read anything else, as files, the environment or the clock.
    """
    steps = [step for step in dis.get_instructions(code) if step.opname != "CACHE"]
    for at, step in enumerate(steps):
        name, kind = step.argval, step.opname
        if kind in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"):
            if name in bound:
                yield name
            elif (kind == "LOAD_GLOBAL" or hasattr(builtins, name)) and not _is_harmless(name):
                raise Unreadable(name)
        elif kind == "IMPORT_NAME":
            if steps[at - 2].argval != 0 or not _is_library(name):  # a relative one, or another
                raise Unreadable(name)
        elif kind in ("IMPORT_STAR", "STORE_GLOBAL", "DELETE_GLOBAL"):
            raise Unreadable(kind)
        elif kind in ("LOAD_ATTR", "LOAD_METHOD", "IMPORT_FROM", "LOAD_SUPER_ATTR"):
            of_jax = kind != "IMPORT_FROM" and steps[at - 1].opname == "LOAD_GLOBAL"
            library = bound.get(steps[at - 1].argval) if of_jax else None
            of_jax = library is jax or library is sys.modules.get("flax", jax)
            hidden = name.startswith("__") and name not in _METHODS
            if hidden or _is_impure(name) or name == ("config" if of_jax else "random"):
                raise Unreadable(name)  # the module random is harmless in JAX alone
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            yield from _names(inner, bound)


def _is_harmless(name: str) -> bool:
    """Return whether a builtin gives the same result at any time."""
    made = getattr(builtins, name, None)
    return name in _BUILTINS or (isinstance(made, type) and issubclass(made, BaseException))


def _is_impure(name: str) -> bool:
    """Return whether a library's function may read or write anything, when traced or when run."""
    words = name.lower().split("_")
    return name in _IMPURE or "callback" in name or not _IMPURE_WORDS.isdisjoint(words)


def _is_of_library(value: Any) -> bool:
    """Return whether a value is a module of a library, or is found in one by its name."""
    if type(value) is types.ModuleType:
        return sys.modules.get(value.__name__) is value and _is_library(value.__name__)
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    name = name or getattr(value, "__name__", None)
    if type(module) is not str or type(name) is not str:
        return False
    if module == "builtins":
        return _is_harmless(name) and getattr(builtins, name, None) is value
    if not _is_library(module) or _is_impure(name):
        return False
    try:
        return operator.attrgetter(name)(sys.modules[module]) is value
    except AttributeError:
        return False


def _is_library(name: str) -> bool:
    """Return whether a module belongs to one of the libraries that are known."""
    top = name.partition(".")[0]
    if name == "numpy.random" or name.startswith("numpy.random."):
        return False
    file = getattr(sys.modules.get(name), "__file__", None)
    if top in _STANDARD:
        standard = Path(sysconfig.get_path("stdlib")).resolve()
        return (
            top in sys.builtin_module_names
            or (file is not None and Path(file).resolve().is_relative_to(standard))
            or (name in sys.modules and file is None)
        )  # frozen
    return top in _LIBRARIES and file is not None and _is_installed(file)


@functools.cache
def _installed() -> tuple[Path, ...]:
    sites = [Path(path) for path in (*site.getsitepackages(), site.getusersitepackages())]
    sites += [Path(sysconfig.get_path("purelib")), Path(sysconfig.get_path("platlib"))]
    folders = {folder.resolve() / name for folder in sites for name in _LIBRARIES}
    stdlib = Path(sysconfig.get_path("stdlib")).resolve()
    files = {stdlib / f"{name}.py" for name in _STANDARD} | {stdlib / "collections"}
    return (*folders, *files, Path(__file__).resolve().parents[2])


@functools.lru_cache(maxsize=1024)
def _is_installed(file: str) -> bool:
    """Return whether a file belongs to a library, whose names nobody binds anew."""
    if not Path(file).is_absolute():  # as "<stdin>"
        return False
    path = Path(file).resolve()
    return any(path.is_relative_to(folder) for folder in _installed())
