"""Save and read a swarm: safetensors with ids and seed as strict JSON in the header, no pickle."""

import contextlib
import json
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast

import jax
import msgspec
import numpy as np

from forecaster.swarm.arrays.members import named_leaves
from forecaster.swarm.checkpoints.writing import write_file
from forecaster.swarm.checks import (
    SwarmError,
    SwarmFileNotFoundError,
    broadcast_hyperparams,
    check_ids,
)
from forecaster.swarm.execution.result import FitResult
from forecaster.swarm.training.loop import Losses, State, Status

_T = TypeVar("_T")

_VERSION = 1
_HYPERPARAMS = "hyper/"  # prefix of their names in the file
_FLOAT = np.dtype(np.float32)
_METRICS = "losses.metrics['"


def save(
    path: Path,
    seed: int,
    hyperparams: Mapping[str, np.ndarray],
    result: FitResult,
) -> None:
    """Write a swarm atomically. Raises SwarmWriteError when it cannot be written."""
    from safetensors.numpy import save as to_bytes

    arrays = {f"{_HYPERPARAMS}{name}": values for name, values in hyperparams.items()}
    arrays |= {f"state{name}": leaf for name, leaf in named_leaves(result.state)}
    arrays |= {f"losses{name}": leaf for name, leaf in named_leaves(result.losses)}
    header: dict[str, Any] = {"schema": _VERSION, "ids": list(result.ids), "seed": seed}
    header |= {"seconds": result.seconds}
    arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    raw = to_bytes(arrays, metadata={"swarm": json.dumps(header, allow_nan=False)})
    write_file(path, lambda temporary: temporary.write_bytes(raw))


class Header(msgspec.Struct):
    """What the header of a file says of a swarm.

    - ``ids``, ``seed``: ids and seed of the members
    - ``seconds``: the duration of the last fit
    """

    ids: tuple[str, ...]
    seed: Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
    seconds: Annotated[float, msgspec.Meta(ge=0)]


def read_header(path: Path) -> tuple[Header, dict[str, np.ndarray]]:
    """Read the header of a saved swarm, and its hyperparameters by name, (member,).

    Raises SwarmError for a damaged file, or if an array does not have one row per member (so the
    number of members is limited by the file's size), and FileNotFoundError for a missing file.
    """
    with _opened(path) as file:
        header = _header(path, file)
        ids = header.ids
        shapes = {name: file.get_slice(name).get_shape() for name in _names(file)}
        if wrong := [name for name, shape in shapes.items() if shape[:1] != [len(ids)]]:
            raise SwarmError(f"{path}: {wrong[0]}: expected a row for each of {len(ids)} members")
        hyperparams = {
            name.removeprefix(_HYPERPARAMS): file.get_tensor(name)
            for name in shapes
            if name.startswith(_HYPERPARAMS)
        }
    return header, broadcast_hyperparams(hyperparams, len(ids))


def read(path: Path, ids: Sequence[str], like: State) -> FitResult:
    """Read the states and losses of these members.

    ``like``: untrained states of the same model. Raises SwarmError for a file of another model.
    """
    with _opened(path) as file:
        seconds = _header(path, file).seconds
        tensors = {name: file.get_tensor(name) for name in _names(file)}

    def fill(prefix: str, tree: _T) -> _T:
        names = [prefix + name for name, _ in named_leaves(tree)]
        saved = [name for name in tensors if name.startswith(prefix)]
        if unmatched := sorted(set(names) ^ set(saved)):
            raise SwarmError(f"{path}: of another model or optimiser: {', '.join(unmatched[:5])}")
        structure = cast(Any, jax.tree.structure(tree))
        return jax.tree.unflatten(structure, [tensors[name] for name in names])

    none = np.zeros((len(ids), 0), np.float32)
    metrics = [_metric(name) for name in tensors if name.startswith(_METRICS)]
    kept = Losses(none, none, dict.fromkeys(metrics, none))
    state, losses = fill("state", like), fill("losses", kept)
    check_same_shapes(like, state, str(path))
    _check_training(path, len(ids), state, losses)
    return FitResult(tuple(ids), state, losses, seconds)


def _metric(name: str) -> str:
    """Return a metric's name from that of its array in the file."""
    return name.removeprefix(_METRICS).removesuffix("']")


def _check_training(path: Path, members: int, state: State, losses: Losses) -> None:
    """Raise SwarmError for losses, statuses and epoch counts that training cannot produce."""
    for name, leaf in named_leaves(losses):
        if leaf.dtype != _FLOAT or len(leaf) != members:
            raise SwarmError(f"{path}: {name}: expected {_FLOAT} of {members} members")
    shapes = {np.shape(leaf) for leaf in jax.tree.leaves(losses)}
    if losses.train.ndim != 2 or len(shapes) != 1:
        raise SwarmError(f"{path}: losses: expected arrays (member, epoch), all of one shape")
    epochs, best = np.asarray(state.epoch), np.asarray(state.best_epoch)
    sound = (best >= 0) & (best <= epochs) & (epochs <= losses.train.shape[1])
    if not sound.all() or not np.isin(state.status, list(Status)).all():
        raise SwarmError(f"{path}: damaged: epochs or statuses that training cannot produce")


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


@contextlib.contextmanager
def _opened(path: Path) -> Generator[Any]:
    """Open a safetensors file. Raises SwarmError for any other or damaged file."""
    from safetensors import safe_open

    if not path.exists():
        raise SwarmFileNotFoundError(f"{path}: no such file; expected a saved swarm")
    if not path.is_file():  # reading from a pipe or a device might never end
        raise SwarmError(f"{path}: not a saved swarm: not a plain file")
    try:
        opened: Any = safe_open(path, framework="numpy")
        with opened as file:
            yield file
    except SwarmError:
        raise
    except Exception as error:  # a damaged file may fail in any way
        raise SwarmError(f"{path}: not a saved swarm, or damaged ({error})") from error


def _names(file: Any) -> list[str]:
    return list(cast(Sequence[str], file.keys()))


def _header(path: Path, file: Any) -> Header:
    """Return the header. Raises SwarmError for fields that are missing or of another type."""
    try:
        fields = msgspec.json.decode(cast(dict[str, str], file.metadata() or {})["swarm"])
        schema = fields["schema"]
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise SwarmError(f"{path}: not a saved swarm") from error
    if schema != _VERSION:
        raise SwarmError(
            f"{path}: written with schema {schema!r:.50}; this version reads {_VERSION}"
        )
    try:
        header = msgspec.convert(fields, Header)
    except msgspec.ValidationError as error:
        raise SwarmError(f"{path}: not a saved swarm: {error}") from error
    check_ids(header.ids)
    return header
