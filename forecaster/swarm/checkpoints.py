"""Checkpoints of a fit under way: one file, always replaced as a whole, never half-written.

How a member trains on depends on its own state alone, not on the members beside it. So a checkpoint
is the state of every member that has started and nothing of the schedule, and a fit that continues
from it ends with the same bits as one that was never interrupted.

A fit in shards keeps each finished shard in a file of its own beside the checkpoint, named by the
position of its first member. Either kind of fit continues from the files of the other.

A saved swarm has the same form: a safetensors file whose arrays are named by their place in the
tree, such as ``state.params['out']['kernel']``. What else is known stands as JSON in its header.
No pickle.
"""

import contextlib
import dataclasses
import glob
import hashlib
import json
import os
import secrets
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, cast

import jax
import msgspec
import numpy as np
from jaxtyping import Float, Int, Shaped, UInt32

from forecaster.swarm.arrays import Rows, Streamed, append_members, named_leaves
from forecaster.swarm.checks import SwarmError, SwarmFileNotFoundError
from forecaster.swarm.native import kernel_status
from forecaster.swarm.recurrence import products_of
from forecaster.swarm.task import AnyArray, Data, Limits, Tree
from forecaster.swarm.training.loop import Losses, State, Status

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


class History:
    """Losses of members that may be at different epochs, written in place.

    There is room for later epochs, doubled where it is used up, so that a block copies only itself.
    """

    def __init__(self, losses: Losses, metrics: Sequence[str] = ()):  # each (member, epoch)
        self._losses, self._epochs = widened_losses(losses, 0, metrics), losses.train.shape[1]

    def add(
        self,
        rows: Int[np.ndarray, " row"],
        losses: Losses,  # each (row, epoch since ``before``)
        before: Int[np.ndarray, " row"],
        after: Int[np.ndarray, " row"],
    ) -> None:
        """Write the losses of the epochs in which ``rows`` trained from ``before`` to ``after``."""
        self._epochs = max(self._epochs, int(after.max(initial=0)))
        if self._epochs > self._losses.train.shape[1]:
            self._losses = widened_losses(self._losses, 2 * self._epochs)
        trained = after - before
        position, epoch = np.nonzero(np.arange(losses.train.shape[1]) < trained[:, None])
        pairs = [(self._losses.train, losses.train), (self._losses.validation, losses.validation)]
        pairs += [(self._losses.metrics[name], losses.metrics[name]) for name in losses.metrics]
        for out, new in cast(list[tuple[np.ndarray, np.ndarray]], pairs):
            out[rows[position], before[position] + epoch] = new[position, epoch]

    def latest(self, epochs: Int[np.ndarray, " member"]) -> Float[np.ndarray, " member"]:
        """Return the validation losses of these epochs, counted from 1; NaN for epoch 0."""
        latest, rows = np.full(len(epochs), np.nan), np.flatnonzero(epochs)
        latest[rows] = self._losses.validation[rows, epochs[rows] - 1]
        return latest

    @property
    def losses(self) -> Losses:
        """A copy of training and validation loss and metrics, each (member, epoch)."""

        def known(leaf: np.ndarray) -> np.ndarray:
            return np.array(leaf[:, : self._epochs])

        return jax.tree.map(known, self._losses)


def append_losses(first: Losses, second: Losses) -> Losses:
    """Return the losses (member, epoch) of two swarms as those of one."""
    epochs = max(first.train.shape[1], second.train.shape[1])
    return append_members(
        widened_losses(first, epochs, tuple(second.metrics)),
        widened_losses(second, epochs, tuple(first.metrics)),
    )


def widened_losses(losses: Losses, epochs: int, metrics: Sequence[str] = ()) -> Losses:
    """Return a copy of the losses, at least ``epochs`` wide and with these metrics too."""
    members, before = losses.train.shape

    def widened(known: AnyArray | None) -> np.ndarray:
        wide = np.full((members, max(epochs, before)), np.nan, losses.train.dtype)
        if known is not None:
            wide[:, :before] = known
        return wide

    names = sorted({*losses.metrics, *metrics})
    by_name = {name: widened(losses.metrics.get(name)) for name in names}
    return Losses(widened(losses.train), widened(losses.validation), by_name)


_FLOAT = np.dtype(np.float32)
_METRICS = "losses.metrics['"


class Trained(NamedTuple):
    """States and losses of some members, leaves (member, ...)."""

    state: State
    losses: Losses


