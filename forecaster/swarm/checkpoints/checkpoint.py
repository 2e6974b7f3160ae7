"""Checkpoints of a fit under way: one file, always replaced as a whole, never half-written.

How a member trains on depends on its own state alone, not on the members beside it. So a checkpoint
is the state of every member that has started and nothing of the schedule, and a fit that continues
from it ends with the same bits as one that was never interrupted.

A fit in shards keeps each finished shard in a file of its own beside the checkpoint, named by the
position of its first member. Either kind of fit continues from the files of the other.
"""

import dataclasses
import glob
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias, cast

import jax
import numpy as np
from jaxtyping import Shaped, UInt32

from forecaster.swarm.arrays.data import Rows, Streamed
from forecaster.swarm.arrays.members import named_leaves
from forecaster.swarm.checkpoints.arrays_file import (
    Trained,
    arrays_of,
    opened,
    restored,
    write_arrays,
)
from forecaster.swarm.checkpoints.writing import Replace, remove_file, write_file
from forecaster.swarm.checks import SwarmError, SwarmFileNotFoundError
from forecaster.swarm.native import kernel_status
from forecaster.swarm.recurrence import products_of
from forecaster.swarm.task import Data, Limits
from forecaster.swarm.training.loop import State

_VERSION, _SHARD = "5", ".shard-"
_KIND, _WHAT = "checkpoint", "a checkpoint"

Fingerprint: TypeAlias = Mapping[str, str]
"""The inputs that determine a fit: settings by name, so that an error can name those that differ, a
number that all members share or a hash; and under ``fit`` a hash of everything."""


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """Where and how a fit keeps its state.

    - ``path``: the path of the file
    - ``every``: seconds of training after which it is written again
    - ``resume``: continue from the file; otherwise the fit starts anew and overwrites it
    - ``precision``: the precision of the task's recurrences
    - ``replace(path, write)``: replaces a file as a whole by what ``write(temporary_path)`` writes
    - ``remove(path)``: removes a file if it is there
    """

    path: Path
    every: float = 30.0
    resume: bool = False
    precision: str = "float32"
    replace: Replace = write_file
    remove: Callable[[Path], None] = remove_file

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", Path(self.path))


def checkpoint_of(given: Checkpoint | str | Path | None) -> Checkpoint | None:
    """Return the checkpoint, or one at this path. Raises SwarmError for anything else."""
    if isinstance(given, str | Path):
        return Checkpoint(Path(given))
    if given is None or isinstance(cast(object, given), Checkpoint):
        return given
    raise SwarmError(f"checkpoint: expected Checkpoint(path) or a path; got {given!r:.80}")


def fingerprint(
    ids: Sequence[str],
    seed: int,
    hyperparams: Mapping[str, np.ndarray],
    limits: Limits,
    origin: State | UInt32[np.ndarray, "member 2"],
    data: Data | Streamed,
    precision: str = "float32",
    words: str = "",
) -> Fingerprint:
    """Return what decides the members' training, all but the task's code.

    ``words``, such as ``batch_size=32; monitor=accuracy``, describe how members learn. Streamed
    data do not enter the hash: the caller must make sure that they are the same.
    """
    settings = {**hyperparams, **limits._asdict()}
    parts = {"version": _VERSION, "seed": str(seed)}
    parts["ids"] = hashlib.sha256(repr(tuple(ids)).encode()).hexdigest()
    parts |= {name: _said(np.asarray(values)) for name, values in settings.items()}
    parts["precision"] = precision
    parts |= {part.partition("=")[0]: part.partition("=")[2] for part in words.split("; ") if part}
    digest = hashlib.sha256(json.dumps(parts).encode())
    decisive = (settings, origin, None if isinstance(data, Streamed) else data)
    for name, array in named_leaves(decisive):
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return parts | {"fit": digest.hexdigest()}


