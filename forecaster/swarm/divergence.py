"""Members that diverged in a block of epochs: where it happened, and what they were before.

While members train without validation nobody looks at single epochs, which would cost a small
network as much as its training. Afterwards the losses tell, and the same program, run for fewer
epochs, gives the last sound weights, to the bit.
"""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from jaxtyping import Bool, Float, Int

from forecaster.swarm.members import take_members, write_members
from forecaster.swarm.training import State, Status


def first_bad(
    losses: Float[np.ndarray, "row epoch"],
    sound: Bool[np.ndarray, " row"],
    trained: Int[np.ndarray, " row"],
) -> Int[np.ndarray, " row"]:
    """The first epoch of a block that went wrong, counted from 0; -1 where nothing did.

    That is one whose loss is not finite, or the last, where only the weights at the end are not
    finite.

    - ``losses``: of the block's epochs
    - ``sound``: whether the weights at the end are finite
    - ``trained``: how many epochs each member trained
    """
    bad = np.array(~np.isfinite(losses), bool)
    bad[np.arange(bad.shape[1]) >= trained[:, None]] = False
    at_the_end = np.array(trained - 1, int)
    at_the_end[np.asarray(sound | (trained == 0))] = -1
    return np.where(bad.any(1), bad.argmax(1), at_the_end)


_Train: TypeAlias = Callable[[int, int], tuple[State, np.ndarray]]


def put_right(state: State, bad: Int[np.ndarray, " row"], train: _Train) -> State:
    """States of a group, in which members that diverged are as they were before it happened.

    - ``state``: the group's after the block, arrays (row, ...)
    - ``bad``: the epoch of the block that went wrong, see :func:`first_bad`
    - ``train``: of a row and a number of epochs, the states after so many of the block, of that
      row at least, and whether weights are finite
    """
    for row in (int(row) for row in np.flatnonzero(bad >= 0)):
        state = write_members(state, np.array([row]), _last_sound(train, row, int(bad[row])))
    return state


def _last_sound(train: _Train, row: int, bad: int) -> State:
    """The state (1, ...) of a member that diverged in epoch ``bad``, with its last finite weights.

    Where its loss was not finite, the weights after the epoch before may not have been either, nor
    those of many epochs if no loss depends on them. Weights that are not finite stay so: it looks
    back by ever longer steps until they are, and then between the last two.
    """
    after, sound = train(row, bad)
    if bad and not sound[row]:
        after = _before(train, row, bad)
    state = take_members(after, slice(row, row + 1))
    diverged = np.array([Status.DIVERGED], np.int32)
    return state._replace(epoch=state.epoch + np.int32(1), status=diverged)


def _before(train: _Train, row: int, ill: int) -> State:
    """The group's states with a member's last finite weights, where those after ``ill`` are not."""
    good, back = ill - 1, 1
    after, sound = train(row, good)
    while good and not sound[row]:
        ill, back = good, 2 * back
        good = max(0, ill - back)
        after, sound = train(row, good)
    while ill - good > 1:
        middle = (good + ill) // 2
        found, sound = train(row, middle)
        if sound[row]:
            good, after = middle, found
        else:
            ill = middle
    return after
