"""What a traced function does."""

from collections.abc import Callable
from typing import Any

import jax


def does(jaxpr: Any, wanted: Callable[[str], bool]) -> bool:
    """Whether one of a traced function's operations has a name like that, in what it calls, too.

    ``jaxpr``: a ``Jaxpr``. It, and those inside, are known by their attributes: to import their
    types takes a hundredth of a second, which a forecast need not wait for.
    """
    return any(wanted(each.primitive.name) or _inside(each.params, wanted) for each in jaxpr.eqns)


def _inside(params: dict[str, Any], wanted: Callable[[str], bool]) -> bool:
    values = jax.tree.leaves(list(params.values()), is_leaf=_is_program)
    return any(_is_program(value) and does(_open(value), wanted) for value in values)


def _is_program(value: object) -> bool:
    return hasattr(_open(value), "eqns")


def _open(value: Any) -> Any:
    """The ``Jaxpr`` of a closed one."""
    return getattr(value, "jaxpr", value)