def arrays_of(tree: Tree) -> dict[str, np.ndarray]:
    """Return the arrays of a tree by name."""
    return {name.removeprefix("."): leaf for name, leaf in named_leaves(tree)}


def write_arrays(
    path: Path,
    arrays: Mapping[str, np.ndarray],
    kind: str,
    header: Mapping[str, Any],
    replace: Replace = write_file,
) -> None:
    """Replace a file as a whole. ``kind``: the name of the header in the file."""
    from safetensors.numpy import save

    whole = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    raw = save(whole, metadata={kind: json.dumps(header, allow_nan=False)})
    replace(path, lambda temporary: temporary.write_bytes(raw))


class Opened(NamedTuple):
    """An open file: its header, and a function that reads an array by its name."""

    header: dict[str, Any]
    shapes: dict[str, list[int]]
    read: Callable[[str], np.ndarray]


@contextlib.contextmanager
def opened(path: Path, kind: str, what: str) -> Generator[Opened]:
    """Open a file with a header of this kind; ``what``: how errors call such a file.

    Raises SwarmError for any other or damaged file.
    """
    from safetensors import safe_open

    if not path.is_file():  # reading from a pipe or a device might never end
        raise SwarmError(f"{path}: not {what}: not a plain file")
    try:
        file: Any = safe_open(path, framework="numpy")
        with file:
            metadata: dict[str, str] = file.metadata() or {}
            if kind not in metadata:
                raise SwarmError(f"{path}: not {what}, or one of an earlier version: start anew")
            header = msgspec.json.decode(metadata[kind])
            shapes = {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118
            yield Opened(header, shapes, file.get_tensor)
    except SwarmError:
        raise
    except Exception as error:  # a damaged file may fail in any way
        raise SwarmError(f"{path}: not {what}, or damaged ({error})") from error


def restored(path: Path, arrays: Mapping[str, np.ndarray], like: State, members: int) -> Trained:
    """Return the states and losses that a file holds.

    - ``arrays``: by name, as :func:`arrays_of` names those of :class:`Trained`
    - ``like``: states of the same model, of any members
    - ``members``: the number of members in the file

    Raises SwarmError for arrays of another model, and for losses, statuses and epoch counts that
    training cannot produce.
    """
    none = np.zeros((members, 0), np.float32)
    metrics = [name.removeprefix(_METRICS).removesuffix("']") for name in arrays
               if name.startswith(_METRICS)]  # fmt: skip
    expected = Trained(like, Losses(none, none, dict.fromkeys(metrics, none)))
    names = list(arrays_of(expected))
    if unmatched := sorted(set(names) ^ set(arrays)):
        raise SwarmError(f"{path}: of another model or optimiser: {', '.join(unmatched[:5])}")
    structure = cast(Any, jax.tree.structure(expected))
    found: Trained = jax.tree.unflatten(structure, [arrays[name] for name in names])
    check_same_shapes(like, found.state, str(path))
    for name, leaf in named_leaves(found.losses):
        if leaf.dtype != _FLOAT or len(leaf) != members:
            raise SwarmError(f"{path}: {name}: expected {_FLOAT} of {members} members")
    state, losses = found
    shapes = {np.shape(leaf) for leaf in jax.tree.leaves(losses)}
    if losses.train.ndim != 2 or len(shapes) != 1:
        raise SwarmError(f"{path}: losses: expected arrays (member, epoch), all of one shape")
    epochs, best = np.asarray(state.epoch), np.asarray(state.best_epoch)
    sound = (best >= 0) & (best <= epochs) & (epochs <= losses.train.shape[1])
    if not sound.all() or not np.isin(state.status, list(Status)).all():
        raise SwarmError(f"{path}: damaged: epochs or statuses that training cannot produce")
    return found


def check_same_shapes(state: State, other: State, whose: str) -> None:
    """Raise SwarmError unless both states, (member, ...), are of the same model and optimiser.

    ``whose``: what the error calls the other state.
    """
    expected, got = (
        {name: f"{leaf.shape[1:]} {leaf.dtype}" for name, leaf in named_leaves(each)}
        for each in (state, other)
    )
    for name in expected | got:
        if expected.get(name) != got.get(name):
            raise SwarmError(
                f"{whose}: of another model or optimiser: {name}: expected shape "
                f"{expected.get(name, 'none')} per member; got {got.get(name, 'none')}"
            )


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
