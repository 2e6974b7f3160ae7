"""Save and read a swarm: safetensors with ids and seed as strict JSON in the header, no pickle."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np

from forecaster.swarm.checkpoints import (
    Opened,
    Trained,
    arrays_of,
    opened,
    write_arrays,
)
from forecaster.swarm.checks import (
    SwarmError,
    SwarmFileNotFoundError,
    broadcast_hyperparams,
    check_ids,
)
from forecaster.swarm.execution.result import FitResult

_VERSION = 1
_KIND, _WHAT = "swarm", "a saved swarm"
_HYPERPARAMS = "hyper/"  # prefix of their names in the file


def save(
    path: Path,
    seed: int,
    hyperparams: Mapping[str, np.ndarray],
    result: FitResult,
    said: str,
) -> None:
    """Write a swarm atomically. Raises SwarmWriteError when it cannot be written.

    ``said``: how its members learn, see :class:`Task`
    """
    arrays = {f"{_HYPERPARAMS}{name}": values for name, values in hyperparams.items()}
    arrays |= arrays_of(Trained(result.state, result.losses))
    header: dict[str, Any] = {"schema": _VERSION, "ids": list(result.ids), "seed": seed}
    header |= {"seconds": result.seconds, "said": said}
    write_arrays(path, arrays, _KIND, header)


class Header(msgspec.Struct):
    """What the header of a file says of a swarm.

    - ``ids``, ``seed``: ids and seed of the members
    - ``seconds``: the duration of the last fit
    - ``said``: how the members learn; empty in older files
    """

    ids: tuple[str, ...]
    seed: Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
    seconds: Annotated[float, msgspec.Meta(ge=0)]
    said: str = ""


class Saved(NamedTuple):
    """What a file holds.

    - ``hyperparams``: by name, (member,)
    - ``arrays``: states and losses, (member, ...), by the names of :func:`arrays_of`
    """

    header: Header
    hyperparams: dict[str, np.ndarray]
    arrays: dict[str, np.ndarray]


def read(path: Path) -> Saved:
    """Read a saved swarm.

    Raises SwarmError for a damaged file, or if an array does not have one row per member (so the
    number of members is limited by the file's size), and FileNotFoundError for a missing file.
    """
    if not path.exists():
        raise SwarmFileNotFoundError(f"{path}: no such file; expected a saved swarm")
    with opened(path, _KIND, _WHAT) as file:
        header = _header(path, file)
        members = len(header.ids)
        if wrong := [name for name, shape in file.shapes.items() if shape[:1] != [members]]:
            raise SwarmError(f"{path}: {wrong[0]}: expected a row for each of {members} members")
        arrays = {name: file.read(name) for name in file.shapes}
    names = [name for name in arrays if name.startswith(_HYPERPARAMS)]
    hyperparams = {name.removeprefix(_HYPERPARAMS): arrays.pop(name) for name in names}
    return Saved(header, broadcast_hyperparams(hyperparams, members), arrays)


def _header(path: Path, file: Opened) -> Header:
    """Return the header. Raises SwarmError for fields that are missing or of another type."""
    if (schema := file.header["schema"]) != _VERSION:
        raise SwarmError(
            f"{path}: written with schema {schema!r:.50}; this version reads {_VERSION}"
        )
    try:
        header = msgspec.convert(file.header, Header)
    except msgspec.ValidationError as error:
        raise SwarmError(f"{path}: not a saved swarm: {error}") from error
    check_ids(header.ids)
    return header
