"""Members that diverge within a block are taken back to their last finite weights."""

import numpy as np
import pytest

from forecaster.swarm.execution.divergence import first_bad, take_back
from forecaster.swarm.training.loop import State, Status

NAN = np.nan


def test_the_first_epoch_that_went_wrong():
    losses = np.array([[1, 2, 3], [1, NAN, NAN], [NAN, 1, 1], [1, 2, NAN], [1, 2, NAN]], np.float32)
    sound = np.array([False, True, True, True, True])
    trained = np.array([3, 3, 0, 2, 3])
    assert list(first_bad(losses, sound, trained)) == [2, 1, -1, -1, 2]


def states(epochs):
    """States of three members, whose weights are the number of epochs that they trained."""
    same = np.full(3, epochs, np.int32)
    weights = {"w": same.astype(np.float32)}
    status = np.full(3, Status.TRAINING, np.int32)
    keys, losses = np.zeros((3, 2), np.uint32), np.zeros(3, np.float32)
    return State(keys, weights, (), same, status, weights, losses, same)


@pytest.mark.parametrize("last", [0, 1, 2, 3, 60, 126, 500, 998, 999, 1000])
@pytest.mark.parametrize("bad", [999, 1000])
def test_a_member_is_taken_back_to_its_last_finite_weights(bad, last):
    """Few repetitions of the block suffice, however many epochs it has to go back."""
    last, runs = min(last, bad), []

    def train(row, epochs):
        assert row == 1
        runs.append(epochs)
        return states(epochs), np.array([True, epochs <= last, False])

    after = take_back(states(1001), np.array([-1, bad, -1]), train)
    assert list(after.params["w"]) == [1001, last, 1001]
    assert list(after.epoch) == [1001, last + 1, 1001]
    assert list(after.status) == [Status.TRAINING, Status.DIVERGED, Status.TRAINING]
    assert len(runs) == len(set(runs)) <= 20 and (last < bad - 1 or len(runs) <= 2)
