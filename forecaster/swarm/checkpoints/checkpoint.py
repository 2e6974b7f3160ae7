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
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import jax
import numpy as np
from jaxtyping import Bool, Int, Shaped, UInt32

from forecaster.swarm.arrays.data import Rows, Streamed
from forecaster.swarm.arrays.members import fill_members, named_leaves
from forecaster.swarm.checkpoints.history import put_together
from forecaster.swarm.checkpoints.writing import Replace, remove_file, write_file
from forecaster.swarm.checks import SwarmError, SwarmFileNotFoundError
from forecaster.swarm.native import kernel_status
from forecaster.swarm.recurrence import products_of
from forecaster.swarm.task import Data, Limits
from forecaster.swarm.training.loop import Losses, State

_VERSION, _SHARD = "4", ".shard-"


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
    if given is not None and not isinstance(cast(object, given), Checkpoint):
        raise SwarmError(f"checkpoint: expected Checkpoint(path) or a path; got {given!r:.80}")
    return given


class Saved(NamedTuple):
    """The contents of a file: positions of members, their states and losses (row, epoch)."""

    rows: Int[np.ndarray, " row"]
    state: State
    losses: Losses


class Found(NamedTuple):
    """What a checkpoint and its shards hold: which members started, all states and losses."""

    started: Bool[np.ndarray, " member"]
    state: State
    losses: Losses


class Fingerprint(NamedTuple):
    """The inputs that determine a fit, as its checkpoints store them.

    - ``fit``: a hash of everything
    - ``parts``: settings by name, so that an error can name those that differ: a number that all
      members share, or a hash
    """

    fit: str
    parts: Mapping[str, str] = types.MappingProxyType({})


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
    """Return a hash of everything that decides the members' training, except the task's code.

    ``words``, such as ``batch_size=32; monitor=accuracy``, describe how members learn. Streamed
    data do not enter the hash: the caller must make sure that they are the same.
    """
    settings = {**hyperparams, **limits._asdict()}
    parts = {"ids": hashlib.sha256(repr(tuple(ids)).encode()).hexdigest(), "seed": str(seed)}
    parts |= {name: _said(np.asarray(values)) for name, values in settings.items()}
    parts["precision"] = precision
    parts |= {part.partition("=")[0]: part.partition("=")[2] for part in words.split("; ") if part}
    digest = hashlib.sha256(json.dumps(parts).encode())
    decisive = (settings, origin, None if isinstance(data, Streamed) else data)
    for name, array in named_leaves(decisive):
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return Fingerprint(digest.hexdigest(), parts)


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
    checkpoint: Checkpoint, digest: Fingerprint, saved: Saved, *, as_shard: bool = False
) -> None:
    """Replace the checkpoint, or with ``as_shard`` write a shard beside it.

    ``digest``: the fit's fingerprint. Raises SwarmWriteError when it cannot be written.
    """
    from safetensors.numpy import save

    path = checkpoint.path
    if as_shard:
        path = path.with_name(f"{path.name}{_SHARD}{int(saved.rows[0]):09d}")
    leaves = jax.tree.leaves(saved)
    arrays = {f"{number:04d}": np.ascontiguousarray(leaf) for number, leaf in enumerate(leaves)}
    kept = {"version": _VERSION, "fit": digest.fit, "parts": json.dumps(dict(digest.parts))}
    raw = save(arrays, metadata=kept)
    checkpoint.replace(path, lambda temporary: temporary.write_bytes(raw))


def is_there(path: Path) -> bool:
    """Return whether there is anything to continue from."""
    return path.exists() or bool(_shards(path))


def forget(checkpoint: Checkpoint) -> None:
    """Remove the files of an earlier fit.

    Raises SwarmError where a file is not a checkpoint, SwarmWriteError where it cannot be removed.
    """
    files = [checkpoint.path, *_shards(checkpoint.path)]
    for file in files:
        if file.is_file() and file.stat().st_size and not _is_checkpoint(file):
            raise SwarmError(
                f"{file}: expected a checkpoint or no file; this file is something else, or "
                "damaged, and the fit would replace it. Choose another path, or remove it"
            )
    for file in files:
        checkpoint.remove(file)