def _said(values: Shaped[np.ndarray, " member"]) -> str:
    """Return the number that all members share, or else a hash of all numbers."""
    if (values == values[0]).all():
        return str(values[0])
    return hashlib.sha256(np.ascontiguousarray(values).view(np.uint8).data).hexdigest()


def arithmetic(precision: str = "float32") -> dict[str, str]:
    """Return which code computes in this process, as far as it decides numbers; start JAX.

    - ``backend``: JAX's, such as ``cpu``
    - ``kernel``: the instruction set of the compiled recurrence, or ``off``
    - ``products``: only in another precision than float32, how products are computed: the text of
      :func:`recurrence.products_of` without its reason, which may differ although the bits agree
    """
    known = {"backend": jax.default_backend(), "kernel": kernel_status()[0] or "off"}
    if precision == "float32":
        return known
    return known | {"products": products_of(precision).partition(" in place of ")[0]}


def write(
    checkpoint: Checkpoint,
    fit: Fingerprint,
    rows: Rows,
    trained: Trained,
    *,
    as_shard: bool = False,
) -> None:
    """Replace the checkpoint by these members, or with ``as_shard`` write a shard beside it.

    Raises SwarmWriteError when it cannot be written.
    """
    path = checkpoint.path
    if as_shard:
        path = path.with_name(f"{path.name}{_SHARD}{int(rows[0]):09d}")
    write_arrays(path, {"rows": rows} | arrays_of(trained), _KIND, fit, checkpoint.replace)


def is_there(path: Path) -> bool:
    """Return whether there is anything to continue from."""
    return path.exists() or bool(_shards(path))


def forget(checkpoint: Checkpoint) -> None:
    """Remove the files of an earlier fit.

    Raises SwarmError where a file is not a checkpoint, SwarmWriteError where it cannot be removed.
    """
    files = [checkpoint.path, *_shards(checkpoint.path)]
    for file in files:
        if file.is_file() and file.stat().st_size:
            try:
                with opened(file, _KIND, _WHAT):
                    pass
            except SwarmError as error:
                raise SwarmError(
                    f"{file}: expected a checkpoint or no file; this file is something else, or "
                    "damaged, and the fit would replace it. Choose another path, or remove it"
                ) from error
    for file in files:
        checkpoint.remove(file)


def read(path: Path, fit: Fingerprint, like: State) -> list[tuple[Rows, Trained]]:
    """Read a checkpoint of the fit with this fingerprint, and the shards beside it.

    Returns the members of each file. ``like``: states, of which shapes and types count

    Raises SwarmFileNotFoundError when there is none, SwarmError when it is damaged or of another
    fit.
    """
    if not is_there(path):
        raise SwarmFileNotFoundError(
            f"{path}: no checkpoint to resume; expected one of an interrupted fit. Start with "
            "checkpoint=Checkpoint(path), without resume, or give the path of the first attempt"
        )
    parts: list[tuple[Rows, Trained]] = []
    for file in [*([path] if path.exists() else []), *_shards(path)]:
        with opened(file, _KIND, _WHAT) as saved:
            if saved.header != fit:
                raise SwarmError(_another_fit(file, saved.header, fit))
            arrays = {name: saved.read(name) for name in saved.shapes}
        rows = arrays.pop("rows")
        parts.append((rows, restored(file, arrays, like, len(rows))))
    return parts


def _shards(path: Path) -> list[Path]:
    return sorted(path.parent.glob(f"{glob.escape(path.name)}{_SHARD}*"))


def _another_fit(path: Path, before: Fingerprint, now: Fingerprint) -> str:
    """Return the error for a checkpoint of another fit: which settings differ, and what to do."""
    told = [
        name if len(f"{then}{value}") >= 64 else f"{name} (then {then}, now {value})"
        for name in {**before, **now}
        for then, value in [(before.get(name, "none"), now.get(name, "none"))]
        if then != value and name != "fit"
    ]
    differ = (
        f", with another value of {', '.join(told)}"
        if told
        else ": data or earlier training differ"
    )
    return f"{path}: a checkpoint of another fit{differ}. Start anew, or restore what was changed"
