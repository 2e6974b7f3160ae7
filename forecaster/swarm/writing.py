"""Files that are written whole or not at all."""

import contextlib
import os
import secrets
from collections.abc import Callable
from pathlib import Path

from forecaster.swarm.checks import SwarmError


class SwarmWriteError(SwarmError, OSError):
    """A file cannot be written."""


def write_file(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file by ``write(temporary_path)``, then put it in place of ``path``.

    The temporary file lies in the same folder; file and folder are synced to the disk. Raises
    SwarmWriteError when it cannot be written; then ``path`` is as it was.
    """
    temporary = path.with_name(f".tmp-{secrets.token_hex(6)}-{path.name[-40:]}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(temporary)
        _sync(temporary)
        temporary.replace(path)
        _sync(path.parent)
    except OSError as error:
        raise SwarmWriteError(
            f"{path}: cannot be written: {error.strerror or error}. Check the disk and the "
            "permissions, or choose another place"
        ) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    if os.name == "nt" and path.is_dir():
        return  # Windows cannot open folders
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
