"""Compiled programs on disk that are found without tracing, by what their functions compute.

JAX's own cache names a program by its lowered code, so that a new process traces and lowers every
function before it finds one: 0.3 s for a small network, 1 s for a large one, 5 s for a default fit
(an AMD EPYC, 2026-11). Here a function comes with a description of what it computes. A program's
name is a hash of that description and of everything else that decides the code: shapes, devices,
the compiler's options, JAX's settings, the processor, and the versions of the libraries.

Files hold what JAX serialises, with a checksum. Like JAX's cache, they hold machine code, so a
folder of them must be as safe from others as a folder of programs.
"""

import contextlib
import functools
import hashlib
import os
import pickle
import platform
import sys
import tempfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

import jax
import numpy as np

from forecaster.swarm.devices import compiled
from forecaster.swarm.native import library

_LIBRARIES = (
    "jax", "jaxlib", "flax", "optax", "numpy", "chex", "distrax", "einops", "equinox", "jaxtyping",
    "ml_dtypes",
)  # fmt: skip
_Function = TypeVar("_Function", bound=Callable[..., Any])
_Value = TypeVar("_Value")
Description = Callable[[], str | None]
"""Returns a text that says what a function computes; None if it cannot be told."""


def described(function: _Function, description: Description) -> _Function:
    """Attach a description to a function of one member, and return the function.

    Functions of the same description must compute the same, in all processes. Everything that
    decides what is traced belongs into it: settings, closures, other functions. Changes in this
    package's code, and other versions of JAX, Flax, Optax and NumPy, are noticed by themselves.
    """
    setattr(function, _MARK, (function, description))
    return function


_MARK = "_described"


def description_of(function: Callable[..., Any]) -> Description | None:
    """Return the description that was attached to a function, not to one that it wraps."""
    marked, description = getattr(function, _MARK, (None, None))
    return description if marked is function else None


def name_of(description: Description | None, *decisive: object) -> str | None:
    """Return a program's name on disk; None if it is not kept there.

    ``decisive``: what decides the code beside the function and the process, with texts that are the
    same in every process.
    """
    if description is None or compiled.own_folder() is None:
        return None
    if (said := description()) is None:
        return None
    parts = said, *decisive, _of_process(), _settings(), os.environ.get("XLA_FLAGS", "")
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()


def load(name: str, devices: Sequence[Any]) -> Any | None:
    """Return the executable of this name for these devices; None if there is none."""
    if (folder := compiled.own_folder()) is None:
        return None
    if (parts := _read(_path(folder, name))) is None:
        return None
    try:
        from jax.experimental import serialize_executable

        library.kernel_status()  # loads the compiled code that programs call
        return cast(Any, serialize_executable.deserialize_and_load)(
            *parts, backend=devices[0].client, execution_devices=devices
        )
    except Exception:  # XLA may refuse what it wrote
        return None


def compiled_and_kept(name: str, devices: Sequence[Any], compile_it: Callable[[], Any]) -> Any:
    """Return what ``compile_it`` returns, an executable, and write it to disk under this name.

    It is read again at once. Where that fails, as for types that cannot be pickled, or under a
    version of JAX that serialises programs in another way, an empty file is written instead: later
    processes then leave the program to JAX's own cache.
    """
    folder = compiled.own_folder()
    if folder is None or _read(_path(folder, name)) == _LEFT_TO_JAX:
        with compiled.kept():
            return compile_it()
    with compiled.compiled_anew():
        executable = compile_it()
    path = _path(folder, name)
    try:
        from jax.experimental import serialize_executable

        packed = _packed(cast(Any, serialize_executable.serialize)(executable))
    except Exception:
        _write(path, _packed(_LEFT_TO_JAX))
        return executable
    if _write(path, packed) and load(name, devices) is None:
        _write(path, _packed(_LEFT_TO_JAX))
    return executable


_LEFT_TO_JAX = ()