def _is_checkpoint(path: Path) -> bool:
    from safetensors import SafetensorError, safe_open

    try:
        with cast(Any, safe_open(path, framework="numpy")) as file:
            return "fit" in (file.metadata() or {})
    except SafetensorError:
        return False


def read(
    path: Path,
    digest: Fingerprint,
    like: State,
    metrics: Sequence[str] = (),
) -> Found:
    """Read a checkpoint of the fit with this fingerprint, and the shards beside it.

    - ``like``: states of all members, of which shapes and types count; those that have not started
      are zero
    - ``metrics``: the names of the fit's metrics

    Raises SwarmFileNotFoundError when there is none, SwarmError when it is damaged or of another
    fit.
    """
    if not is_there(path):
        raise SwarmFileNotFoundError(
            f"{path}: no checkpoint to resume; expected one of an interrupted fit. Start with "
            "checkpoint=Checkpoint(path), without resume, or give the path of the first attempt"
        )
    none = np.zeros((len(np.asarray(like.epoch)), 0), np.float32)
    losses = Losses(none, none, dict.fromkeys(metrics, none))
    blank = Saved(np.zeros(0, np.int64), like, losses)
    started, state = np.zeros(len(none), bool), jax.tree.map(np.zeros_like, like)
    parts: list[tuple[Rows, Losses]] = []
    for file in [*([path] if path.exists() else []), *_shards(path)]:
        rows, states, trained = _read(file, digest, blank)
        started[rows] = True
        fill_members(state, rows, states)
        parts.append((rows, trained))
    return Found(started, state, put_together(losses, parts))


def _shards(path: Path) -> list[Path]:
    return sorted(path.parent.glob(f"{glob.escape(path.name)}{_SHARD}*"))


def _read(path: Path, digest: Fingerprint, like: Saved) -> Saved:
    """Read one file, of the structure of ``like``."""
    from safetensors import SafetensorError, safe_open

    try:
        opened: Any = safe_open(path, framework="numpy")
        with opened as file:
            metadata: dict[str, str] = file.metadata() or {}
            leaves: list[np.ndarray] = [file.get_tensor(name) for name in sorted(file.keys())]
    except SafetensorError as error:
        raise SwarmError(
            f"{path}: not a checkpoint, or damaged ({error}); remove it to start anew"
        ) from error
    if metadata.get("version") != _VERSION or metadata.get("fit") != digest.fit:
        raise SwarmError(_another_fit(path, metadata.get("parts", "{}"), digest.parts))
    structure = cast(Any, jax.tree.structure(like))
    if structure.num_leaves != len(leaves):
        raise SwarmError(f"{path}: a checkpoint of another model; start anew")
    kept: Saved = jax.tree.unflatten(structure, leaves)
    if _shapes(kept.state) != _shapes(like.state):
        raise SwarmError(f"{path}: a checkpoint of another model; start anew")
    return kept


def _another_fit(path: Path, saved: str, parts: Mapping[str, str]) -> str:
    """Return the error for a checkpoint of another fit: which settings differ, and what to do."""
    before: dict[str, str] = json.loads(saved)
    changed = [name for name in {**before, **parts} if before.get(name) != parts.get(name)]
    changed = changed if before else []
    if not changed:
        which = "data or earlier training" if before else "ids, seed, hyperparameters or data"
        return (
            f"{path}: a checkpoint of another fit: {which} differ, or it was written by another "
            "version. Start anew, or restore what was changed"
        )
    told = [
        name if len(f"{then}{now}") >= 64 else f"{name} (then {then}, now {now})"
        for name in changed
        for then, now in [(before.get(name, "none"), parts.get(name, "none"))]
    ]
    return (
        f"{path}: a checkpoint of another fit, with another value of {', '.join(told)}. "
        "Start anew, or restore what was changed"
    )


def _shapes(state: State) -> list[tuple[tuple[int, ...], str]]:
    """Return the shapes and types of one member's state."""
    return [(leaf.shape[1:], str(leaf.dtype)) for _, leaf in named_leaves(state)]
