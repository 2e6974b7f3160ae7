"""Checks of what a caller hands in. Each error says what, where, expected and got."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


class SwarmError(ValueError):
    """Something handed to a swarm does not fit; the message says what, where and what would."""


def check_ids(ids: Sequence[str]) -> None:
    """Raise SwarmError unless there are ids, strings, each once."""
    if not ids:
        raise SwarmError("no members: ids is empty; expected at least one")
    if wrong := [name for name in ids if not isinstance(name, str)]:
        raise SwarmError(f"ids: expected strings; got {wrong[0]!r}")
    if len(set(ids)) < len(ids):
        twice = sorted({name for name in ids if ids.count(name) > 1})
        raise SwarmError(f"ids must be unique; more than once: {', '.join(twice[:5])}")


def check_counts(hyperparams: Mapping[str, Any], **counts: int | None) -> None:
    """Raise SwarmError unless counts are positive, and epochs and patience given."""
    for name, value in counts.items():
        if value is not None and (isinstance(value, bool) or int(value) != value or value < 1):
            raise SwarmError(f"{name}: expected a whole number of 1 or more; got {value!r}")
    for name in ("epochs", "patience"):
        if name not in hyperparams:
            raise SwarmError(
                f"hyperparams: {name!r} is missing; there are {', '.join(hyperparams) or 'none'}"
            )
        if hyperparams[name].dtype.kind != "i" or hyperparams[name].min() < 1:
            raise SwarmError(
                f"hyperparams[{name!r}]: expected whole numbers of 1 or more; got {hyperparams[name].min()}"
            )


def broadcast_hyperparams(hyperparams: Mapping[str, Any], members: int) -> dict[str, np.ndarray]:
    """Hyperparameters as arrays (member,), float32 or int32. Raises SwarmError for other shapes."""

    def spread(name, value):
        given, value = value, np.asarray(value)
        if value.dtype.kind not in "fiub":
            raise SwarmError(f"hyperparams[{name!r}]: expected numbers; got {given!r}")
        value = value.astype(np.float32 if value.dtype.kind == "f" else np.int32)
        if value.shape not in ((), (members,)):
            raise SwarmError(
                f"hyperparams[{name!r}]: expected a scalar or shape ({members},); got {value.shape}"
            )
        return np.broadcast_to(value, (members,))

    return {name: spread(name, value) for name, value in hyperparams.items()}
