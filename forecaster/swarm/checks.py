"""Checks of arguments. Each error names the argument, what was expected and what it got."""

import inspect
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

import numpy as np
from jaxtyping import Shaped

from forecaster.swarm.task import ArrayLike, Limits


class SwarmError(ValueError):
    """An argument does not fit; the message says which, what was expected and what it got."""


class SwarmFileNotFoundError(SwarmError, FileNotFoundError):
    """Raised when a file to load or to continue from is missing."""


class SwarmWarning(UserWarning):
    """A warning of the engine."""


def warn(message: str) -> None:
    """Issue a SwarmWarning that points at the line that called this package."""
    frame, level = inspect.currentframe(), 1
    while frame and frame.f_globals.get("__name__", "").startswith(__package__ or ""):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, SwarmWarning, stacklevel=level)


def check_ids(ids: Sequence[str]) -> None:
    """Raise SwarmError unless the ids are unique strings, and at least one."""
    if not ids:
        raise SwarmError("no members: ids is empty; expected at least one")
    if wrong := [name for name in cast(Sequence[object], ids) if not isinstance(name, str)]:
        raise SwarmError(f"ids: expected strings; got {wrong[0]!r}")
    if len(set(ids)) < len(ids):
        twice = sorted({name for name in ids if ids.count(name) > 1})
        raise SwarmError(f"ids must be unique; more than once: {', '.join(twice[:5])}")


def names_of(ids: Sequence[str] | int) -> tuple[str, ...]:
    """Return the members' names; for an integer n they are "0", "1", ..., n of them.

    Raises SwarmError as :func:`check_ids` does.
    """
    if isinstance(ids, int | np.integer):
        check_counts(ids=ids)
        return tuple(map(str, range(int(ids))))
    names = checked_names(ids, "ids")
    check_ids(names)
    return names


def checked_names(names: Sequence[str], what: str) -> tuple[str, ...]:
    """Return names as a tuple; ``what`` is the argument that an error names.

    Raises SwarmError for a single string, which would be split into letters.
    """
    if isinstance(names, str):
        raise SwarmError(
            f"{what}: expected names; got the single string {names!r}. For one name write "
            f"[{names!r}]"
        )
    if not isinstance(cast(object, names), Iterable):
        raise SwarmError(f"{what}: expected names, such as ['a', 'b']; got {names!r}")
    return tuple(names)


def check_counts(**counts: int | np.integer | None) -> None:
    """Raise SwarmError unless each count is None or a whole number of 1 or more."""
    for name, value in counts.items():
        whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
        if value is not None and (not whole or value < 1):
            raise SwarmError(f"{name}: expected a whole number of 1 or more; got {value!r}")


def broadcast_hyperparams(
    hyperparams: Mapping[str, ArrayLike], members: int
) -> dict[str, Shaped[np.ndarray, " member"]]:
    """Return hyperparameters as arrays (member,), float32 or int32.

    Raises SwarmError for values that are not numbers or have another shape, and for ``epochs`` and
    ``patience``, which are arguments of their own.
    """
    if misplaced := sorted(hyperparams.keys() & set(Limits._fields)):
        raise SwarmError(
            "hyperparams: expected neither epochs nor patience, which are arguments of their own, "
            f"as in fit(..., epochs=100, patience=10); got {', '.join(misplaced)}"
        )
    return {
        name: _broadcast(f"hyperparams[{name!r}]", value, members)
        for name, value in hyperparams.items()
    }


def broadcast_limits(epochs: ArrayLike, patience: ArrayLike | None, members: int) -> Limits:
    """Return epochs and patience as int32 arrays (member,); patience None means ``epochs``.

    Raises SwarmError unless they are whole numbers of 1 or more, one or one per member.
    """
    patience = epochs if patience is None else patience
    limits = Limits(
        _broadcast("epochs", epochs, members), _broadcast("patience", patience, members)
    )
    for name, values in limits._asdict().items():
        if values.dtype.kind != "i" or values.min() < 1:
            raise SwarmError(f"{name}: expected whole numbers of 1 or more; got {values.min()}")
    return limits


def _broadcast(what: str, given: ArrayLike, members: int) -> Shaped[np.ndarray, " member"]:
    if callable(given):
        raise SwarmError(
            f"{what}: expected numbers; got a function, {given!r:.80}. A schedule belongs into the "
            "optimiser, and its height can be the hyperparameter: optimizer=lambda learning_rate: "
            "optax.adam(lambda step: learning_rate * schedule(step))"
        )
    value = np.asarray(given)
    if value.dtype.kind not in "fiub":
        raise SwarmError(f"{what}: expected numbers; got {given!r}")
    floats = value.dtype.kind == "f"
    kind = np.float32 if floats else np.int32
    known = np.finfo(np.float32) if floats else np.iinfo(np.int32)
    finite = value[np.isfinite(value)]
    if ((finite < known.min) | (finite > known.max)).any():
        raise SwarmError(
            f"{what}: expected numbers of 32 bits, from {known.min} to {known.max}; got {given!r}"
        )
    value = value.astype(kind)
    if value.shape not in ((), (members,)):
        raise SwarmError(f"{what}: expected a scalar or shape ({members},); got {value.shape}")
    return np.broadcast_to(value, (members,))


def named_values(values: Mapping[str, Any] | None, what: str, such_as: str) -> dict[str, Any]:
    """Return values by name as a dict, empty for None; an error names ``what`` and ``such_as``.

    Raises SwarmError unless they are a mapping whose keys are strings.
    """
    given = cast(Mapping[Any, Any], {} if values is None else values)
    if not isinstance(cast(object, given), Mapping) or any(not isinstance(n, str) for n in given):
        raise SwarmError(f"{what}: expected values by name, such as {such_as}; got {given!r:.80}")
    return dict(given)


def check_callable(function: object, what: str) -> None:
    """Raise SwarmError unless it can be called or is None; ``what``: its name and arguments."""
    if function is not None and not callable(function):
        raise SwarmError(
            f"{what}: expected a function; got {function!r:.80}. Leave it out for none"
        )


def takes(function: Callable[..., Any], name: str) -> bool:
    """Return whether a function takes an argument of this name.

    A wrapper with ``*args`` or ``**kwargs`` takes the arguments of the function that it wraps.
    """
    own = _own_signature(function)
    if own is None:
        return False
    if {_ARGS, _KWARGS} & {parameter.kind for parameter in own.parameters.values()}:
        own = inspect.signature(function)
    return name in own.parameters


_ARGS, _KWARGS = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD


def _own_signature(function: Any) -> inspect.Signature | None:
    """Return the arguments that a function itself takes; None for a builtin that does not say.

    ``functools.wraps`` shows the arguments of the wrapped function instead. A function that is
    compiled, as by ``jax.jit``, takes the arguments of its Python function.
    """
    while not hasattr(function, "__code__") and hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    try:
        return inspect.signature(function, follow_wrapped=False)
    except (TypeError, ValueError):
        return None


def row_of(ids: Sequence[str], name: str) -> int:
    """Return a member's position. Raises SwarmError for an unknown name."""
    if name not in ids:
        hint = "" if isinstance(cast(object, name), str) else f". Names are strings: {str(name)!r}"
        raise SwarmError(
            f"no member {name!r}; there are {len(ids)}: {', '.join(ids[:5])}"
            f"{', ...' if len(ids) > 5 else ''}{hint}"
        )
    return ids.index(name)