def recalled(
    compute: Callable[[], _Value], description: Description | None, *decisive: object
) -> _Value:
    """Return a small value that tracing gives, from disk if another process has computed it.

    ``description``, ``decisive``: as of :func:`name_of`
    """
    name, folder = name_of(description, *decisive), compiled.own_folder()
    if name is None or folder is None:
        return compute()
    path = _path(folder, name)
    if (known := _read(path)) is None:
        known = (compute(),)
        with contextlib.suppress(Exception):  # of types that cannot be pickled
            _write(path, _packed(known))
    return known[0]


def _path(folder: str, name: str) -> Path:
    return Path(folder, name + compiled.STORED)


def shapes_of(tree: Any) -> tuple[str, list[tuple[Any, ...]]]:
    """Return the structure of a tree, and shapes and types of its arrays."""
    leaves, structure = cast(tuple[list[Any], Any], jax.tree.flatten(tree))
    kinds = [getattr(leaf, "dtype", None) or np.asarray(leaf).dtype for leaf in leaves]
    return str(structure), [
        (np.shape(leaf), str(of)) for leaf, of in zip(leaves, kinds, strict=True)
    ]


def _read(path: Path) -> tuple[Any, ...] | None:
    """Return the parts of a file; None if it is missing or damaged, or this process cannot read it.

    Classes of the parts may be missing in this process.
    """
    try:
        content = path.read_bytes()
        if not _is_whole(content):
            path.unlink(missing_ok=True)
            return None
        os.utime(path)  # it was used
        return pickle.loads(zlib.decompress(content[_CHECKSUM:]))
    except Exception:
        return None


def _packed(parts: tuple[Any, ...]) -> bytes:
    """Return the content of a file, with a checksum."""
    packed = zlib.compress(pickle.dumps(parts), 1)
    return hashlib.sha256(packed).digest() + packed


def _write(path: Path, content: bytes) -> bool:
    """Write a file; return whether that was possible."""
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        number, temporary = tempfile.mkstemp(dir=path.parent, suffix=compiled.UNFINISHED)
        with os.fdopen(number, "wb") as file:
            file.write(content)
        Path(temporary).replace(path)
        return True
    except OSError:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
        return False


_CHECKSUM = 32  # bytes of SHA-256


def _is_whole(content: bytes) -> bool:
    """Return whether a file has all that was written to it."""
    return content[:_CHECKSUM] == hashlib.sha256(content[_CHECKSUM:]).digest()


@functools.cache
def _of_process() -> tuple[object, ...]:
    """Return what decides the code of all programs of this process."""
    return platform.python_version(), _versions(), compiled.processor(), _of_package()


def _versions() -> list[str]:
    """Return names and versions of the libraries, as of the folders that describe installed ones.

    ``importlib.metadata.version`` takes ten times as long.
    """
    found: list[str] = []
    for folder in sys.path:
        with contextlib.suppress(OSError):
            for name in os.listdir(folder or "."):  # noqa: PTH208, faster
                library, _, rest = name.partition("-")
                if library in _LIBRARIES and rest.endswith((".dist-info", ".egg-info")):
                    found.append(name)
    return sorted(found)


def _of_package() -> str:
    """Return a hash of sizes and times of this package's files."""
    about: list[tuple[str, int, int]] = []
    folders = [str(Path(__file__).parents[2])]
    for folder in folders:  # which grows meanwhile
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.endswith((".py", ".so")):
                    stat = entry.stat()
                    about.append((entry.path, stat.st_size, stat.st_mtime_ns))
                elif entry.is_dir() and entry.name != "__pycache__":
                    folders.append(entry.path)
    return hashlib.sha256(repr(sorted(about)).encode()).hexdigest()


def _settings() -> list[tuple[str, str]]:
    """Return JAX's settings as text, without those of its cache; and what the kernels do."""
    names = sorted(cast(dict[str, Any], jax.config.values))
    cached = "compilation_cache", "persistent_cache"
    settings = [
        (name, str(getattr(jax.config, name, None)))
        for name in names
        if not any(part in name for part in cached)
    ]
    return [
        *settings,
        ("kernel", str(library.kernel_status())),
        ("bfloat16", str(library.bfloat16_status())),
    ]
