"""Arguments that once had other names."""

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from forecaster.swarm.checks import warn

_P = ParamSpec("_P")
_R = TypeVar("_R")


def renamed(**names: str) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Let a function take arguments by their former names, too, with a SwarmWarning."""

    def accept(function: Callable[_P, _R]) -> Callable[_P, _R]:
        @functools.wraps(function)
        def called(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            for old, new in names.items():
                if old in kwargs:
                    if new in kwargs:
                        raise TypeError(f"{function.__name__}() got both {old} and {new}")
                    warn(f"{function.__name__}({old}=...) is now {new}=...")
                    kwargs[new] = kwargs.pop(old)
            return function(*args, **kwargs)

        return called

    return accept
