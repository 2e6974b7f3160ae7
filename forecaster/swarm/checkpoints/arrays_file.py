"""States and losses of members in a safetensors file: what a saved swarm and a checkpoint share.

Arrays are named by their place in the tree, such as ``state.params['out']['kernel']``. What else is
known stands as JSON in the file's header. No pickle.
"""

import contextlib
import json
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

import jax
import msgspec
import numpy as np

from forecaster.swarm.arrays.members import named_leaves
from forecaster.swarm.checkpoints.writing import Replace, write_file
from forecaster.swarm.checks import SwarmError
from forecaster.swarm.task import Tree
from forecaster.swarm.training.loop import Losses, State, Status

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
