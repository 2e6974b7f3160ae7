"""Compiled programs on disk, in JAX's cache, so that later processes need not compile them again.

A program whose process has chosen no folder, by ``keep_compiled`` or by JAX's own settings, is kept
in the user's cache folder. JAX is set to that folder only while one of our programs is compiled:
other programs of the process are not kept there.

JAX writes and reads its cache but never mends or shortens it; ``look_after`` does. It also bounds
the number of programs that ``stored`` keeps in the same folder.
"""

import contextlib
import functools
import hashlib
import os
import platform
import stat
import threading
import time
import warnings
import zlib
from collections.abc import Generator
from pathlib import Path
from typing import Any

import jax

from forecaster.swarm.checks import warn

_PROGRAM = "-cache"  # how JAX ends the names of compiled programs
STORED = "-traced"  # how the names of programs end that are found without tracing
UNFINISHED = "-traced.tmp"  # how they end while they are written
_LOOKED = ".looked"  # its modification time is the time of the last look
_ZSTD = b"\x28\xb5\x2f\xfd"
_AT_ONCE = 1 << 20  # bytes
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
# Files that are kept; a fit uses some fifteen of each kind, each new length of series one more
_MOST, _MOST_STORED = 100, 300
_MOST_IN_USE = 1000  # files of a kind that are kept even if all were used within a day
_IN_USE = 24 * 3600.0  # seconds; the time of the last use is only kept to the day


SWITCH = "FORECASTER_CACHE"
"""The environment variable that turns the cache off, or names a folder for it."""

# Seconds of compiling from which on a program is kept: for a whole process, programs that make
# forecasts, not single operations; and for our programs alone.
_WORTH, _WORTH_OF_OURS = 0.05, 0.01
_DIR, _SECONDS, _BYTES = (
    "jax_compilation_cache_dir",
    "jax_persistent_cache_min_compile_time_secs",
    "jax_persistent_cache_min_entry_size_bytes",
)


def keep_compiled(folder: Path) -> None:
    """Cache all compiled programs of this process in a folder.

    FORECASTER_CACHE=off keeps none. A folder in which others may write becomes this user's alone,
    with a warning. One that another user owns is not used, nor a link to one that others may write.
    """
    global _chosen
    path = str(folder.resolve())
    if _turned_off() or not _is_text(path) or not _made_private(folder):
        return
    _chosen = path
    look_after(folder)
    _ignore_failures()
    jax.config.update(_DIR, path)
    jax.config.update(_SECONDS, _WORTH)
    jax.config.update(_BYTES, 0)


_chosen: str | None = None  # the folder of keep_compiled
_lock = threading.RLock()  # held while JAX's settings are not those of the process


@contextlib.contextmanager
def kept() -> Generator[None]:
    """Let JAX's cache on disk serve the programs that are compiled meanwhile.

    Where the process or the user has chosen a folder, or turned JAX's cache off, nothing changes.
    """
    names = _DIR, _SECONDS, _BYTES
    with _lock:
        before = tuple(map(_setting, names))
        free = not _setting(_DIR) and _setting("jax_enable_compilation_cache")
        folder = default_folder() if free else None
        if folder is not None:
            _choose(names, (folder, _WORTH_OF_OURS, 0))
        try:
            yield
        finally:
            if folder is not None:
                _choose(names, before)


@contextlib.contextmanager
def compiled_anew() -> Generator[None]:
    """Keep JAX's cache out of the programs that are compiled meanwhile.

    XLA writes a program that it has read from there without its machine code.
    """
    with _lock:
        before = _setting(_DIR)
        if before:
            _choose((_DIR,), (None,))
        try:
            yield
        finally:
            if before:
                _choose((_DIR,), (before,))


def own_folder() -> str | None:
    """Return the folder of programs that are found without tracing.

    None where the process or the user has chosen a folder for JAX's cache, or turned it off.
    """
    with _lock:
        if not _setting("jax_enable_compilation_cache"):
            return None
        if chosen := _setting(_DIR):
            return _chosen if chosen == _chosen else None
        return default_folder()


def _setting(name: str) -> Any:
    return getattr(jax.config, name)


def _choose(names: tuple[str, ...], values: tuple[Any, ...]) -> None:
    """Set JAX's cache and reset it; without the reset it stays with the folder it used first."""
    from jax.experimental.compilation_cache import compilation_cache

    for name, value in zip(names, values, strict=True):
        jax.config.update(name, value)
    compilation_cache.reset_cache()


@functools.cache
def default_folder() -> str | None:
    """Return the folder of our programs, by processor; None where the cache is turned off.

    JAX's names of programs contain its version. The first call looks after the folder.
    """
    import platformdirs  # takes a few milliseconds

    if _turned_off():
        return None
    chosen = os.environ.get(SWITCH, "")
    top = Path(chosen or platformdirs.user_cache_dir("forecaster", appauthor=False))
    folder = (top / f"swarm-{processor()}").absolute()
    if not _is_text(str(folder)) or not _made_private(folder):
        return None
    look_after(folder)
    _ignore_failures()
    return str(folder)


def _turned_off() -> bool:
    return os.environ.get(SWITCH, "").lower() in ("off", "0", "false", "no")


