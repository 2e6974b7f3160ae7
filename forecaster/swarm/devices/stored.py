"""Compiled programs on disk that are found without tracing, by what their functions compute.

JAX's own cache names a program by its lowered code, so that a new process traces and lowers every
function before it finds one: 0.3 s for a small network, 1 s for a large one, 5 s for a default fit
(an AMD EPYC, 2026-11). Here a function comes with a description of what it computes. A program's
name is a hash of that description and of everything else that decides the code: shapes, devices,
the compiler's options, JAX's settings, the processor, and the versions of the libraries.

Files hold what JAX serialises, with a checksum. Like JAX's cache, they hold machine code, so only
those are read that no other user can have written.
"""

import contextlib
import functools
import hashlib
import os
import pickle
import platform
import sys
import threading
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
    decides what is traced belongs into it: settings, closures, other functions. Noticed without it
    are other versions of JAX, Flax, Optax and NumPy, and changes in the files of this package; not
    attributes of a library that a program replaces, nor changes in a library's files.
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
    if description is None or not _PACKAGE or compiled.own_folder() is None:
        return None
    if (said := description()) is None:
        return None
    parts = said, *decisive, _of_process(), settings(), _environment()
    text = "\0".join(map(str, parts))
    return None if " at 0x" in text else hashlib.sha256(text.encode()).hexdigest()


def load(name: str, devices: Sequence[Any], structure: Any) -> Any | None:
    """Return the executable of this name for these devices; None if there is none.

    ``structure``: that of the arguments by position.
    """
    if (folder := compiled.own_folder()) is None:
        return None
    if not (parts := _read(_path(folder, name))):
        return None
    try:
        from jax.experimental import serialize_executable

        library.kernel_status()  # loads the compiled code that programs call
        loaded = cast(Any, serialize_executable.deserialize_and_load)(
            *parts, backend=devices[0].client, execution_devices=list(devices)
        )
        return loaded if takes(loaded, structure) else None
    except Exception:  # XLA may refuse what it wrote
        return None


def takes(executable: Any, structure: Any) -> bool:
    """Return whether an executable takes arguments of a structure.

    Values inside a structure may differ though their texts, and so the names, are equal.
    """
    return bool(cast(Any, jax.tree.structure(executable.args_info[0])) == structure)


def compiled_and_kept(
    name: str, devices: Sequence[Any], structure: Any, compile_it: Callable[[], Any]
) -> Any:
    """Return what ``compile_it`` returns, an executable, and write it to disk under this name.

    It is read again at once. Where that fails, as for types that cannot be pickled, or under a
    version of JAX that serialises programs in another way, an empty file is written instead, so
    that later processes leave the program to JAX's own cache. So does this one where it cannot
    write. Other arguments as of :func:`load`.
    """
    folder = compiled.own_folder()
    if folder is None or not _is_unchanged() or not _may_write(folder):
        with compiled.kept():
            return compile_it()
    path = _path(folder, name)
    if _read(path) == _LEFT_TO_JAX:
        with compiled.kept():
            return compile_it()
    with compiled.compiled_anew():
        executable = compile_it()
    try:
        from jax.experimental import serialize_executable

        # Now, since XLA cannot write a program that sorts after it has run.
        packed = _packed(cast(Any, serialize_executable.serialize)(executable))
    except Exception:
        packed = _packed(_LEFT_TO_JAX)
    if _write(path, packed) and load(name, devices, structure) is None:
        _write(path, _packed(_LEFT_TO_JAX))
    return executable


def keep_copy(name: str, other: str) -> None:
    """Write the program of a name to disk under another name, too, if it is there."""
    if (folder := compiled.own_folder()) is not None and _is_unchanged():
        with contextlib.suppress(OSError):
            _write(_path(folder, other), _content(_path(folder, name)))


_LEFT_TO_JAX = ()


def _may_write(folder: str) -> bool:
    """Return whether files can be made in a folder, which may still be missing."""
    place = Path(folder)
    while not place.exists() and place != place.parent:
        place = place.parent
    return os.access(place, os.W_OK)


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
    if not (known := _read(path)):
        known = (compute(),)
        with contextlib.suppress(Exception):  # of types that cannot be pickled
            if _is_unchanged():
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
        content = _content(path)
        if not _is_whole(content):
            path.unlink(missing_ok=True)
            return None
        with contextlib.suppress(OSError):
            os.utime(path)  # it was used
        return pickle.loads(zlib.decompress(content[_CHECKSUM:]))
    except Exception:
        return None


