"""Checkpoints of a fit under way: one file, always replaced whole, never half-written.

A member's future depends on its own state alone, not on who trained beside it. So a checkpoint is
the state of every member that has started and nothing of the schedule, and a fit that continues
from it ends with the same bits as one that was never interrupted.
"""

import dataclasses
import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import jax
import numpy as np
from jaxtyping import Bool, UInt32

from forecaster.swarm.checks import SwarmError
from forecaster.swarm.data import Streamed
from forecaster.swarm.members import named_leaves
from forecaster.swarm.recurrence import kernel_status, products_of
from forecaster.swarm.task import Data, Limits
from forecaster.swarm.training import Losses, State
from forecaster.swarm.writing import write_file

_VERSION = "2"


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """Where a fit keeps its state, and after how many seconds of training it writes it again.

    With ``resume``, a fit continues from the file; without, it starts anew and overwrites it. The
    ``precision`` of the task's recurrences is named here where it is not float32: such a fit is
    continued only where it is computed by the same code. ``replace(path, write)`` puts a file that
    ``write(temporary_path)`` writes in place of another, whole.
    """

    path: Path
    every: float = 30.0
    resume: bool = False
    precision: str = "float32"
    replace: Callable[[Path, Callable[[Path], object]], None] = write_file


class Saved(NamedTuple):
    """What a checkpoint holds: which members have started, all states, losses (member, epoch)."""

    started: Bool[np.ndarray, " member"]
    state: State
    losses: Losses


def fingerprint(
    ids: Sequence[str],
    seed: int,
    hyperparams: Mapping[str, np.ndarray],
    limits: Limits,
    origin: State | UInt32[np.ndarray, "member 2"],
    data: Data | Streamed,
    precision: str = "float32",
) -> str:
    """A hash of everything that decides the members' training, except the task's code.

    Streamed data do not enter it: that they are the same is the caller's responsibility.
    """
    digest = hashlib.sha256(repr((tuple(ids), seed)).encode())
    settings = {**hyperparams, **limits._asdict()}
    decisive = (settings, origin, None if isinstance(data, Streamed) else data)
    for name, array in named_leaves(decisive):
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    if precision != "float32":
        digest.update(products_of(precision).encode())
    return digest.hexdigest()


def arithmetic(precision: str = "float32") -> dict[str, str]:
    """Which code computes in this process, as far as it decides the bits; starts JAX.

    - ``backend``: JAX's, such as ``cpu``
    - ``kernel``: the instruction set of the compiled recurrence, or ``off``
    - ``products``: what another precision than float32 comes to; see :func:`recurrence.products_of`
    """
    known = {"backend": jax.default_backend(), "kernel": kernel_status()[0] or "off"}
    return known if precision == "float32" else known | {"products": products_of(precision)}


def write(checkpoint: Checkpoint, digest: str, saved: Saved) -> None:
    """Replace the checkpoint. ``digest``: the fit's fingerprint.

    Raises SwarmWriteError when it cannot be written.
    """
    from safetensors.numpy import save

    leaves = jax.tree.leaves(saved)
    arrays = {f"{number:04d}": np.ascontiguousarray(leaf) for number, leaf in enumerate(leaves)}
    raw = save(arrays, metadata=arithmetic() | {"version": _VERSION, "fit": digest})
    checkpoint.replace(checkpoint.path, lambda temporary: temporary.write_bytes(raw))


def read(path: Path, digest: str, like: State, metrics: Sequence[str] = ()) -> Saved:
    """Read a checkpoint of the fit with this fingerprint.

    ``like`` has the structure of a state; ``metrics`` are the names of those that are kept.

    Raises FileNotFoundError when there is none, SwarmError when it is damaged, of another fit, or
    computed by other code than this process would go on with.
    """
    from safetensors import SafetensorError, safe_open

    try:
        opened: Any = safe_open(path, framework="numpy")
        with opened as file:
            metadata: dict[str, str] = file.metadata() or {}
            leaves: list[np.ndarray] = [file.get_tensor(name) for name in sorted(file.keys())]
    except SafetensorError as error:
        raise SwarmError(f"{path}: not a checkpoint, or damaged ({error}); start anew") from error
    if metadata.get("version") != _VERSION or metadata.get("fit") != digest:
        raise SwarmError(
            f"{path}: a checkpoint of another fit: ids, seed, hyperparameters or data differ, or "
            "what computes bfloat16, or it was written by another version. Start anew, or restore "
            "what was changed"
        )
    _check_arithmetic(path, metadata)
    none = np.zeros(0)
    losses = Losses(none, none, dict.fromkeys(metrics, none))
    structure = cast(Any, jax.tree.structure(Saved(none, like, losses)))
    if structure.num_leaves != len(leaves):
        raise SwarmError(f"{path}: a checkpoint of another model; start anew")
    saved: Saved = jax.tree.unflatten(structure, leaves)
    if _shapes(saved.state) != _shapes(like):
        raise SwarmError(f"{path}: a checkpoint of another model; start anew")
    return saved


def _check_arithmetic(path: Path, metadata: Mapping[str, str]) -> None:
    """Raise SwarmError where the rest would be rounded otherwise than the beginning."""
    changed = [
        f"{name} {metadata[name]} (now {now})"
        for name, now in arithmetic().items()
        if metadata.get(name, now) != now  # older ones do not say
    ]
    if changed:
        raise SwarmError(
            f"{path}: computed with {', '.join(changed)}: the fit would end with the bits of "
            "neither. Continue on such a machine, or with FORECASTER_KERNEL and JAX_PLATFORMS as "
            "they were; or start anew"
        )


def _shapes(state: State) -> list[tuple[tuple[int, ...], str]]:
    return [(leaf.shape, str(leaf.dtype)) for _, leaf in named_leaves(state)]
