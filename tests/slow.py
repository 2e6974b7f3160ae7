"""What is left to the slow tests: parameters, and most of the repetitions of long tests."""

import os
from collections.abc import Iterable
from typing import Any

import pytest

SHARE = int(os.environ.get("FORECASTER_TEST_SHARE", "1"))
"""Of that many repetitions of a long test, one takes place."""


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
