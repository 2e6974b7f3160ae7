"""A swarm in a file: safetensors, whose header holds ids and seed as strict JSON. Never pickle."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

import jax
import numpy as np

from forecaster import atomic
from forecaster.swarm.checks import SwarmError
from forecaster.swarm.members import named_leaves
from forecaster.swarm.result import FitResult
from forecaster.swarm.training import State

_T = TypeVar("_T")

_VERSION = 1
_HYPERPARAMS = "hyper/"  # what files call them


def save(
    path: Path,
    ids: Sequence[str],
    seed: int,
    hyperparams: Mapping[str, np.ndarray],
    result: FitResult,
) -> None:
    """Write a swarm, whole or not at all. Raises WriteError when it cannot be written."""
    from safetensors.numpy import save as to_bytes

    arrays = {f"{_HYPERPARAMS}{name}": values for name, values in hyperparams.items()}
    arrays |= {f"state{name}": leaf for name, leaf in named_leaves(result.state)}
    arrays |= {f"losses{name}": leaf for name, leaf in named_leaves(result.losses)}
    header = {"schema": _VERSION, "ids": list(ids), "seed": seed, "seconds": result.seconds}
    arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    raw = to_bytes(arrays, metadata={"swarm": json.dumps(header, allow_nan=False)})
    atomic.write_file(path, lambda temporary: temporary.write_bytes(raw))


def read_header(path: Path) -> tuple[tuple[str, ...], int, dict[str, np.ndarray]]:
    """Ids, seed and hyperparameters of a saved swarm."""
    with _open(path) as file:
        header = _header(path, file)
        names = [name for name in file.keys() if name.startswith(_HYPERPARAMS)]  # noqa: SIM118
        hyperparams = {name.removeprefix(_HYPERPARAMS): file.get_tensor(name) for name in names}
    return tuple(header["ids"]), int(header["seed"]), hyperparams


def read(path: Path, like: FitResult) -> FitResult:
    """Read what training left. ``like``: the same members and model, untrained.

    Raises SwarmError when the file's model is another.
    """
    with _open(path) as file:
        seconds = _header(path, file)["seconds"]
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118

    def fill(prefix: str, tree: _T) -> _T:
        names = [prefix + name for name, _ in named_leaves(tree)]
        saved = [name for name in tensors if name.startswith(prefix)]
        if unmatched := sorted(set(names) ^ set(saved)):
            raise SwarmError(f"{path}: of another model or optimiser: {', '.join(unmatched[:5])}")
        structure = cast(Any, jax.tree.structure(tree))
        return jax.tree.unflatten(structure, [tensors[name] for name in names])

    state, losses = fill("state", like.state), fill("losses", like.losses)
    check_same_shapes(like.state, state, str(path))
    return FitResult(like.ids, state, losses, seconds)


def check_same_shapes(state: State, other: State, whose: str) -> None:
    """Raise SwarmError unless both states, (member, ...), are of the same model and optimiser.

    ``whose``: what the error calls the other.
    """
    expected = {name: leaf.shape[1:] for name, leaf in named_leaves(state)}
    got = {name: leaf.shape[1:] for name, leaf in named_leaves(other)}
    for name in expected | got:
        if expected.get(name) != got.get(name):
            raise SwarmError(
                f"{whose}: of another model or optimiser: {name}: expected shape "
                f"{expected.get(name, 'none')} per member; got {got.get(name, 'none')}"
            )


def _open(path: Path) -> Any:
    from safetensors import SafetensorError, safe_open

    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file")
    try:
        return safe_open(path, framework="numpy")
    except (SafetensorError, OSError) as error:
        raise SwarmError(f"{path}: not a saved swarm, or damaged ({error})") from error


def _header(path: Path, file: Any) -> dict[str, Any]:
    try:
        header = json.loads(cast(dict[str, str], file.metadata() or {})["swarm"])
    except (KeyError, ValueError) as error:
        raise SwarmError(f"{path}: not a saved swarm") from error
    if header.get("schema") != _VERSION:
        raise SwarmError(
            f"{path}: written with schema {header.get('schema')}; this version reads {_VERSION}"
        )
    return header
