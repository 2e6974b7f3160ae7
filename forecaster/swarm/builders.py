"""Functions that make modules, as they are given, and what is given in place of one."""

import functools
import inspect
import sys
from collections.abc import Callable
from typing import Any, TypeAlias, cast

from flax import nnx

from forecaster.swarm.checks import SwarmError

Build: TypeAlias = Callable[..., nnx.Module]
"""A function ``build(rngs)`` that makes a module from random streams."""


def checked_build(build: Build) -> Build:
    """The function, which takes its random streams by position from here on.

    Raises SwarmError for a module in place of it, and for one that takes something else.
    """
    check_not_made(build, "a function build(rngs)")
    by_name = False
    try:
        signature = inspect.signature(_init(build))
        rngs = signature.parameters.get("rngs")
        by_name = rngs is not None and rngs.kind is not rngs.POSITIONAL_ONLY
        signature.bind(**{"rngs": None}) if by_name else signature.bind(None)
    except TypeError as error:
        raise SwarmError(
            f"the model: expected a function build(rngs) that returns a flax.nnx module, or a pair "
            f"(init, apply); calling it failed: {error}"
        ) from error
    except ValueError:  # a builtin that does not say what it takes
        pass
    if not by_name:
        return build

    def named(rngs: nnx.Rngs) -> nnx.Module:
        return build(rngs=rngs)

    return named


def _init(build: Build) -> Callable[..., Any]:
    """A function with the parameters of another: a class of Flax does not say its own."""
    part = cast(Any, build if isinstance(build, functools.partial) else functools.partial(build))
    if inspect.isclass(part.func):
        made = cast(Any, part.func)
        return functools.partial(made.__init__, None, *part.args, **part.keywords)
    return cast(Callable[..., Any], build)


_KINDS = {  # libraries, their classes of modules, and what to give in place of one
    "flax.nnx": ("Module", "the class or a function that makes it, as in lambda rngs: {name}(...)"),
    "flax.linen": ("Module", "swarm.linen_functions(module, example of its input)"),
    "equinox": ("Module", "swarm.equinox_functions(make), as in make = lambda key: {name}(...)"),
    "keras": ("Model", "swarm.keras_functions(model)"),
}


def check_not_made(build: object, expected: str) -> None:
    """Raise SwarmError where a module is given in place of what makes one."""
    for library, (kind, instead) in _KINDS.items():
        classes = getattr(sys.modules.get(library), kind, None)  # nobody has one unimported
        if classes is not None and isinstance(build, classes):
            name = type(build).__name__
            raise SwarmError(
                f"the model: expected {expected}; got a module of {library}, {name}, that is "
                f"already made. Give {instead.format(name=name)}"
            )
