"""Write a file as a whole or not at all."""

import contextlib
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from forecaster.swarm.checks import SwarmError

Replace: TypeAlias = Callable[[Path, Callable[[Path], object]], None]
"""``replace(path, write)`` replaces a file by what ``write(temporary_path)`` writes."""


class SwarmWriteError(SwarmError, OSError):
    """Raised when a file cannot be written."""


def write_file(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file by ``write(temporary_path)``, then move it to ``path``.

    The temporary file is in the same folder; file and folder are synced to the disk. Raises
    SwarmWriteError when it cannot be written; then ``path`` is as before.
    """
    temporary = path.with_name(f".tmp-{secrets.token_hex(6)}-{path.name[-40:]}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(temporary)
        _sync(temporary)
        temporary.replace(path)
        _sync(path.parent)
    except OSError as error:
        raise _cannot("written", path, error) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def remove_file(path: Path) -> None:
    """Remove a file if it is there. Raises SwarmWriteError when it cannot be removed."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise _cannot("removed", path, error) from error


def _cannot(be: str, path: Path, error: OSError) -> SwarmWriteError:
    return SwarmWriteError(
        f"{path}: cannot be {be}: {error.strerror or error}. Check the disk and the permissions, "
        "or choose another folder"
    )


def _sync(path: Path) -> None:
    if os.name == "nt" and path.is_dir():
        return  # Windows cannot open folders
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
