"""Look after the cache of compiled programs, which JAX writes and reads but never mends."""

import os
import time
import zlib
from pathlib import Path

_PROGRAM = "-cache"  # how JAX ends their names
_LOOKED = ".looked"  # its time is that of the last look
_ZSTD = b"\x28\xb5\x2f\xfd"
_AT_ONCE = 1 << 20  # bytes
_MOST = 100  # programs that are kept; a fit uses some fifteen, each new length of series one more
_IN_USE = 24 * 3600.0  # seconds; the time of the last use is only kept to the day


def look_after(folder: Path) -> None:
    """Remove compiled programs that a full disk left empty or cut short, and those long unused.

    JAX would neither use nor replace the former. Only those that were written since the last look
    are read, so that a process that compiles nothing reads none. Of the others the hundred that
    were used last stay, since daily forecasts compile one a day.
    """
    looked = folder / _LOOKED
    try:
        since = looked.stat().st_mtime_ns if looked.exists() else 0
        new: list[Path] = []
        used: list[tuple[float, Path]] = []
        with os.scandir(folder) as entries:
            for entry in entries:
                if not entry.name.endswith(_PROGRAM):
                    continue
                times = entry.stat()
                used.append((max(times.st_atime, times.st_mtime), Path(entry.path)))
                if times.st_mtime_ns >= since:
                    new.append(Path(entry.path))
        if new:
            looked.touch()  # before they are read: what is written meanwhile is read next time
        for program in new:
            if not _is_whole(program.read_bytes()):
                program.unlink(missing_ok=True)
        for when, program in sorted(used)[:-_MOST]:
            if when < time.time() - _IN_USE:
                program.unlink(missing_ok=True)
    except OSError:
        return


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