def _content(path: Path) -> bytes:
    """Return the content of a file, which is unpickled, so that it must be of this user.

    Raises PermissionError if another user owns it or may write to it.
    """
    with path.open("rb") as file:
        if not compiled.is_ours(os.fstat(file.fileno())):
            raise PermissionError(path)
        return file.read()


def _packed(parts: tuple[Any, ...]) -> bytes:
    """Return the content of a file, with a checksum."""
    packed = zlib.compress(pickle.dumps(parts), 1)
    return hashlib.sha256(packed).digest() + packed


def _write(path: Path, content: bytes) -> bool:
    """Write a file; return whether that was possible."""
    unfinished = path.with_name(f"{os.getpid()}-{threading.get_ident()}{compiled.UNFINISHED}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        unfinished.touch(mode=0o600)
        unfinished.write_bytes(content)
        unfinished.replace(path)
        return True
    except OSError:
        with contextlib.suppress(OSError):
            unfinished.unlink()
        return False


_CHECKSUM = 32  # bytes of SHA-256


def _is_whole(content: bytes) -> bool:
    """Return whether a file has all that was written to it."""
    return content[:_CHECKSUM] == hashlib.sha256(content[_CHECKSUM:]).digest()


@functools.cache
def _of_process() -> tuple[object, ...]:
    """Return what decides the code of all programs of this process."""
    return platform.python_version(), _versions(), compiled.processor(), _content_of_package()


def _versions() -> list[str]:
    """Return names and versions of the libraries, as of the folders that describe installed ones.

    They are in the order in which Python looks for them. ``importlib.metadata.version`` takes ten
    times as long.
    """
    found: list[str] = []
    for folder in sys.path:
        with contextlib.suppress(OSError):
            for name in sorted(os.listdir(folder or ".")):  # noqa: PTH208, faster
                library, _, rest = name.partition("-")
                if library in _LIBRARIES and rest.endswith((".dist-info", ".egg-info")):
                    found.append(name)
    return found


_TOP = Path(__file__).parents[2]


def _files_of_package() -> list[tuple[str, int, int, int]]:
    """Return names, sizes and times of this package's files; none where they cannot be read."""
    about: list[tuple[str, int, int, int]] = []
    folders = [str(_TOP)]
    try:
        for folder in folders:  # which grows meanwhile
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.name.endswith((".py", ".so")) and not entry.name.startswith("."):
                        stat = entry.stat()
                        times = stat.st_mtime_ns, stat.st_ctime_ns
                        about.append((entry.path, stat.st_size, *times))
                    elif entry.is_dir() and entry.name != "__pycache__":
                        folders.append(entry.path)
    except OSError:
        return []
    return sorted(about)


_PACKAGE = _files_of_package()  # as they were when this process imported them


def _is_unchanged() -> bool:
    """Return whether the files of this package are those that this process has imported."""
    return _files_of_package() == _PACKAGE


def _content_of_package() -> str:
    """Return a hash of this package's files, which is kept on disk by their sizes and times."""

    def compute() -> str:
        found = hashlib.sha256()
        for name, *_ in _PACKAGE:
            found.update(f"{Path(name).relative_to(_TOP)}\0".encode())
            found.update(hashlib.sha256(Path(name).read_bytes()).digest())
        return found.hexdigest()

    folder = compiled.own_folder()
    assert folder is not None
    path = _path(folder, hashlib.sha256(repr(_PACKAGE).encode()).hexdigest())
    if not (known := _read(path)):
        known = (compute(),)
        if _is_unchanged():
            _write(path, _packed(known))
    return known[0]


def _environment() -> list[tuple[str, str]]:
    """Return the variables that XLA and the libraries read, as they were and as they are."""
    return sorted({*_VARIABLES, *_variables()})


def _variables() -> list[tuple[str, str]]:
    prefixes = "XLA_", "EQX_", "FLAX_"
    return [pair for pair in os.environ.items() if pair[0].startswith(prefixes)]


_VARIABLES = _variables()


def settings() -> list[tuple[str, str]]:
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
