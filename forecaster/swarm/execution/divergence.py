"""Find members that diverged within a block, and take them back to their last finite weights.

Where nothing is measured after an epoch, a member trains to the end of its block whatever happens,
see :func:`train_block`. Its state before it diverged is found by training parts of the block again.
"""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from jaxtyping import Bool, Float, Int

from forecaster.swarm.arrays.members import take_members, write_members
from forecaster.swarm.training.loop import State, Status

TrainAgain: TypeAlias = Callable[[int, int], tuple[State, Bool[np.ndarray, " row"]]]
"""``train_again(row, epochs)``: states (row, ...) after this many epochs of the block, right for
this row at least, and whether the weights of each row are finite."""


def first_bad(
    losses: Float[np.ndarray, "row epoch"],
    sound: Bool[np.ndarray, " row"],
    trained: Int[np.ndarray, " row"],
) -> Int[np.ndarray, " row"]:
    """Return the epoch of a block in which each member diverged, from 0; -1 where it did not.

    That is the first epoch whose loss is not finite, or the last where only the weights at the end
    are not finite.

    - ``losses``: the losses of the block's epochs
    - ``sound``: whether the weights at the end are finite
    - ``trained``: the number of epochs that each member trained
    """
    bad = np.array(~np.isfinite(losses), bool)
    bad[np.arange(bad.shape[1]) >= trained[:, None]] = False
    at_the_end = np.array(trained - 1, int)
    at_the_end[np.asarray(sound | (trained == 0))] = -1
    return np.where(bad.any(1), bad.argmax(1), at_the_end)


def take_back(state: State, bad: Int[np.ndarray, " row"], train_again: TrainAgain) -> State:
    """Return the states after a block, members that diverged with their last finite weights.

    - ``state``: after the block, arrays (row, ...)
    - ``bad``: the epoch in which each member diverged, see :func:`first_bad`
    - ``train_again``: see :data:`TrainAgain`
    """
    for row in (int(row) for row in np.flatnonzero(bad >= 0)):
        state = write_members(state, np.array([row]), _last_sound(train_again, row, int(bad[row])))
    return state


def _last_sound(train_again: TrainAgain, row: int, bad: int) -> State:
    """Return the state (1, ...) of a member that diverged in epoch ``bad``.

    A loss that is not finite does not mean that the weights before it were finite: there may be
    many epochs of bad weights on which no loss depends.
    """
    after, sound = train_again(row, bad)
    if bad and not sound[row]:
        after = _before(train_again, row, bad)
    state = take_members(after, slice(row, row + 1))
    diverged = np.array([Status.DIVERGED], np.int32)
    return state._replace(epoch=state.epoch + np.int32(1), status=diverged)


def _before(train_again: TrainAgain, row: int, ill: int) -> State:
    """Return states in which the member has its last finite weights; after ``ill`` they are bad.

    Weights that are not finite stay so. So it steps back by ever more epochs until weights are
    finite, and then bisects between the last two.
    """
    good, back = ill - 1, 1
    after, sound = train_again(row, good)
    while good and not sound[row]:
        ill, back = good, 2 * back
        good = max(0, ill - back)
        after, sound = train_again(row, good)
    while ill - good > 1:
        middle = (good + ill) // 2
        found, sound = train_again(row, middle)
        if sound[row]:
            good, after = middle, found
        else:
            ill = middle
    return after
