"""The compiled filter of SciPy, loaded without the package around it."""

import importlib.machinery
import subprocess
import sys

import numpy as np
import pytest
from scipy.signal import lfilter

from forecaster.classical import linear_filter
from forecaster.classical import rows as room
from tests.messages import refuses

RANDOM = np.random.default_rng(0).normal(size=(7, 30))
RANDOM[2, 3] = np.nan
SHORT = [0.5], [1.0, -0.5]


@pytest.mark.parametrize("axis", [0, 1, -1, -2])
@pytest.mark.parametrize(
    ("above", "below", "values"),
    [
        ([0.06], [1.0, -0.94], RANDOM),
        ([1.0, -1.0, 0.0, 0.5], [1.0, -0.5, 0.25, 0.125], RANDOM),
        (*SHORT, np.arange(60).reshape(4, 15)[::2, ::3]),
        (*SHORT, np.empty((3, 0))),
        (*SHORT, np.empty((0, 3))),
    ],
)
def test_it_gives_the_bits_of_lfilter(above, below, values, axis) -> None:
    expected = lfilter(above, below, values.astype(float), axis=axis) if values.size else values
    np.testing.assert_array_equal(linear_filter(above, below, values, axis), expected)


def test_scipy_without_the_compiled_module_is_used_as_a_whole(monkeypatch) -> None:
    monkeypatch.setattr(importlib.machinery.PathFinder, "find_spec", lambda *_: None)
    assert room._compiled.__wrapped__() is lfilter


def test_the_first_coefficient_of_the_outputs_is_1() -> None:
    with refuses(ValueError):
        linear_filter([1.0], [2.0, 1.0], np.zeros(3))


def test_the_rest_of_the_package_is_not_imported() -> None:
    code = (
        "import sys, numpy as np\n"
        "from forecaster.classical import linear_filter\n"
        "linear_filter([0.5], [1.0, -0.5], np.zeros(3))\n"
        "sys.exit('scipy.signal' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
