"""Checkpoints of a fit under way: one file, always replaced whole, never half-written.

A member's future depends on its own state alone, not on who trained beside it. So a checkpoint is
the state of every member that has begun and nothing of the schedule, and a fit that goes on from
it ends with the same bits as one that was never interrupted.
"""

import dataclasses
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from forecaster import atomic
from forecaster.swarm.checks import SwarmError
from forecaster.swarm.data import Streamed
from forecaster.swarm.training import Losses, State

_VERSION = "1"


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """Where to keep a fit's state, and how many seconds to train between two looks.

    With ``resume``, a fit goes on from the file; without, it starts anew and overwrites it.
    """

    path: Path
    every: float = 30.0
    resume: bool = False


class Saved(NamedTuple):
    """What a checkpoint holds: members that have begun, all states, losses (member, epoch)."""

    begun: np.ndarray
    state: State
    losses: Losses


def fingerprint(ids: Sequence[str], seed: int, hyperparams: Any, origin: Any, data: Any) -> str:
    """A hash of everything that decides the members' training, except the task's code.

    Of streamed data it sees nothing: their owner has to answer for them.
    """
    digest = hashlib.sha256(repr((tuple(ids), seed)).encode())
    known = (dict(hyperparams), origin, None if isinstance(data, Streamed) else data)
    for path, leaf in jax.tree_util.tree_flatten_with_path(known)[0]:
        array = np.asarray(leaf)
        digest.update(f"{jax.tree_util.keystr(path)} {array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def write(path: Path, print_of_fit: str, saved: Saved) -> None:
    """Replace the checkpoint. Raises WriteError when it cannot be written."""
    from safetensors.numpy import save

    leaves = jax.tree.leaves(saved)
    arrays = {f"{place:04d}": np.ascontiguousarray(leaf) for place, leaf in enumerate(leaves)}
    raw = save(arrays, metadata={"version": _VERSION, "fit": print_of_fit})
    atomic.write_file(path, lambda temporary: temporary.write_bytes(raw))


def read(path: Path, print_of_fit: str, like: State) -> Saved:
    """Read a checkpoint; ``like`` gives the structure of a state.

    Raises FileNotFoundError when there is none, SwarmError when it is damaged or of another fit.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            found = file.metadata() or {}
            leaves = [file.get_tensor(name) for name in sorted(file.keys())]
    except SafetensorError as error:
        raise SwarmError(f"{path}: not a checkpoint, or damaged ({error}); start anew") from error
    if found.get("version") != _VERSION or found.get("fit") != print_of_fit:
        raise SwarmError(
            f"{path}: a checkpoint of another fit: ids, seed, hyperparameters or data differ, or "
            "it was written by another version. Start anew, or restore what was changed"
        )
    structure = jax.tree.structure(Saved(np.zeros(0), like, Losses(0, 0)))
    if structure.num_leaves != len(leaves):
        raise SwarmError(f"{path}: a checkpoint of another model; start anew")
    return jax.tree.unflatten(structure, leaves)
