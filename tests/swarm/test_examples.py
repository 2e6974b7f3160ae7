"""Checks of the examples that callers give, and their form in training."""

import numpy as np
import pytest

from forecaster.swarm import Shared, Streamed, SwarmError, stack
from forecaster.swarm.training.examples import part, training_data
from tests.messages import refuses

IDS = ("A", "B")
X = np.arange(24, dtype=np.float32).reshape(2, 4, 3)
Y = X[..., 0]


def test_members_of_unequal_length_are_padded_with_weight_zero():
    stacked, weight = stack([X[0], X[1, :2]])
    np.testing.assert_array_equal(stacked[0], X[0])
    np.testing.assert_array_equal(stacked[1], [*X[1, :2], [0, 0, 0], [0, 0, 0]])
    np.testing.assert_array_equal(weight, [[1, 1, 1, 1], [1, 1, 0, 0]])
    with refuses(SwarmError):
        stack([X[0], X[1, :, :2]])


@pytest.mark.parametrize("given", [1, 2, 3])
def test_streams_may_leave_out_targets_and_weight(given):
    weight = np.full((2, 4), 0.5, np.float32)
    keys = np.arange(4, dtype=np.uint32).reshape(2, 2)

    def load(rows):
        return (X[rows], Y[rows], weight[rows])[:given] if given > 1 else X[rows]

    data = training_data(IDS, Streamed(load), None, None, None, keys)
    assert isinstance(data, Streamed)
    loaded = data.load(np.array([1]))
    np.testing.assert_array_equal(loaded.inputs, X[1:])
    assert (loaded.targets is None) == (given == 1)
    np.testing.assert_array_equal(loaded.weight, np.full((1, 4), 0.5 if given == 3 else 1.0))
    np.testing.assert_array_equal(loaded.bootstrap, keys[1:])


@pytest.mark.parametrize("bad", [np.nan, -1.0, np.inf])
def test_weights_are_finite_and_not_negative(bad):
    weight = np.ones((2, 4), np.float32)
    weight[1, 2] = bad
    for check in (True, False):
        with refuses(SwarmError):
            part(IDS, X, Y, weight, "", check=check)
    with refuses(SwarmError):
        part(IDS, X, Y, Shared(weight[1]), "")
    streamed = training_data(
        IDS, Streamed(lambda rows: (X[rows], Y[rows], weight[rows])), *[None] * 4
    )
    assert isinstance(streamed, Streamed)
    with refuses(SwarmError):
        streamed.load(np.array([1]))