def _is_text(path: str) -> bool:
    """Return whether a path is valid text; XLA takes no other path."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _made_private(folder: Path) -> bool:
    """Make a folder, or take it from other users; return whether only this one can write in it.

    Programs are machine code and pickles, so whoever writes them runs code as this user. Those of
    others are removed, and those that others could have changed as long as the folder was open.
    """
    if not hasattr(os, "geteuid"):  # on Windows, where a user's folders are private
        return True
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        before = folder.stat()
        open_before = not is_ours(before)
        shared = before.st_uid != os.geteuid() or before.st_mode & stat.S_ISVTX  # such as /tmp
        if open_before and not shared and not folder.is_symlink():
            folder.chmod(stat.S_IRWXU)
            _say_refused(f"the folder {folder}, which is made yours alone")
        if not is_ours(folder.stat()):
            _say_refused(f"the folder {folder}, which is not used")
            return False
        foreign = [
            path
            for path, about in (*_files(folder, _PROGRAM), *_files(folder, STORED))
            if not (is_ours(about) if open_before else _is_owned(about))
        ]
        for path in foreign:
            path.unlink(missing_ok=True)
        if foreign:
            _say_refused(f"{len(foreign)} files in {folder}, which are removed")
        return True
    except OSError:
        return False


def is_ours(about: os.stat_result) -> bool:
    """Return whether a file or a folder is this user's, or root's, and no other may write it."""
    return not hasattr(os, "geteuid") or (_is_owned(about) and not about.st_mode & _OTHERS_WRITE)


def _is_owned(about: os.stat_result) -> bool:
    return about.st_uid in (0, os.geteuid())


@functools.cache
def _say_refused(what: str) -> None:
    """Warn, once in a process."""
    warn(
        f"compiled programs run as code of yours, and other users own or may write {what}. "
        "FORECASTER_CACHE names a folder of your own for them, or is off"
    )


def _ignore_failures() -> None:
    """Ignore JAX's warnings: a cache that cannot be read or written only costs time."""
    warnings.filterwarnings("ignore", module=r"jax\._src\.compil.*")


@functools.cache
def processor() -> str:
    """Return a short hash of the kind of processor, for which programs are compiled."""
    said = [platform.machine(), platform.processor()]
    try:
        with open("/proc/cpuinfo") as file:
            first = file.read(16_384).split("\n\n")[0].splitlines()
        wanted = "vendor_id", "model name", "flags", "Features", "CPU part"
        said += sorted(line for line in first if line.startswith(wanted))
    except OSError:
        pass
    return hashlib.sha256("\n".join(said).encode()).hexdigest()[:12]


def look_after(folder: Path) -> None:
    """Remove damaged programs, which a full disk left empty or cut short, and long unused ones.

    JAX would neither use nor replace a damaged program. Only programs written since the last look
    are read, so a process that compiles nothing reads none. The hundred programs used last stay,
    because daily forecasts compile one a day, and three hundred files of ``stored``. So do all that
    were used within the last day, up to a thousand of each kind.
    """
    looked = folder / _LOOKED
    try:
        since = looked.stat().st_mtime_ns if looked.exists() else 0
        of_jax, ours, unfinished = (_files(folder, each) for each in (_PROGRAM, STORED, UNFINISHED))
        new = [path for path, about in of_jax if about.st_mtime_ns >= since]
        if new:
            looked.touch()  # before they are read: what is written meanwhile is read next time
        for program in new:
            if not _is_whole(program.read_bytes()):
                program.unlink(missing_ok=True)
        _forget(of_jax, _MOST)
        _forget(ours, _MOST_STORED)
        _forget(unfinished, 0)  # their processes were killed
    except OSError:
        return


def _files(folder: Path, ending: str) -> list[tuple[Path, os.stat_result]]:
    """Return the files of a folder with an ending; remove what is neither a file nor a folder."""
    found: list[tuple[Path, os.stat_result]] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if not entry.name.endswith(ending) or entry.is_dir():
                continue
            if entry.is_file():
                found.append((Path(entry.path), entry.stat()))
            else:  # JAX would wait for what comes out of a pipe
                Path(entry.path).unlink()
    return found


def _forget(files: list[tuple[Path, os.stat_result]], most: int) -> None:
    """Remove files but the ``most`` used last, and those used within the last day."""
    used = sorted((max(about.st_atime, about.st_mtime), path) for path, about in files)
    for number, (when, path) in enumerate(used[: len(used) - most]):
        if when < time.time() - _IN_USE or number < len(used) - _MOST_IN_USE:
            path.unlink(missing_ok=True)


def _is_whole(program: bytes) -> bool:
    """Return whether a compiled program is complete. JAX packs it with zstd or zlib."""
    if program.startswith(_ZSTD):
        return _is_whole_zstd(program)
    unpack = zlib.decompressobj()
    try:
        while program and not unpack.eof:
            unpack.decompress(program, _AT_ONCE)
            program = unpack.unconsumed_tail
    except zlib.error:
        return False
    return unpack.eof


def _is_whole_zstd(program: bytes) -> bool:
    """Return whether a frame of zstd (RFC 8878) has all its blocks, without unpacking them."""
    if len(program) < 5:
        return False
    descriptor = program[4]
    single = descriptor >> 5 & 1
    of_content = (single, 2, 4, 8)[descriptor >> 6]
    at = 5 + (1 - single) + (0, 1, 2, 4)[descriptor & 3] + of_content
    last = False
    while not last:
        header = int.from_bytes(program[at : at + 3], "little")
        if at + 3 > len(program):
            return False
        last, repeats = bool(header & 1), header >> 1 & 3 == 1
        at += 3 + (1 if repeats else header >> 3)
    return at + 4 * (descriptor >> 2 & 1) <= len(program)
