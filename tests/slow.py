"""Parameters that are left to the slow tests."""

from collections.abc import Iterable
from typing import Any

import pytest


def rest_slow(params: Iterable[Any], ordinary: int = 1) -> list[Any]:
    """Return the parameters of a test; all but the first of them run only with ``-m slow``.

    ``ordinary``: how many run with the ordinary tests
    """
    return [
        one if number < ordinary else slow(*(one if isinstance(one, tuple) else (one,)))
        for number, one in enumerate(params)
    ]


def slow(*values: Any) -> Any:
    """Return one set of parameters that runs only with ``-m slow``."""
    return pytest.param(*values, marks=pytest.mark.slow)
