"""Compiled programs on disk, in JAX's cache, so that later processes need not compile them again.

A program whose process has chosen no folder, by ``keep_compiled`` or by JAX's own settings, is kept
in the user's cache folder. JAX is set to that folder only while one of our programs is compiled:
other programs of the process are not kept there.

Programs are machine code, so whoever writes them runs code as this user. A folder is used only if
no other user may write in it, and files of other users in it are removed.
"""

import contextlib
import functools
import os
import stat
import threading
import warnings
from collections.abc import Generator
from pathlib import Path
from typing import Any

import jax

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
