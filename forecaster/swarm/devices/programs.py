"""Compiled programs: a function of one member, mapped over chunks of members on all lanes.

They are kept on disk, in JAX's cache, so that later processes need not compile them again.

A program whose process has chosen no folder, by ``keep_compiled`` or by JAX's own settings, is kept
in the user's cache folder. JAX is set to that folder only while one of our programs is compiled:
other programs of the process are not kept there.

Programs are machine code, so whoever writes them runs code as this user. A folder is used only if
no other user may write in it, and files of other users in it are removed.
"""

import contextlib
import functools
import operator
import os
import stat
import threading
import warnings
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, cast

import jax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from forecaster.swarm.checks import warn
from forecaster.swarm.task import Tree

_MOST_BYTES = 2**28  # of the files of a folder, of which a fit of thirty tickers writes 2**19

SWITCH = "FORECASTER_CACHE"
"""The environment variable that turns the cache off, or names a folder for it."""

# Seconds of compiling from which on a program is kept: for a whole process, programs that make
# forecasts, not single operations; and for our programs alone.
_WORTH, _WORTH_OF_OURS = 0.05, 0.01
_DIR, _SECONDS, _BYTES, _STRICT = (
    "jax_compilation_cache_dir",
    "jax_persistent_cache_min_compile_time_secs",
    "jax_persistent_cache_min_entry_size_bytes",
    "jax_raise_persistent_cache_errors",
)


def keep_compiled(folder: Path) -> None:
    """Cache all compiled programs of this process in a folder.

    FORECASTER_CACHE=off keeps none. A folder that another user owns or may write is not used, with
    a warning.
    """
    global _chosen
    if path := _ready(folder.resolve()):
        _chosen = path
        _choose({_DIR: path, _SECONDS: _WORTH, _BYTES: 0})


_chosen: str | None = None  # the folder of keep_compiled
_lock = threading.RLock()  # held while JAX's settings are not those of the process


def first_call(jitted: Any, *args: Tree) -> Tree:
    """Call a function of ``jax.jit`` on arrays of new shapes, compiled with JAX's cache on disk.

    JAX does not replace a damaged file, so the files of the function's name are removed where JAX
    cannot read one.
    """
    jitted.trace(*args)  # raises the function's own errors
    folder: str | None = None
    try:
        with kept(strict=True) as folder:
            return jitted(*args)
    except Exception:  # of any library that unpacks the file; or it does not compile
        if folder is None:
            raise
        with contextlib.suppress(OSError):
            for path in Path(folder).glob(f"jit_{jitted.__name__}-*"):
                path.unlink(missing_ok=True)
    with kept():
        return jitted(*args)


@contextlib.contextmanager
def kept(*, strict: bool = False) -> Generator[str | None]:
    """Let JAX's cache on disk serve the programs that are compiled meanwhile; return its folder.

    Where the user has chosen a folder, or turned JAX's cache off, nothing changes: None.
    ``strict``: raise the errors of files that cannot be read.
    """
    with _lock:
        folder = _own_folder()
        settings: dict[str, Any] = {}
        if folder is not None:
            strict = strict and os.access(folder, os.W_OK)
            settings = {_DIR: folder, _SECONDS: _WORTH_OF_OURS, _BYTES: 0, _STRICT: strict}
        before = {name: _setting(name) for name in settings}
        _choose(settings)
        try:
            yield folder
        finally:
            _choose(before)


def _own_folder() -> str | None:
    """Return the folder of our programs; None where the user has chosen another one, or none."""
    if not _setting("jax_enable_compilation_cache"):
        return None
    chosen = _setting(_DIR)
    return default_folder() if not chosen else chosen if chosen == _chosen else None


def _setting(name: str) -> Any:
    return getattr(jax.config, name)


def _choose(settings: dict[str, Any]) -> None:
    """Set JAX's cache and reset it; without the reset it stays with the folder it used first."""
    from jax.experimental.compilation_cache import compilation_cache

    for name, value in settings.items():
        jax.config.update(name, value)
    if settings:
        compilation_cache.reset_cache()


@functools.cache
def default_folder() -> str | None:
    """Return the folder of our programs; None where the cache is turned off.

    JAX's names of programs tell apart its versions, and processors by what they can do.
    """
    import platformdirs  # takes a few milliseconds

    chosen = os.environ.get(SWITCH, "")
    top = Path(chosen or platformdirs.user_cache_dir("forecaster", appauthor=False))
    return _ready((top / "swarm").absolute())


def _ready(folder: Path) -> str | None:
    """Make a folder for this user alone and bound its size; return it, or None if it is not used.

    It is not where the cache is turned off, and where it cannot be written.
    """
    if os.environ.get(SWITCH, "").lower() in ("off", "0", "false", "no"):
        return None
    try:
        str(folder).encode()  # XLA takes no other path
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        about = folder.stat()
        if not _is_ours(about) or (os.name == "posix" and about.st_mode & _OTHERS_WRITE):
            warn(
                "compiled programs run as code of yours, and another user owns or may write the "
                f"folder {folder}, which is not used. Remove it, or name a folder of your own by "
                "FORECASTER_CACHE"
            )
            return None
        _shorten(folder)
    except (OSError, UnicodeEncodeError):
        return None
    # JAX's warnings: a cache that cannot be read or written only costs time.
    warnings.filterwarnings("ignore", module=r"jax\._src\.compil.*")
    return str(folder)


_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def _is_ours(about: os.stat_result) -> bool:
    """Return whether a file or a folder is this user's, or root's."""
    return os.name != "posix" or about.st_uid in (0, os.geteuid())


def _shorten(folder: Path) -> None:
    """Remove the files that were used longest ago, beyond the most bytes, and those of others."""
    files = [(path, path.stat()) for path in folder.iterdir() if path.is_file()]
    files.sort(key=lambda file: max(file[1].st_atime, file[1].st_mtime), reverse=True)
    room = _MOST_BYTES
    for path, about in files:
        room -= about.st_size
        if room < 0 or not _is_ours(about):
            path.unlink(missing_ok=True)


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
